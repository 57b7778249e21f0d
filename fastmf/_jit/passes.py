"""Passes of Numba's compiler for kernels: documented extension points that shorten a first call.

A user waits for compilation at a first call. Nothing depends on this module: with the environment
variable FASTMF_PLAIN_NUMBA set, or with a Numba that it does not fit, kernels are compiled by
Numba's own passes, and compute the same.
"""

import os

from numba.core import compiler, ir, typed_passes, untyped_passes
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower

# Passes of Numba for code that no kernel has: closures, comprehensions, expressions of arrays.
NOT_NEEDED = {"inline_closure_likes", "nopython_rewrites"}


@register_pass(mutates_CFG=True, analysis_only=False)
class _MergeInPlace(untyped_passes.InlineInlinables):
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


class _Lower(Lower):
    """Emits variables that hold no references without setting them to zero at both ends."""

    def alloca_lltype(self, name, lltype, datamodel=None):
        if self.context.enable_nrt:
            return super().alloca_lltype(name, lltype, datamodel)
        with self.builder.goto_entry_block():
            return self.builder.alloca(lltype, name=name)

    def storevar(self, value, name, argidx=None):
        in_memory = argidx is None and name not in self._singly_assigned_vars
        if self.context.enable_nrt or not in_memory:
            super().storevar(value, name, argidx)
        else:
            self.builder.store(value, self.getvar(name))

    def delvar(self, name):
        if self.context.enable_nrt:
            super().delvar(name)
        elif name not in self._blk_local_varmap:
            self._singly_assigned_vars.discard(name)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(typed_passes.NativeLowering):
    _name = "lowering_of_kernels"
    lowering_class = _Lower


class Compiler(compiler.CompilerBase):
    """Compiler of kernels."""

    def define_pipelines(self):
        passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        ours = {_MergeInPlace.__base__: _MergeInPlace, _Lowering.__base__: _Lowering}
        needed = (item for item in passes.passes if item[0].name() not in NOT_NEEDED)
        passes.passes = [(ours.get(kind, kind), text) for kind, text in needed]
        passes.finalize()
        return [passes]


# Options of Numba's `njit`.
_PLAIN = os.environ.get("FASTMF_PLAIN_NUMBA", "0") not in ("", "0")
OPTIONS = {} if _PLAIN else {"pipeline_class": Compiler}
