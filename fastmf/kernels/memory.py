"""Copies inside kernels, which take longer to compile as loops."""

from llvmlite import ir
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


def transpose(source, first, n_columns, target):
    """Write the rows `first`, `first` + 1, ... of an array as columns of another one.

    Parameters
    ----------
    source, target : C-contiguous arrays of two dimensions
        The target has a multiple of four columns, as many as rows are written.
    first, n_columns : int
        First row, and number of columns of the source, which become rows.
    """
    target[:n_columns] = source[first : first + target.shape[1], :n_columns].T


@emitted(transpose)
def _transpose(typing_context, source, first, n_columns, target):
    """Blocks of four by four stay in registers; entry by entry it takes three times as long."""

    def generate(context, builder, signature, values):
        arrays = [
            context.make_array(type_)(context, builder, values[k])
            for k, type_ in ((0, source), (3, target))
        ]
        rows, columns = (cgutils.unpack_tuple(builder, array.shape, 2)[1] for array in arrays)
        given = builder.gep(arrays[0].data, [builder.mul(values[1], rows)])
        four, zero = ir.Constant(cgutils.intp_t, 4), ir.Constant(cgutils.intp_t, 0)
        whole = builder.and_(values[2], ir.Constant(cgutils.intp_t, -4))
        with cgutils.for_range_slice(builder, zero, columns, four) as (c, _):
            from_row = builder.gep(given, [builder.mul(c, rows)])
            to_column = builder.gep(arrays[1].data, [c])
            for begin, end, width in ((zero, whole, 4), (whole, values[2], 1)):
                step = ir.Constant(cgutils.intp_t, width)
                with cgutils.for_range_slice(builder, begin, end, step) as (k, _):
                    strides = rows, columns
                    here = builder.gep(from_row, [k])
                    there = builder.gep(to_column, [builder.mul(k, columns)])
                    _transpose_four_rows(builder, here, there, strides, width)
        return context.get_dummy_value()

    if not (source.dtype == target.dtype and source.layout == target.layout == "C"):
        raise TypeError("transpose takes two contiguous arrays of one type")
    return types.void(source, types.intp, types.intp, target), generate


def _transpose_four_rows(builder, source, target, strides, width):
    """Emit target[k, :4] = source[:4, k] for `width` (1 or 4) k."""
    number = source.type.pointee
    kind = ir.VectorType(number, 4)
    rows = []
    for r in range(4):
        pointer = builder.gep(source, [builder.mul(ir.Constant(cgutils.intp_t, r), strides[0])])
        rows.append(_load(builder, pointer, kind if width == 4 else number))
    if width == 1:
        for r, value in enumerate(rows):
            pointer = builder.gep(target, [ir.Constant(cgutils.intp_t, r)])
            builder.store(value, pointer)
        return

    def mixed(x, y, *lanes):
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 4), list(lanes))
        return builder.shuffle_vector(x, y, mask)

    even = [mixed(*rows[r : r + 2], 0, 4, 2, 6) for r in (0, 2)]
    odd = [mixed(*rows[r : r + 2], 1, 5, 3, 7) for r in (0, 2)]
    columns = [
        mixed(*pair, *lanes) for lanes in ((0, 1, 4, 5), (2, 3, 6, 7)) for pair in (even, odd)
    ]
    for k, column in enumerate(columns):
        pointer = builder.gep(target, [builder.mul(ir.Constant(cgutils.intp_t, k), strides[1])])
        pointer = builder.bitcast(pointer, kind.as_pointer())
        builder.store(column, pointer).align = _alignment(number)


def _load(builder, pointer, kind):
    value = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    value.align = _alignment(pointer.type.pointee)
    return value


def _alignment(number):
    return 4 if isinstance(number, ir.FloatType) else 8
