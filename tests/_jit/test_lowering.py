"""Instructions that kernels emit in place of Numba's: the results are those of Python."""

from typing import NamedTuple

import numba
import numpy as np
import pytest

from fastmf._jit.kernel import kernel


class Pair(NamedTuple):
    """Two arrays, which are one variable of a kernel."""

    old: np.ndarray
    new: np.ndarray


def smoothed(pair, n_sweeps, last):
    """Variables that hold arrays change places, end within loops, and are unset on some paths."""
    total = 0.0
    for sweep in range(n_sweeps):
        old, new = pair.old, pair.new
        for i in range(old.shape[0]):
            left = old[i - 1]  # of the last one at first
            new[i] = (left + old[i]) / 2
        if sweep == last:
            found = new[-1]
        pair = Pair(new, old)
    if 0 <= last < n_sweeps:
        total = found
    return total + pair.old[0]


@pytest.mark.parametrize("options", [{"views": True}, {}, {"views": True, "short": True}])
@pytest.mark.parametrize(("n_sweeps", "last"), [(0, 0), (1, 0), (4, 2), (3, 7)])
def test_variables_have_their_values(options, n_sweeps, last):
    start = np.random.default_rng(n_sweeps).normal(size=6)
    expected, found = (Pair(start.copy(), np.zeros(6)) for _ in range(2))
    compiled = kernel(**options, name=None)(smoothed)
    assert compiled(found, n_sweeps, last) == smoothed(expected, n_sweeps, last)
    np.testing.assert_array_equal(found, expected)


def test_short_kernels_have_no_vectors_and_others_have():
    def add(source, target):
        for i in range(source.shape[0]):
            target[i] += source[i]

    for short in (False, True):
        compiled = kernel(views=True, short=short, name=None)(add)
        compiled(np.ones(3), np.ones(3))
        (llvm,) = compiled.inspect_llvm().values()
        assert (" x double>" in llvm) == (not short)


def moved(source, target, i, j):
    target[i, j] = source[i, j]
    target[i, -1] += source[-1, j]
    target[(0, 1)] = True
    return source[-2, 1]


INDICES = np.int64, np.int32, np.uint8
ARRAYS = "C", "F", "strided", "readonly", "unaligned"
DTYPES = np.float32, np.int8, np.complex128


# Each combination of two of the three.
@pytest.mark.parametrize(
    ("index", "layout", "dtype"),
    [
        (index, layout, DTYPES[(i + j) % 3])
        for i, index in enumerate(INDICES)
        for j, layout in enumerate(ARRAYS)
    ],
)
def test_entries_are_those_of_any_array(index, layout, dtype):
    source = (10 * np.random.default_rng(0).normal(size=(8, 10))).astype(dtype)
    if layout == "strided":
        source = source[::-2, 1::3]
    elif layout == "unaligned":
        bytes_ = np.empty(source.nbytes + 1, np.uint8)
        bytes_[1:] = source.view(np.uint8).ravel()
        source = bytes_[1:].view(dtype).reshape(source.shape)
    else:
        source = np.asarray(source, order=layout if layout in "CF" else "C")
        source.flags.writeable = layout != "readonly"
    compiled = kernel(views=True, name=None)(moved)
    places = [(2, 1), (0, 0)] if index is np.uint8 else [(2, 1), (-1, 2), (3, -3)]
    for i, j in places:
        expected, found = (np.zeros(source.shape, dtype, order="F") for _ in range(2))
        assert compiled(source, found, index(i), index(j)) == moved(source, expected, i, j)
        np.testing.assert_array_equal(found, expected)


def test_bounds_are_checked_where_numba_is_told_to():
    compiled = numba.njit(
        lambda x, i: x[i], boundscheck=True, pipeline_class=_compiler_of(kernel(name=None)(moved))
    )
    assert compiled(np.arange(3.0), 2) == 2.0
    with pytest.raises(IndexError):
        compiled(np.arange(3.0), 3)


def _compiler_of(dispatcher):
    return dispatcher._compiler.pipeline_class
