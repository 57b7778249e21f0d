"""Packed couplings of a model whose weights have changed, filled in where the old ones were.

Of weights W between two layers there are copies in panels of columns (`fastmf.kernels.product`) for
products with either side: those of W, with the units below as sources, and those of W', with the
units above; and of their elementwise squares and cubes, as many as are needed.
"""

from llvmlite import ir
from numba.core import types

from fastmf._numba import emitted, kernel, row, smaller, view
from fastmf.kernels.memory import copy
from fastmf.kernels.product import VECTOR_BYTES

# The columns of a table of copies: addresses of the packed couplings, squares and cubes, number of
# sources in all, and the first one that belongs to these weights.
N_SOURCE, FIRST_SOURCE = 3, 4


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


@kernel(merged=True)
def _multiply_rows(addresses, n_powers, first, n, weights):
    """Fill in `n` entries of squares and cubes, from the number `first` on."""
    offset = first * weights.itemsize
    couplings = view(addresses[0] + offset, (n,), weights)
    for power in range(1, n_powers):
        before = view(addresses[power - 1] + offset, (n,), weights)
        here = view(addresses[power] + offset, (n,), weights)
        for i in range(n):
            here[i] = couplings[i] * before[i]


@kernel(merged=True)
def pack_panel(weights, width, copies, n_powers, panel):
    """Fill in what one panel of W' is a copy of, and the rows of W of the same units."""
    n_above, first = weights.shape[1], panel * width
    n_rows = smaller(width, weights.shape[0] - first)
    of_below, of_above = copies[0], copies[1]
    # Numbers of entries of the packed arrays.
    source = (of_below[FIRST_SOURCE] + first) * width
    # Where no product takes them there are none.
    for p in range(-(-n_above // width) if of_below[0] != 0 else 0):
        begin, n = p * of_below[N_SOURCE] * width + source, smaller(width, n_above - p * width)
        for i in range(n_rows):
            address = of_below[0] + (begin + i * width) * weights.itemsize
            copy(row(weights, (first + i, p * width), n), view(address, (n,), weights))
        _multiply_rows(of_below, n_powers, begin, n_rows * width, weights)
    begin = (panel * of_above[N_SOURCE] + of_above[FIRST_SOURCE]) * width
    packed = view(of_above[0] + begin * weights.itemsize, (n_above, width), weights)
    lanes = VECTOR_BYTES // weights.itemsize
    n_tiled = n_above // lanes * lanes if n_rows == width else 0
    for j in range(0, n_tiled, lanes):
        for i in range(0, n_rows, lanes):
            transpose_tile(weights, first + i, j, packed, i, lanes)
    for j in range(n_tiled, n_above):
        for i in range(n_rows):
            packed[j, i] = weights[first + i, j]
    _multiply_rows(of_above, n_powers, begin, n_above * width, weights)
