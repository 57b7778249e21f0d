"""Numba's compiler without what kernels do not need.

A user waits for compilation at a first call, so that what Numba does more than once, or for things
that are in no kernel, is left out: here passes of Numba's, in `fastmf._jit.lowering` instructions,
in `fastmf._jit.library` passes of LLVM's, in `fastmf._jit.shortcuts` parts of its analysis. A first
call of `tap` takes two thirds of the CPU time.
"""

import gc
from contextlib import contextmanager

from numba.core import ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import enforce_no_phis
from numba.core.postproc import PostProcessor
from numba.core.typed_passes import IRLegalization, NativeLowering
from numba.core.untyped_passes import InlineInlinables, ReconstructSSA

from fastmf._jit.library import Library
from fastmf._jit.lowering import Lowering, LoweringOfEntries, ShortLowering
from fastmf._jit.shortcuts import quick_splitting, shortcuts

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


@register_pass(mutates_CFG=True, analysis_only=False)
class _SplitQuickly(ReconstructSSA):
    """Numba's pass that makes several variables of one that is assigned several times."""

    _name = "split_quickly"

    def run_pass(self, state):
        with quick_splitting():
            return super().run_pass(state)


@register_pass(mutates_CFG=False, analysis_only=True)
class _WithoutDeletions(IRLegalization):
    """Numba's last pass before a kernel is emitted, which deletes each variable after its use.

    Nothing is emitted for that in kernels without counts of references.
    """

    _name = "without_deletions"

    def run_pass(self, state):
        if state.flags.nrt:
            return super().run_pass(state)
        enforce_no_phis(state.func_ir)
        PostProcessor(state.func_ir).run()
        return True


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
        with _no_garbage_collection(), shortcuts():
            return super().compile_extra(function)

    def define_pipelines(self):
        if not self.state.flags.nrt:
            self.state.library = Library(
                self.state.targetctx.codegen(), self.state.func_id.func_qualname
            )
            self.state.library.enable_object_caching()
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        kept = (item for item in passes.passes if item[0].name() not in NOT_NEEDED)
        own = {
            InlineInlinables: _MergeInPlace,
            ReconstructSSA: _SplitQuickly,
            IRLegalization: _WithoutDeletions,
            NativeLowering: self.lowering,
        }
        passes.passes = [(own.get(kind, kind), text) for kind, text in kept]
        passes.finalize()
        return [passes]


class CompilerOfEntries(Compiler):
    """Compiler of kernels whose indices are not negative, unless they are constants."""

    lowering = LoweringOfEntries


class CompilerOfShort(Compiler):
    """Compiler of kernels whose loops are short: LLVM does not make vectors of them."""

    lowering = ShortLowering
