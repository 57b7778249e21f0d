"""Functions that kernels compile from a text of their own, whichever kernel calls them."""

from typing import NamedTuple

import forks
import numba
import numpy as np
import pytest
from numba.core import event, types

from fastmf._jit.argument_types import Bool, Int8, Real, argument_types, numba_type, type_of
from fastmf._jit.kernel import REORDER, compilable, compiled_from, kernel

KINDS = {"plain": {}, "inner": {"mode": "inner"}, "reordered": {"fastmath": REORDER}}


class Compiled(event.Listener):
    """The names of what is compiled."""

    def __init__(self):
        self.names = []

    def on_start(self, event):
        self.names.append(event.data["dispatcher"].py_func.__name__)

    def on_end(self, event):
        pass


@compilable(mode="inner", name=None)
def half(x):
    return x / (x + x)


def doubled(x):
    return np.add(x, x)


@compiled_from(doubled, mode="inner", name=None)
def _doubled(x):
    def single(x):
        return x + x

    def double(x):
        return 2.0 * x

    return {types.float32: single, types.float64: double}.get(x)


def user(kind):
    def call(x):
        return half(x) + doubled(x)

    inside = kernel(call, name=None, **KINDS[kind])
    return kernel(lambda x: inside(x), name=None)


def test_callers_of_all_kinds_share_one_compiled_version():
    compiled = Compiled()
    with event.install_listener("numba:compile", compiled):
        assert [user(kind)(3.0) for kind in KINDS] == [6.5] * len(KINDS)
    assert compiled.names.count("half") == compiled.names.count("double") == 1


def test_division_is_as_in_numpy():
    assert np.isnan(user("plain")(0.0))


def test_types_have_texts_of_their_own():
    assert user("plain")(np.float32(3.0)) == 6.5
    with pytest.raises(Exception, match="doubled"):
        user("plain")(3)


def test_python_still_calls_the_function_of_arrays():
    np.testing.assert_array_equal(doubled(np.arange(3.0)), [0.0, 2.0, 4.0])
    assert half(4.0) == 0.5


# --- argument types -------------------------------------------------------------------------------


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


# --- lazily ---------------------------------------------------------------------------------------


PROGRAM = """
from fastmf.special import exp
import sys
assert "numba" not in sys.modules
import forks
import numba

@numba.njit
def f(x):
    return exp(x)

assert abs(f(1.0) - 2.718281828459045) < 1e-15
"""


@pytest.mark.slow
def test_users_functions_call_special_ones_whichever_is_imported_first():
    forks.fresh("-c", PROGRAM)
