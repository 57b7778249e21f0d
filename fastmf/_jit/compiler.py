"""Numba's compiler without what kernels do not need.

A user waits for compilation at a first call, so that what Numba does more than once, or for things
that are in no kernel, is left out. With what `fastmf._jit.lowering` does not emit, a first call of
`tap` takes 0.85 of the CPU time.
"""

import gc
import sys
from contextlib import contextmanager

from numba.core import ir, types
from numba.core.base import BaseContext
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering
from numba.core.untyped_passes import InlineInlinables

from fastmf._jit.lowering import Lowering, LoweringOfEntries

# Passes of Numba's for what is in no kernel: closures and comprehensions, expressions of arrays.
NOT_NEEDED = {"inline_closure_likes", "nopython_rewrites"}


class _Flags(Flags):
    """Numba's options of a function, which it compares 15,000 times in a first call of `tap`."""

    def __eq__(self, other):
        if isinstance(other, Flags) and self._values.keys() == other._values.keys():
            return self._values == other._values
        return super().__eq__(other)

    def __hash__(self):
        return hash(tuple(sorted(self.options)))  # as Numba's, which makes a dict of all values


@contextmanager
def _no_garbage_collection():
    """Leave out the search for unreachable cycles: 0.07 of the CPU time of a first call of `tap`.

    What Numba makes of a kernel stays in use until it is compiled, and is searched each time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _n_known(context):
    """Numbers of modules and of functions that Numba can emit."""
    return len(sys.modules), sum(len(registry.functions) for registry in context._registries)


@contextmanager
def _refreshed_if_new():
    """Let Numba look for new functions and types only where there may be some.

    They are defined by intrinsics and by modules that are imported meanwhile. Numba looks for them
    at each array that is read, a thousand times in a first call of `tap`: 0.07 of its CPU time.
    """
    refresh, known = BaseContext.refresh, None

    def refresh_if_new(context):
        nonlocal known
        if known != (known := _n_known(context)):
            refresh(context)

    BaseContext.refresh = refresh_if_new
    try:
        yield
    finally:
        BaseContext.refresh = refresh


@register_pass(mutates_CFG=True, analysis_only=False)
class _MergeInPlace(InlineInlinables):
    """Numba's pass that merges functions, without its two deep copies of each.

    Their text was translated for this one place, so that nobody else sees what becomes of it.
    """

    _name = "merge_in_place"
    _n_active = 0  # passes that are under way, one within the other; Numba compiles in one thread

    def run_pass(self, state):
        _MergeInPlace._n_active += 1
        ir.Block.__deepcopy__ = lambda block, memo: block
        try:
            return super().run_pass(state)
        finally:
            _MergeInPlace._n_active -= 1
            if not _MergeInPlace._n_active:
                del ir.Block.__deepcopy__


_SIZES: dict[types.Type, int] = {}


class Compiler(CompilerBase):
    """Compiler of kernels."""

    lowering = Lowering

    def compile_extra(self, function):
        context = self.state.targetctx
        size_of = context.get_abi_sizeof

        def known_size_of(type_):
            if type_ not in _SIZES:
                _SIZES[type_] = size_of(type_)
            return _SIZES[type_]

        context.get_abi_sizeof = known_size_of
        self.state.flags = _Flags(self.state.flags)
        with _no_garbage_collection(), _refreshed_if_new():
            return super().compile_extra(function)

    def define_pipelines(self):
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        kept = (item for item in passes.passes if item[0].name() not in NOT_NEEDED)
        own = {InlineInlinables: _MergeInPlace, NativeLowering: self.lowering}
        passes.passes = [(own.get(kind, kind), text) for kind, text in kept]
        passes.finalize()
        return [passes]


class CompilerOfEntries(Compiler):
    """Compiler of kernels whose indices are not negative, unless they are constants."""

    lowering = LoweringOfEntries
