import numpy as np
import pytest

from fastmf._numba import kernel
from fastmf.kernels.memory import copy, set_to_zero, transpose


@kernel(name=None)
def _transposed(source, first, n_columns, target):
    transpose(source, first, n_columns, target)


@kernel(name=None)
def _copied_and_cleared(source, target, cleared):
    copy(source, target)
    set_to_zero(cleared)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("width", [4, 12, 24])
@pytest.mark.parametrize("n_columns", [0, 1, 3, 4, 7, 16, 19])
def test_rows_become_columns(dtype, width, n_columns):
    source = np.random.default_rng(0).random((40, 19)).astype(dtype)
    target = np.full((20, width), -1, dtype)
    _transposed(source, 5, n_columns, target)
    np.testing.assert_array_equal(target[:n_columns], source[5 : 5 + width, :n_columns].T)
    assert (target[n_columns:] == -1).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_as_much_is_copied_as_there_is_room_for(dtype):
    source, target, cleared = np.arange(9, dtype=dtype), np.ones(7, dtype), np.ones(5, dtype)
    _copied_and_cleared(source, target, cleared)
    np.testing.assert_array_equal(target, source[:7])
    assert not cleared.any()
