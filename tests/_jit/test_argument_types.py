from typing import NamedTuple

import numba
import numpy as np
import pytest

from fastmf._jit.argument_types import Bool, Int8, Int64, Real, Workers, argument_types


class Row(NamedTuple):
    state: Real[2]
    labels: Int8[1]


class Rows(NamedTuple):
    memory: Workers[Row]
    found: Bool[1]
    tol: float
    size: int
    span: tuple[int, float]


def an_instance(dtype):
    memory = Row(np.zeros((2, 3, 4), dtype), np.zeros((2, 3), np.int8))
    return Rows(memory, np.zeros(3, bool), 0.5, 3, (1, 2.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_are_those_of_instances(dtype):
    (found,) = argument_types(dtype, Rows)
    assert found == numba.typeof(an_instance(dtype))
    assert found != numba.typeof(an_instance(np.float16 if dtype == np.float32 else np.float32))


def test_types_of_tuples_and_arrays():
    given = np.zeros((1, 1)), (np.zeros(1), 1), True, np.zeros(1, np.int64)
    found = argument_types(float, Real[2], (Real[1], int), bool, Int64[1])
    assert found == tuple(map(numba.typeof, given))
