"""Functions that kernels compile from a text of their own, whichever kernel calls them."""

import numpy as np
import pytest
from numba.core import event, types

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
