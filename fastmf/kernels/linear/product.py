"""Products of a few rows with fixed couplings inside kernels, copies, and memory of threads.

BLAS packs its right operand again at every call, starts its own threads, and may round a row
differently if the number of rows changes. Here the couplings are packed once per solve, a tile of
rows times one panel of columns stays in registers, and an entry is always computed by the same
chain of fused multiply-adds, so that the result of a row does not depend on the other rows. A tile
is emitted as LLVM vectors (`fastmf._jit.vectors`).

Copies are loops, which compile faster than statements on whole arrays. Kernels make no arrays,
which would take a third of a second longer to compile: the threads that call a kernel share scratch
memory and a queue of tasks (`Work`).
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from fastmf._common.memory import LINE_BYTES, aligned
from fastmf._jit.argument_types import Strided, argument_types
from fastmf._jit.intrinsics import larger, smaller
from fastmf._jit.kernel import address_of, call, calls, emitted, kernel
from fastmf._jit.lazily import cgutils, ir, types
from fastmf._jit.library import LEVEL
from fastmf._jit.vectors import Vectors, integer, loop


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


class Work(NamedTuple):
    """Scratch memory and queue of a kernel."""

    # array, or NamedTuple of arrays, with the workers on the first axis. A worker whose number is
    # beyond that axis returns at once
    scratch: np.ndarray
    queue: np.ndarray  # int64 (2,): next task, next worker


def new_work(scratch):
    """Scratch memory with a new queue."""
    return Work(scratch, np.zeros(2, np.int64))


# Whether the processor has AVX-512 (32 registers of 64 bytes); if not, 16 registers of 32 bytes.
WIDE = LEVEL == "x86-64-v4"
VECTOR_BYTES = 64 if WIDE else 32
# A tile of rows x 3 vectors needs one register per accumulator, 3 for couplings and 1 for a state:
# with 4 rows all 16 registers of AVX2, with 8 rows most of the 32 registers of AVX-512.
TILE_VECTORS = 3
TILE_ROWS = 8 if WIDE else 4
# Rows of one task of a worker.
TASK_ROWS = 24
# Rows of a chunk of a panel (12 KiB), which stays in the first-level cache, with the next chunk and
# some rows of states, while all tiles are computed.
CHUNK_ROWS = 12 * 1024 // (TILE_VECTORS * VECTOR_BYTES)


def panel_width(dtype):
    """Return the number of columns in one panel of packed couplings."""
    return TILE_VECTORS * VECTOR_BYTES // np.dtype(dtype).itemsize


def pack(matrix):
    """Copy a matrix to panels of columns, the layout that `product` needs."""
    panels = empty_panels(*matrix.shape, matrix.dtype)
    fill_panels(matrix, panels)
    return panels


def empty_panels(n_rows, n_columns, dtype):
    """Return an empty packed matrix, (n_panels, n_rows, panel_width)."""
    width = panel_width(dtype)
    return aligned((-(-n_columns // width), n_rows, width), dtype)


def fill_panels(matrix, panels):
    """Set panels[p, k, c] to matrix[k, p * width + c], and the padding to 0."""
    for part, copied in panel_views(matrix, panels):
        copied[:] = part


def panel_views(matrix, panels):
    """Return pairs of views of a matrix and of its panels, after setting their padding to 0."""
    _, n_rows, width = panels.shape
    n_whole, n_rest = divmod(matrix.shape[1], width)
    full = matrix[:, : n_whole * width].reshape(n_rows, n_whole, width)
    views = [(full.swapaxes(0, 1), panels[:n_whole])]
    if n_rest:
        panels[n_whole, :, n_rest:] = 0
        views.append((matrix[:, n_whole * width :], panels[n_whole, :, :n_rest]))
    return views


@calls()
def product(address, states, n_rows, source, packed, out, n_columns):
    """Set the first `n_rows` rows of `out` to states[:, source:] times packed couplings."""
    call(address, (states, n_rows, source, packed, out, n_columns))


@cache
def product_address(dtype):
    """Return the address of the compiled product for a floating type."""
    arguments = Strided[2], int, int, Strided[3], Strided[2], int
    return address_of(_product, *argument_types(dtype, *arguments))


class _Position(NamedTuple):
    """Position of a tile, and the rows of the panel that it is multiplied by; LLVM integers.

    Columns of the panel from `skip` on go to columns of the result from `column + skip` on. Terms
    of rows `first` to `last` of the panel are added to the result, or replace it if `first` is 0.
    """

    row: object
    source: object
    panel: object
    skip: object
    first: object
    last: object
    column: object


def _tile(n_tile_rows):
    """Return a function that computes `n_tile_rows` rows of a product at a `_Position`.

    The rows are multiplied with a whole panel or, if `single`, with one vector of its columns.
    """

    def tile(states, packed, out, position, single):
        row, source, panel, skip, first, last, column = position
        rows, end = slice(row, row + n_tile_rows), packed.shape[2]
        end = skip + end // TILE_VECTORS if single else end
        couplings = packed[panel, first:last, skip:end]
        target = out[rows, column + skip : column + end]
        terms = states[rows, source + first : source + last] @ couplings
        target[...] = terms + target if first else terms

    @emitted(tile)
    def emit_tile(typing_context, states, packed, out, position, single):
        integers = types.UniTuple(types.intp, len(_Position.__annotations__))
        signature = types.void(states, packed, out, integers, types.boolean)

        def generate(context, builder, signature, arguments):
            position = _Position(*cgutils.unpack_tuple(builder, arguments[3]))
            with builder.if_else(arguments[4]) as branches:
                for n_vectors, branch in zip((1, TILE_VECTORS), branches, strict=True):
                    with branch:
                        emitter = _TileEmitter(context, builder, signature, arguments)
                        emitter.emit(n_tile_rows, n_vectors, position)
            return context.get_dummy_value()

        return signature, generate

    return tile


class _TileEmitter(Vectors):
    """Emits out[rows, columns] += states[rows, source:] @ panel[:, columns]."""

    def __init__(self, context, builder, signature, arguments):
        states_type, packed_type = signature.args[:2]
        number = packed_type.dtype
        super().__init__(context, builder, number, VECTOR_BYTES // (number.bitwidth // 8))
        self.states, self.packed, self.out = (
            context.make_array(type_)(context, builder, value)
            for type_, value in zip(signature.args[:3], arguments, strict=False)
        )
        self.state_row, self.out_row = self._stride(self.states, 0), self._stride(self.out, 0)
        contiguous = states_type.layout == "C"
        self.state_column = integer(1) if contiguous else self._stride(self.states, 1)
        self.panel_stride = self._stride(self.packed, 0)

    def _stride(self, array, axis):
        """Return the stride along an axis, counted in numbers."""
        n_bytes = self.builder.extract_value(array.strides, axis)
        return self.builder.sdiv(n_bytes, integer(self.item_bytes))

    def _sum_of_products(self, *pairs):
        total = integer(0)
        for x, y in pairs:
            total = self.builder.add(total, self.builder.mul(x, y))
        return total

    def emit(self, n_tile_rows, n_vectors, position):
        """Emit the tile; the position is a `_Position`."""
        builder, one = self.builder, integer(1)
        row, source, panel, skip, first, last, column = position
        corner = self._sum_of_products((row, self.state_row), (source, self.state_column))
        state_rows = [
            builder.gep(
                self.states.data, [builder.add(corner, builder.mul(integer(r), self.state_row))]
            )
            for r in range(n_tile_rows)
        ]
        couplings = self._sum_of_products((panel, self.panel_stride), (skip, one))
        couplings = builder.gep(self.packed.data, [couplings])
        target = self._sum_of_products((row, self.out_row), (column, one), (skip, one))
        target = builder.gep(self.out.data, [target])
        places = [
            self._sum_of_products((integer(r), self.out_row), (integer(v), one))
            for r in range(n_tile_rows)
            for v in range(0, n_vectors * self.n_lanes, self.n_lanes)
        ]
        # The sums begin from 0 in the first chunk of rows of the panel.
        is_first = builder.icmp_signed("==", first, integer(0))
        sums = [
            builder.select(is_first, ir.Constant(self.type, None), self.load(target, place))
            for place in places
        ]

        def add_terms(k, sums):
            return self._next_sums(sums, state_rows, couplings, k)

        sums = loop(builder, first, last, add_terms, sums)
        for total, place in zip(sums, places, strict=True):
            self.store(total, target, place)

    def _next_sums(self, sums, state_rows, couplings, k):
        """Return the sums with the terms of one k added, states[:, k] * couplings[k, :]."""
        builder, n_vectors = self.builder, len(sums) // len(state_rows)
        panel_row = builder.mul(k, integer(TILE_VECTORS * self.n_lanes))
        loaded = [
            self.load(couplings, builder.add(panel_row, integer(v * self.n_lanes)))
            for v in range(n_vectors)
        ]
        if len(state_rows) == TILE_ROWS:
            self._prefetch(builder.gep(couplings, [panel_row]), n_vectors * VECTOR_BYTES)
        column, new = builder.mul(k, self.state_column), []
        for r, state_row in enumerate(state_rows):
            state = builder.load(builder.gep(state_row, [column]))
            state = self.in_all_lanes(state)
            for v in range(n_vectors):
                new.append(self.fma(state, loaded[v], sums[r * n_vectors + v]))
        return new

    def _prefetch(self, pointer, n_bytes):
        """Prefetch the corresponding row of the next chunk into the first-level cache.

        Otherwise the first tile of a chunk would wait for memory. Panels are contiguous, so that
        the last chunk of a panel is followed by the first chunk of the next.
        """
        builder, byte = self.builder, ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), [byte, *[ir.IntType(32)] * 3])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", (byte,), function)
        options = [integer(option, 32) for option in (0, 3, 1)]  # to read, L1, data
        ahead = CHUNK_ROWS * TILE_VECTORS * self.n_lanes
        for line in range(0, n_bytes, LINE_BYTES):
            target = builder.gep(pointer, [integer(ahead + line // self.item_bytes)])
            builder.call(prefetch, [builder.bitcast(target, byte), *options])


_full_tile = _tile(TILE_ROWS)
_two_rows = _tile(2)
_one_row = _tile(1)


@kernel(mode="by_address")
def _product(states, n_rows, source, packed, out, n_columns):
    """Compute `product` tile by tile."""
    n_source, width = packed.shape[1:]
    lanes = width // TILE_VECTORS
    n_chunks = larger(1, -(-n_source // CHUNK_ROWS))
    for k in range(packed.shape[0] * n_chunks):
        panel, first = k // n_chunks, k % n_chunks * CHUNK_ROWS
        last, column = smaller(first + CHUNK_ROWS, n_source), panel * width
        # A panel that has a vector or more of padding is multiplied vector by vector.
        n_here = n_columns - column
        narrow = n_here <= width - lanes
        for skip in range(0, n_here if narrow else 1, lanes):
            row = 0
            while row + TILE_ROWS <= n_rows:
                position = (row, source, panel, skip, first, last, column)
                _full_tile(states, packed, out, position, narrow)
                row += TILE_ROWS
            while row + 2 <= n_rows:
                position = (row, source, panel, skip, first, last, column)
                _two_rows(states, packed, out, position, narrow)
                row += 2
            if row < n_rows:
                position = (row, source, panel, skip, first, last, column)
                _one_row(states, packed, out, position, narrow)
