"""Copies inside kernels, which take longer to compile, or to run, as loops."""

from llvmlite import ir
from numba.core import cgutils, types

from fastmf._jit.kernel import emitted
from fastmf.kernels.linear.product import VECTOR_BYTES


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


def transpose_tile(source, i, j, target, k, n):
    """Set target[j : j + n, k : k + n] to the transpose of source[i : i + n, j : j + n].

    The arrays are C-contiguous and of one type; `n` is `VECTOR_BYTES` divided by its size.
    """
    target[j : j + n, k : k + n] = source[i : i + n, j : j + n].T


@emitted(transpose_tile)
def _transpose_tile(typing_context, source, i, j, target, k, n):
    def generate(context, builder, signature, values):
        n_lanes = VECTOR_BYTES // (source.dtype.bitwidth // 8)
        vector = ir.VectorType(context.get_value_type(source.dtype), n_lanes)

        def pointers(type_, array, first, column):
            array = context.make_array(type_)(context, builder, array)
            width = builder.extract_value(array.shape, 1)
            entry = builder.add(builder.mul(first, width), column)
            for _ in range(n_lanes):
                pointer = builder.gep(array.data, [entry])
                yield builder.bitcast(pointer, vector.as_pointer())
                entry = builder.add(entry, width)

        rows = [builder.load(p) for p in pointers(source, *values[:3])]
        for row_ in rows:
            row_.align = VECTOR_BYTES // n_lanes
        # Blocks of 1, 2, 4, ... entries beside the diagonal are exchanged in turn.
        size = 1
        while size < n_lanes:
            rows = _exchange_blocks(builder, rows, size)
            size *= 2
        for row_, p in zip(rows, pointers(target, values[3], values[2], values[4]), strict=True):
            builder.store(row_, p).align = VECTOR_BYTES // n_lanes
        return context.get_dummy_value()

    if not (source.dtype == target.dtype and source.layout == target.layout == "C"):
        raise TypeError("transpose_tile takes two contiguous arrays of one type")
    integers = [types.intp] * 4
    return types.void(source, *integers[:2], target, *integers[2:]), generate


def _exchange_blocks(builder, rows, size):
    """Emit the exchange of blocks above and below the diagonals of blocks twice as large."""
    n, found = len(rows), list(rows)
    for r in range(n):
        if r & size:
            continue
        pair = rows[r], rows[r + size]
        # The entries of the second row of a pair are numbered from n on.
        upper = [c if not c & size else n + c - size for c in range(n)]
        lower = [c + size if not c & size else n + c for c in range(n)]
        for where, numbers in ((r, upper), (r + size, lower)):
            mask = ir.Constant(ir.VectorType(ir.IntType(32), n), numbers)
            found[where] = builder.shuffle_vector(*pair, mask)
    return found
