"""Entries of arrays in kernels without tests of their indices, and what compiling leaves behind."""

import gc

import numpy as np
import pytest
from numba.core.errors import TypingError

from fastmf._jit.kernel import kernel


def copied(source, target, at):
    """Read and write by numbers, tuples and constants, from the end too where they are constant."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]
    target[0, -1] = source[-1, 0]
    target[-1, at] = source[at, -1]
    one = target[1]
    one[at] = source[1, 0]
    one[-1] = one[0]
    return source[at, 0]


fast = kernel(negative=False, name=None)(copied)


SOURCES = np.float64, np.float32, np.int8, np.bool_, np.int64
TARGETS = np.float64, np.float32, np.int64
LAYOUTS = "rows", "columns", "strided"


# Each combination of two of the three.
@pytest.mark.parametrize(
    ("source", "target", "layout"),
    [
        (source, target, LAYOUTS[(i + j) % 3])
        for i, source in enumerate(SOURCES)
        for j, target in enumerate(TARGETS)
    ],
)
def test_entries_are_those_of_numpy(source, target, layout):
    given = (np.arange(60).reshape(6, 10) % 7 - 3).astype(source)
    views = {"rows": given[:4], "columns": given.T[:4, :5], "strided": given[1::2, ::3]}
    x = views[layout]
    if layout == "columns":
        x = np.asfortranarray(x)
    both = [np.zeros(x.shape, target) for _ in range(2)]
    values = [
        function(x, out, np.uint8(2)) for function, out in zip((fast, copied), both, strict=True)
    ]
    np.testing.assert_array_equal(*both)
    assert values[0] == values[1]


def test_indices_are_not_tested():
    def entry(x, at, k):
        return x[at[k], k] + at[k]

    given = np.ones((3, 3)), np.array([1]), 0
    tests = []
    for negative in (True, False):
        compiled = kernel(negative=negative, name=None)(entry)
        assert compiled(*given) == 2
        (code,) = compiled.inspect_llvm().values()
        tests.append(code.count("icmp slt"))
    assert tests[0] > 0 and tests[1] == 0


def test_compiling_leaves_the_search_for_cycles_as_it_was():
    def fine(x):
        return x[0] + 1

    def wrong(x):
        return x.no_such_attribute

    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            assert kernel(name=None)(fine)(np.ones(2)) == 2
            with pytest.raises(TypingError):
                kernel(name=None)(wrong)(np.ones(2))
            assert gc.isenabled() == enabled
        finally:
            gc.enable()
