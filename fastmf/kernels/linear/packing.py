"""Packed couplings of a model whose weights have changed, filled in where the old ones were.

Of weights W between two layers there are copies in panels of columns
(`fastmf.kernels.linear.product`) for products with either side: those of W, with the units below as
sources, and those of W', with the units above; and of their elementwise squares and cubes, as many
as are needed.
"""

from fastmf._jit.intrinsics import row, smaller, view
from fastmf._jit.kernel import kernel
from fastmf._jit.vectors import VECTOR_BYTES
from fastmf.kernels.linear.copies import copy, transpose_tile

# The columns of a table of copies: addresses of the packed couplings, squares and cubes, number of
# sources in all, and the first one that belongs to these weights.
N_COPIED, FIRST_SOURCE = 3, 4


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
