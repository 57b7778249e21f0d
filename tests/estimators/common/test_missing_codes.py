"""Codes of missing values among numbers: which are seen, and who warns."""

import warnings

import numpy as np
import pytest

import fastmf as mf
from fastmf.estimators.common.data import missing_code


def answers(low=1, high=6):
    return np.random.default_rng(0).integers(low, high, (60, 4))


@pytest.mark.parametrize("code", [-9999, -999, -99, -9, 99, 999, 9999])
@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.float64])
def test_codes_are_found(code, dtype):
    X = answers().astype(dtype)
    assert missing_code(X) is None
    X[3, 2] = code
    assert missing_code(X) is None  # once: a mistake of another kind
    X[5, 1] = code
    assert missing_code(X) == (code, 1)
    if dtype != np.int16:
        X[5, 0] = np.nan
        assert missing_code(X) == (code, 1)


@pytest.mark.parametrize("values", [
    [-9.0, -5, 0, 3, 8], [99, 20, 45, 70, 98], [0, 99, 0, 99, 0], [-9, -9, 1, 1, 1], [-40, -20, -9],
])  # fmt: skip
def test_values_among_others_are_none(values):
    """Near the others, or one of two values."""
    assert missing_code(np.repeat(values, 12)[:, None].astype(float)) is None


def test_negative_codes_among_ages():
    ages = np.array([-9.0, 1, 20, 50, 80])
    assert missing_code(np.repeat(ages, 12)[:, None]) == (-9, 0)


@pytest.mark.parametrize("kind", ["features", "target", "classes", "items", "labels"])
def test_estimators_warn(kind):
    X = answers(0, 3)
    X[3, 2] = X[7, 2] = 99
    y = np.random.default_rng(1).normal(size=60)
    coded = np.where(np.arange(60) < 2, 99.0, y)
    known = {"noise_variance": 1.0, "slab_variance": 1.0, "inclusion_probability": 0.5}
    fits = {
        "features": lambda: mf.SpikeSlabRegressor(**known).fit(X, y),
        "target": lambda: mf.SpikeSlabRegressor(**known).fit(answers(), coded),
        "classes": lambda: mf.SpikeSlabClassifier(slab_variance=1.0, inclusion_probability=0.5).fit(
            X, y > 0
        ),
        "items": lambda: mf.OrdinalMachine(l2=0.1, l2_field=0.1, max_iter=1).fit(X),
        "labels": lambda: mf.PottsMachine(l2=0.1, l2_field=0.1).fit(X),
    }
    place = "y has the value 99," if kind == "target" else "X has the value 99 in column 2"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fits[kind]()
    texts = [str(one.message) for one in caught]
    assert any(text.startswith(place) for text in texts)


def test_negative_labels_of_sequences_are_missing_without_a_warning():
    X = answers(0, 3)
    X[3, 2] = X[7, 2] = -9
    machine = mf.PottsMachine(l2=0.1, l2_field=0.1).fit(X)
    assert machine.n_missing_ == 2
