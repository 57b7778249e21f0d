"""Modules of LLVM, in which kernels are optimised.

Numba lets LLVM simplify each function before functions are inlined, then inline and simplify the
whole once more so that counts of references meet, and then optimise it. Kernels without counts of
references are optimised once.

Of the passes that follow, loop strength reduction takes longest: it looks for fewer and cheaper
induction variables, a third of the time of emitting machine code. The loops of kernels that run
long step through a few arrays, which the addresses of the processor's instructions express.

Without both, LLVM takes 0.75 of the time for the kernels of `tap`.
"""

from contextlib import contextmanager

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary

# LLVM ends the process at an option that it does not know, or is given twice if it takes it once.
LLVM_VERSIONS = range(20, 23)
_OPTION = "-disable-lsr="


class Library(JITCodeLibrary):
    """The module of a kernel without counts of references."""

    # A Numba that does not ask these methods emits kernels that are as right.

    def _optimize_functions(self, ll_module):
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self):
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


_n_active = 0  # kernels that are compiled, one for the other; Numba compiles in one thread


@contextmanager
def without_loop_strength_reduction():
    """Leave out LLVM's loop strength reduction in what is emitted meanwhile."""
    global _n_active
    if llvm.llvm_version_info[0] not in LLVM_VERSIONS:
        yield
        return
    _n_active += 1
    if _n_active == 1:
        llvm.set_option("fastmf", f"{_OPTION}true")
    try:
        yield
    finally:
        _n_active -= 1
        if not _n_active:
            llvm.set_option("fastmf", f"{_OPTION}false")
