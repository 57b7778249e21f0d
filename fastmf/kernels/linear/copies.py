"""Copies inside kernels.

Copies and transposes of whole arrays take longer to compile, or to run, as loops.
"""

from fastmf._jit.kernel import emitted, kernel
from fastmf._jit.lazily import types
from fastmf._jit.vectors import Vectors


@kernel(mode="merged")
def copy(source, target):
    """Fill a one-dimensional array with the first entries of another."""
    for k in range(target.shape[0]):
        target[k] = source[k]


@kernel(mode="merged")
def set_to_zero(target):
    """Set all entries of a one-dimensional array to zero."""
    for k in range(target.shape[0]):
        target[k] = 0


@kernel(mode="merged")
def add_multiple(factor, source, target):
    """Add a multiple of a one-dimensional array to another of its type and length."""
    for k in range(target.shape[0]):
        target[k] += factor * source[k]


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
    n, exchanged = len(rows), list(rows)
    for r in range(n):
        if r & size:
            continue
        pair = rows[r], rows[r + size]
        # The entries of the second row of a pair are numbered from n on.
        upper = [c if not c & size else n + c - size for c in range(n)]
        lower = [c + size if not c & size else n + c for c in range(n)]
        for where, numbers in ((r, upper), (r + size, lower)):
            exchanged[where] = vectors.shuffled(*pair, numbers)
    return exchanged
