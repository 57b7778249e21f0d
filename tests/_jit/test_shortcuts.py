"""Shorter ways through Numba's analysis: kernels are those of Numba's own functions."""

import re
from contextlib import nullcontext
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba.core import ssa
from numba.core.base import BaseContext
from numba.core.postproc import PostProcessor
from numba.core.types.functions import BaseFunction
from numba.extending import overload

from fastmf._jit import compiler, shortcuts
from fastmf._jit.kernel import REORDER, kernel

REPLACED = [
    *((BaseContext, "refresh"), (BaseFunction, "get_call_type"), (PostProcessor, "run")),
    *((ssa, "_run_block_rewrite"), (ssa, "_logger")),
]


def of_many_blocks(x, n, limit):
    """Variables are assigned in several blocks, swapped, and of several types of number."""
    low, high, count, total = 0, n, 0, 0.0
    while low < high and count < limit:
        middle = (low + high) // 2
        for i in range(low, high):
            if x[i] < x[middle] or i % 3 == 0:
                total += x[i] * 2
                x[i] = total - count
            elif x[i] > 1.5:
                total, x[i] = x[i], total
                break
        if total > 0:
            high = middle
        else:
            low = middle + 1
        count += 1
    return total + low + high, count


def compiled(monkeypatch, views, short):
    """A kernel, and its instructions; the names of a function tell how often it was compiled."""
    if not short:
        for name in ("shortcuts", "quick_splitting"):
            monkeypatch.setattr(compiler, name, nullcontext)
    function = kernel(name=None, views=views)(of_many_blocks)
    function.compile((numba.float64[::1], numba.int64, numba.int64))
    monkeypatch.undo()
    (text,) = function.inspect_asm().values()
    return function, re.sub(r"v\d+|B\d+|_\d+|[0-9a-f]{8,}", "", text)


@pytest.mark.parametrize("views", [True, False])
def test_machine_code_is_the_same(views, monkeypatch):
    function, short = compiled(monkeypatch, views, True)
    _, long = compiled(monkeypatch, views, False)
    assert short == long and len(short) > 1000
    for seed in range(3):
        expected, found = (np.random.default_rng(seed).normal(size=9) for _ in range(2))
        assert function(found, 9, 5) == pytest.approx(of_many_blocks(expected, 9, 5), rel=1e-12)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_numba_has_its_own_functions_afterwards():
    own = [getattr(owner, name) for owner, name in REPLACED]
    seen = []

    def inner():
        seen.extend(getattr(owner, name) for owner, name in REPLACED[:3])

    with shortcuts.shortcuts():
        inner()
        with shortcuts.shortcuts():
            inner()
        inner()
    assert seen[:3] == seen[3:6] == seen[6:] and not set(seen) & set(own)
    with pytest.raises(ZeroDivisionError), shortcuts.shortcuts(), shortcuts.quick_splitting():
        assert all(getattr(*item) is not old for item, old in zip(REPLACED, own, strict=True))
        raise ZeroDivisionError
    assert [getattr(owner, name) for owner, name in REPLACED] == own


def test_a_function_that_numba_does_not_have_is_not_replaced():
    owner = SimpleNamespace(own=len)
    with shortcuts.replaced(owner, "absent", lambda own: max):
        assert not hasattr(owner, "absent")
    with shortcuts.replaced(owner, "own", lambda own: max):
        assert owner.own is max
    assert owner.own is len


def test_signatures_of_compiled_definitions_are_not_remembered():
    def sum_of(x):
        raise NotImplementedError

    @overload(sum_of)
    def _(x):
        def loop(x):
            total = 0.0
            for i in range(x.size):
                total += x[i]
            return total

        return loop

    def through(x):
        return sum_of(x)

    x = np.append(np.full(64, 0.1), 1e17)
    in_order = kernel(name=None, views=True)(through)(x)
    assert in_order == sum_of_python(x)
    kernel(name=None, views=True, fastmath=REORDER)(through)(x)
    assert not any(call[0].typing_key is sum_of for call in shortcuts._SIGNATURES)
    assert any(call[0].typing_key is not sum_of for call in shortcuts._SIGNATURES)


def sum_of_python(x):
    """The sum in the order of the entries."""
    total = 0.0
    for entry in x:
        total += entry
    return total


def squares_below(n):
    for i in range(n):
        k = i * i
        yield k
        if k > 20:
            k = -k
            yield k


def test_generators_keep_their_variables():
    squares = kernel(name=None)(squares_below)
    assert list(squares(8)) == list(squares_below(8))
