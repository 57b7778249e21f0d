"""How the instructions of a kernel are emitted.

Variables: Numba counts references to arrays. It reads the old value of a variable before it stores
a new one, and sets variables to zero where a function begins and where they end. In kernels without
counts nobody looks at that, and an argument that holds many arrays is copied each time.

Entries of arrays are read from the values at hand, not by way of a copy of the array in memory, and
the types of an index are not inferred again. Both together leave 5,200 instructions of the 7,600 of
`tap`, and a tenth less to compile.

Numba counts a negative index from the end of its axis, and tests each one. In kernels compiled with
`negative=False` an index is negative only if it is a constant. That saves patterns of blocks of 3
to 12 units 0.11 to 0.29 of their time; the sequential schedule of `tap` took a tenth longer, so
that it is not for all kernels.

Kernels whose time is that of what they call are emitted for short machine code (`short=True`): LLVM
leaves their few loops as they are, and a first call of `tap` takes 0.94 of the CPU time.
"""

from numba.core import cgutils, types
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering
from numba.cpython.slicing import fix_index
from numba.np.arrayobj import load_item, store_item

from fastmf._jit.arrays import field, pointer_to_entry


class _Lower(Lower):
    # A Numba that does not ask these methods emits kernels that are as right.

    negative = True  # whether an index that is no constant may be negative

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

    def lower_getitem(self, resty, expr, value, index, signature):
        pointer = self._pointer(value.name, index.name)
        if pointer is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        array = self.typeof(value.name)
        number = load_item(self.context, self.builder, array, pointer)
        return self.context.cast(self.builder, number, array.dtype, resty)

    def lower_setitem(self, target_var, index_var, value_var, signature):
        kind = self.typeof(value_var.name)
        pointer = self._pointer(target_var.name, index_var.name) if _is_number(kind) else None
        if pointer is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        array = self.typeof(target_var.name)
        number = self.loadvar(value_var.name)
        number = self.context.cast(self.builder, number, kind, array.dtype)
        return store_item(self.context, self.builder, array, number, pointer)

    def _pointer(self, array, index):
        """Pointer to an entry of an array of numbers; None if the index is of another kind."""
        type_, kind = self.typeof(array), self.typeof(index)
        kinds = kind.types if isinstance(kind, types.BaseTuple) else (kind,)
        of_numbers = type(type_) is types.Array and _is_number(type_.dtype)
        whole = of_numbers and len(kinds) == type_.ndim
        if not whole or self.context.enable_boundscheck or not all(map(_is_integer, kinds)):
            return None
        builder, values = self.builder, self.loadvar(index)
        values = cgutils.unpack_tuple(builder, values) if kinds != (kind,) else [values]
        value = self.loadvar(array)
        sizes = field(self.context, builder, type_, value, "shape")
        indices = [self._index(*item) for item in zip(values, kinds, sizes, strict=True)]
        return pointer_to_entry(self.context, builder, type_, value, indices)

    def _index(self, value, kind, size):
        """An index on one axis, counted from the beginning of the axis."""
        constant = getattr(kind, "literal_value", None)
        value = self.context.cast(self.builder, value, types.unliteral(kind), types.intp)
        if constant is None and self.negative and kind.signed:
            return fix_index(self.builder, value, size)
        return self.builder.add(size, value) if constant is not None and constant < 0 else value


class _LowerEntries(_Lower):
    negative = False


class _LowerShort(_Lower):
    def lower_function_body(self):
        self.function.attributes.add("optsize")
        return super().lower_function_body()


def _is_number(kind):
    return isinstance(kind, (types.Number, types.Boolean))


def _is_integer(kind):
    return isinstance(kind, types.Integer)


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(NativeLowering):
    """Numba's pass that emits a kernel, without what serves counts of references."""

    _name = "lowering_of_kernels"
    lowering_class = _Lower


@register_pass(mutates_CFG=True, analysis_only=False)
class LoweringOfEntries(NativeLowering):
    """The same, for indices that are not negative."""

    _name = "lowering_of_entries"
    lowering_class = _LowerEntries


@register_pass(mutates_CFG=True, analysis_only=False)
class ShortLowering(NativeLowering):
    """The same, for short machine code."""

    _name = "short_lowering"
    lowering_class = _LowerShort
