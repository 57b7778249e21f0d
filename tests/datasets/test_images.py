import sys

import numpy as np
import pytest

from fastmf.datasets import load_digits


def test_digits():
    images = load_digits()
    assert images.X.shape == (1797, 64)
    assert images.X.dtype == np.float32
    assert (images.X.min(), images.X.max()) == (0, 1)
    assert images.shape == (8, 8)
    np.testing.assert_array_equal(np.unique(images.labels), np.arange(10))
    binary = load_digits(binary=True, dtype=np.float64)
    assert binary.X.dtype == np.float64
    np.testing.assert_array_equal(binary.X, images.X > 0.5)


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"pip install scikit-learn"):
        load_digits()
