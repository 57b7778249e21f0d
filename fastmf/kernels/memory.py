"""Copies inside kernels, which take longer to compile as loops."""

from numba.core import cgutils, types

from fastmf._numba import emitted


def copy(source, target):
    """Copy as many entries of a one-dimensional array as the other has."""
    target[:] = source[: len(target)]


@emitted(copy)
def _copy(typing_context, source, target):
    def generate(context, builder, signature, values):
        old, new = (context.make_array(target)(context, builder, value) for value in values)
        size = context.get_abi_sizeof(context.get_data_type(target.dtype))
        n = builder.extract_value(new.shape, 0)
        cgutils.raw_memcpy(builder, new.data, old.data, n, size)
        return context.get_dummy_value()

    if not (source.dtype == target.dtype and source.layout == target.layout == "C"):
        raise TypeError("copy takes two contiguous arrays of one type")
    return types.void(source, target), generate


def set_to_zero(target):
    """Set all entries of a one-dimensional array to zero."""
    target[:] = 0


@emitted(set_to_zero)
def _set_to_zero(typing_context, target):
    def generate(context, builder, signature, values):
        array = context.make_array(target)(context, builder, values[0])
        size = context.get_abi_sizeof(context.get_data_type(target.dtype))
        n = builder.mul(
            builder.extract_value(array.shape, 0), context.get_constant(types.intp, size)
        )
        pointer = builder.bitcast(array.data, cgutils.voidptr_t)
        cgutils.memset(builder, pointer, n, 0)
        return context.get_dummy_value()

    if target.layout != "C":
        raise TypeError("set_to_zero takes a contiguous array")
    return types.void(target), generate
