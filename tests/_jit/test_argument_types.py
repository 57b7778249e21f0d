from typing import NamedTuple

import numba
import numpy as np
import pytest

from fastmf._jit.argument_types import (
    Bool,
    Int8,
    Real,
    argument_types,
    numba_type,
    type_of,
)


class Row(NamedTuple):
    state: Real[2]
    labels: Int8[1]


class Rows(NamedTuple):
    memory: Row
    found: Bool[1]
    tol: float
    size: int
    span: tuple[int, float]


def an_instance(dtype):
    memory = Row(np.zeros((3, 4), dtype), np.zeros(3, np.int8))
    return Rows(memory, np.zeros(3, bool), 0.5, 3, (1, 2.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_are_those_of_instances(dtype):
    (found,) = argument_types(dtype, Rows)
    assert found == type_of(an_instance(dtype))
    assert numba_type(found) == numba.typeof(an_instance(dtype))
    assert found != type_of(an_instance(np.float16 if dtype == np.float32 else np.float32))


VALUES = [
    *(True, 3, 2.5, np.float32(1), np.int32(1), np.uint64(1), np.bool_(True), (1, (2.0, True))),
    *(np.zeros((2, 3), order="F"), np.zeros((4, 4))[::2], np.zeros(4, np.int8)[::2], np.zeros(())),
    *(np.zeros((0, 2), bool), np.zeros(3, np.int64).view(np.uint64)),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_types_of_values_are_those_of_numba(value):
    assert numba_type(type_of(value)) == numba.typeof(value)


@pytest.mark.parametrize(
    "value", ["text", None, 1j, np.zeros(2, ">f8"), (1, "text"), np.zeros(1, "M8[s]")]
)
def test_other_values_have_no_type(value):
    assert type_of(value) is None
