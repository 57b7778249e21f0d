"""Entries of arrays in kernels whose indices are not negative, as they are emitted.

Numba copies the structure of an array, shape and strides included, for each entry that is read or
written, and counts a negative index from the end of its axis. In kernels compiled with
`negative=False` an index is negative only if it is a constant: for the others nothing is tested,
and no more of the structure is loaded than the entry needs. That saved patterns of blocks a quarter
of their time; the sequential schedule of `tap` took a tenth longer, so that it is not for all
kernels.
"""

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering


class _Lower(Lower):
    def lower_getitem(self, resty, expr, value, index, signature):
        array, pointer = self.typeof(value.name), self._entry(value.name, index.name)
        if pointer is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        item = self.context.unpack_value(self.builder, array.dtype, pointer)
        return self.context.cast(self.builder, item, array.dtype, resty)

    def lower_setitem(self, target_var, index_var, value_var, signature):
        array, pointer = self.typeof(target_var.name), self._entry(target_var.name, index_var.name)
        if pointer is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        value = self.loadvar(value_var.name), self.typeof(value_var.name)
        item = self.context.cast(self.builder, *value, array.dtype)
        return self.context.pack_value(self.builder, array.dtype, item, pointer)

    def _entry(self, name, index):
        """Pointer to the entry of a variable; None unless it is an array, and indices integers."""
        array, kinds = self.typeof(name), self.typeof(index)
        kinds = kinds.types if isinstance(kinds, types.BaseTuple) else (kinds,)
        if not (isinstance(array, types.Array) and array.aligned and array.ndim == len(kinds)):
            return None
        if self.context.enable_boundscheck or not all(
            isinstance(kind, types.Integer) for kind in kinds
        ):
            return None
        builder, field = self.builder, self._field_of(name, array)
        given = self.loadvar(index)
        if isinstance(self.typeof(index), types.BaseTuple):
            given = cgutils.unpack_tuple(builder, given)
        else:
            given = [given]
        indices = []
        for axis, (position, kind) in enumerate(zip(given, kinds, strict=True)):
            position = self.context.cast(builder, position, kind, types.intp)
            known = getattr(kind, "literal_value", getattr(position, "constant", 0))
            if known < 0:
                position = builder.add(field("shape", axis), position)
            indices.append(position)
        if array.layout != "C":
            offset = ir.Constant(cgutils.intp_t, 0)
            for axis, position in enumerate(indices):
                offset = builder.add(offset, builder.mul(field("strides", axis), position))
            return cgutils.pointer_add(builder, field("data"), offset)
        position = indices[0]
        for axis in range(1, array.ndim):
            position = builder.add(builder.mul(position, field("shape", axis)), indices[axis])
        return builder.gep(field("data"), [position])

    def _field_of(self, name, array):
        """Function that emits a field of an array's structure, or one number of it."""
        builder, model = self.builder, self.context.data_model_manager[array]

        def field(what, *axis):
            path = model.get_field_position(what), *axis
            if name in self._blk_local_varmap and not self._disable_sroa_like_opt:
                return builder.extract_value(self._blk_local_varmap[name], path)
            places = [ir.Constant(ir.IntType(32), place) for place in (0, *path)]
            return builder.load(builder.gep(self.getvar(name), places, inbounds=True))

        return field


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(NativeLowering):
    """Numba's pass that emits a kernel, with entries of arrays as above."""

    _name = "lowering_of_kernels"

    @property
    def lowering_class(self):
        return _Lower
