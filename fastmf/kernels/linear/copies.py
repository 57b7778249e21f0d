"""Copies inside kernels, and packed copies of weights that have changed.

Copies and transposes of whole arrays take longer to compile, or to run, as loops.

Weights W between two layers have copies in panels of columns
(`fastmf.kernels.linear.product`) for products with either side: those of W, with the units below as
sources, and those of W', with the units above; and of their elementwise squares and cubes, as many
as are needed. They are filled in where the old ones were.
"""

from fastmf._jit.intrinsics import row, smaller, view
from fastmf._jit.kernel import emitted, kernel
from fastmf._jit.lazily import cgutils, types
from fastmf._jit.vectors import VECTOR_BYTES, Vectors, integer, loop

# The columns of a table of copies: addresses of the packed couplings, squares and cubes, number of
# sources in all, and the first one that belongs to these weights.
N_COPIED, FIRST_SOURCE = 3, 4


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


def add_multiple(factor, source, target):
    """Add a multiple of a one-dimensional array to another of its type and length."""
    target += factor * source


@emitted(add_multiple)
def _add_multiple(typing_context, factor, source, target):
    def generate(context, builder, signature, values):
        whole = Vectors(context, builder, target.dtype)
        single = Vectors(context, builder, target.dtype, target.dtype.bitwidth // 8)
        old, new = whole.array(source, values[1]), whole.array(target, values[2])
        n = builder.extract_value(new.shape, 0)
        n_whole = builder.and_(n, integer(-whole.n_lanes))
        for vectors, first, last in ((whole, integer(0), n_whole), (single, n_whole, n)):
            multiple = vectors.in_all_lanes(values[0])

            def add(k, _, vectors=vectors, multiple=multiple):
                product = builder.fmul(multiple, vectors.load(old.data, k))
                vectors.store(builder.fadd(vectors.load(new.data, k), product), new.data, k)

            loop(builder, first, last, integer(vectors.n_lanes), add)
        return context.get_dummy_value()

    if not (source == target and target.layout == "C" and factor == target.dtype):
        raise TypeError("add_multiple takes a number and two contiguous arrays of its type")
    return types.void(factor, source, target), generate


def transpose_tile(source, i, j, target, k, n):
    """Set target[j : j + n, k : k + n] to the transpose of source[i : i + n, j : j + n].

    The arrays are C-contiguous and of one type; `n` is `lanes_of` the type.
    """
    target[j : j + n, k : k + n] = source[i : i + n, j : j + n].T


@emitted(transpose_tile)
def _transpose_tile(typing_context, source, i, j, target, k, n):
    def generate(context, builder, signature, values):
        vectors = Vectors(context, builder, source.dtype)

        def places(array, first, column):
            width = builder.extract_value(array.shape, 1)
            entry = builder.add(builder.mul(first, width), column)
            for _ in range(vectors.n_lanes):
                yield entry
                entry = builder.add(entry, width)

        old, new = vectors.array(source, values[0]), vectors.array(target, values[3])
        rows = [vectors.load(old.data, place) for place in places(old, *values[1:3])]
        # Blocks of 1, 2, 4, ... entries beside the diagonal are exchanged in turn.
        size = 1
        while size < vectors.n_lanes:
            rows = _exchange_blocks(vectors, rows, size)
            size *= 2
        for row_, place in zip(rows, places(new, values[2], values[4]), strict=True):
            vectors.store(row_, new.data, place)
        return context.get_dummy_value()

    if not (source.dtype == target.dtype and source.layout == target.layout == "C"):
        raise TypeError("transpose_tile takes two contiguous arrays of one type")
    integers = [types.intp] * 4
    return types.void(source, *integers[:2], target, *integers[2:]), generate


def _exchange_blocks(vectors, rows, size):
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
            found[where] = vectors.shuffled(*pair, numbers)
    return found


@kernel(mode="merged")
def _multiply_rows(addresses, n_powers, first, n, weights):
    """Fill in `n` entries of squares and cubes, from the number `first` on."""
    offset = first * weights.itemsize
    couplings = view(addresses[0] + offset, (n,), weights)
    for power in range(1, n_powers):
        before = view(addresses[power - 1] + offset, (n,), weights)
        here = view(addresses[power] + offset, (n,), weights)
        for i in range(n):
            here[i] = couplings[i] * before[i]


@kernel(mode="merged")
def pack_panel(weights, width, copies, n_powers, panel):
    """Fill in what one panel of W' is a copy of, and the rows of W of the same units."""
    n_above, first = weights.shape[1], panel * width
    n_rows = smaller(width, weights.shape[0] - first)
    of_below, of_above = copies[0], copies[1]
    # Numbers of entries of the packed arrays.
    source = (of_below[FIRST_SOURCE] + first) * width
    # Where no product takes them there are none.
    for p in range(-(-n_above // width) if of_below[0] != 0 else 0):
        begin, n = p * of_below[N_COPIED] * width + source, smaller(width, n_above - p * width)
        for i in range(n_rows):
            address = of_below[0] + (begin + i * width) * weights.itemsize
            copy(row(weights, (first + i, p * width), n), view(address, (n,), weights))
        _multiply_rows(of_below, n_powers, begin, n_rows * width, weights)
    if of_above[0] == 0:
        return
    begin = (panel * of_above[N_COPIED] + of_above[FIRST_SOURCE]) * width
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
