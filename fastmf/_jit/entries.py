"""Entries of arrays in kernels whose indices are not negative, as they are emitted.

Numba counts a negative index from the end of its axis, and tests each one. In kernels compiled with
`negative=False` an index is negative only if it is a constant; all others are taken as unsigned,
which Numba does not test. That saves patterns of blocks of 3 to 12 units 0.11 to 0.29 of their
time; the sequential schedule of `tap` took a tenth longer, so that it is not for all kernels.
"""

from numba.core import types
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering


class _Lower(Lower):
    # A Numba that does not ask these methods tests indices: kernels are slower, and as right.

    def lower_getitem(self, resty, expr, value, index, signature):
        signature = self._unsigned(signature, index)
        return super().lower_getitem(resty, expr, value, index, signature)

    def lower_setitem(self, target_var, index_var, value_var, signature):
        signature = self._unsigned(signature, index_var)
        return super().lower_setitem(target_var, index_var, value_var, signature)

    def _unsigned(self, signature, index):
        """The signature of a read or write with indices of an array unsigned, where they are."""
        array, _, *value = signature.args
        if not isinstance(array, types.Array):
            return signature
        kind = self.typeof(index.name)
        if isinstance(kind, types.BaseTuple):
            kind = types.Tuple([_unsigned(axis) for axis in kind.types])
        else:
            kind = _unsigned(kind)
        return signature.replace(args=(array, kind, *value))


def _unsigned(index):
    """The type of an index on one axis, unsigned unless it is a constant below 0, or no integer."""
    constant = getattr(index, "literal_value", 0)
    negative = not isinstance(index, types.Integer) or constant < 0
    return types.unliteral(index) if negative else types.uintp


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(NativeLowering):
    """Numba's pass that emits a kernel, with entries of arrays as above."""

    _name = "lowering_of_kernels"

    @property
    def lowering_class(self):
        return _Lower
