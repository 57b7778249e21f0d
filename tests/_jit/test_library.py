"""What LLVM makes of kernels: optimised once, and Numba's other functions are as they were."""

import re

import numba
import numpy as np
import pytest
from numba.core.codegen import JITCodeLibrary

from fastmf._jit.kernel import REORDER, kernel
from fastmf._jit.library import Library

VECTOR = numba.float64[::1]


def weighted(x, y, out, shift):
    """Loops of several arrays, one of them backwards."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
        out[i] = x[i] - shift * y[y.shape[0] - 1 - i]
    return total


def machine_code(function):
    function.compile((VECTOR, VECTOR, VECTOR, numba.float64))
    (text,) = function.inspect_asm().values()
    return re.sub(r"v\d+|B\d+|_\d+|[0-9a-f]{8,}", "", text)


@pytest.mark.parametrize("views", [True, False])
def test_kernels_compute_the_same(views):
    x, y = np.random.default_rng(0).normal(size=(2, 37))
    expected, found = np.empty((2, 37))
    compiled = kernel(name=None, views=views, fastmath=REORDER)(weighted)
    assert compiled(x, y, found, 0.5) == pytest.approx(weighted(x, y, expected, 0.5), rel=1e-13)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    (result,) = compiled.overloads.values()
    assert type(result.library) is (Library if views else JITCodeLibrary)


def test_loops_of_kernels_are_vectorised():
    compiled = kernel(name=None, views=True, fastmath=REORDER)(weighted)
    machine_code(compiled)
    (text,) = compiled.inspect_llvm().values()
    assert re.search(r"load <\d+ x double>", text) and re.search(r"store <\d+ x double>", text)


def test_functions_outside_the_package_are_compiled_as_before():
    before = machine_code(numba.njit(weighted))
    kernel(name=None, views=True)(weighted).compile((VECTOR, VECTOR, VECTOR, numba.float64))
    assert machine_code(numba.njit(weighted)) == before
