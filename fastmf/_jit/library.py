"""Machine code of a kernel, as LLVM optimises it.

Numba lets LLVM simplify each function before functions are inlined, then inline and simplify the
whole once more so that counts of references meet, and then optimise it. Kernels without counts of
references are optimised once, in 0.87 of LLVM's time for the kernels of `tap`.

Loop strength reduction is an eighth of what remains. Without it sparse sweeps in single precision
take 1.35 of their time, so that it stays.
"""

from numba.core.codegen import JITCodeLibrary


class Library(JITCodeLibrary):
    """The module of a kernel without counts of references."""

    # A Numba that does not ask these methods emits kernels that are as right.

    def _optimize_functions(self, ll_module):
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self):
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)
