import numpy as np
import pytest

from fastmf._jit.kernel import kernel
from fastmf._jit.vectors import lanes_of
from fastmf.kernels.linear.copies import add_multiple, copy, set_to_zero, transpose_tile


@kernel(name=None)
def _transposed(source, i, j, target, k, n):
    transpose_tile(source, i, j, target, k, n)


@kernel(name=None)
def _copied_and_cleared(source, target, cleared):
    copy(source, target)
    set_to_zero(cleared)


@kernel(name=None, views=True)
def _moved_on(factor, source, target):
    add_multiple(factor, source, target)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_tile_is_transposed(dtype):
    n = lanes_of(dtype)
    source = np.random.default_rng(0).random((n + 3, n + 7)).astype(dtype)
    target = np.full((n + 7, n + 2), -1, dtype)
    _transposed(source, 3, 5, target, 2, n)
    expected = np.full_like(target, -1)
    expected[5 : 5 + n, 2:] = source[3:, 5 : 5 + n].T
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_as_much_is_copied_as_there_is_room_for(dtype):
    source, target, cleared = np.arange(9, dtype=dtype), np.ones(7, dtype), np.ones(5, dtype)
    _copied_and_cleared(source, target, cleared)
    np.testing.assert_array_equal(target, source[:7])
    assert not cleared.any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_multiple_is_added_to_arrays_of_any_length(dtype):
    rng, factor = np.random.default_rng(0), dtype(0.7)
    for n in (0, 1, lanes_of(dtype) - 1, lanes_of(dtype), 3 * lanes_of(dtype) + 2):
        source, target = rng.normal(size=(2, n)).astype(dtype)
        expected = target + factor * source
        _moved_on(factor, source, target)
        np.testing.assert_allclose(target, expected, rtol=0, atol=4 * np.finfo(dtype).eps)
