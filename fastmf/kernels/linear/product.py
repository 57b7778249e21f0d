"""Copies, memory of threads, and products of a few rows with fixed couplings, inside kernels.

BLAS packs its right operand again in each call, has its own threads, and rounds a row differently
depending on the number of rows. Here couplings are packed once per solve, a tile of rows times a
panel of columns stays in registers, and an entry is always the same chain of fused multiply-adds,
so that the result of a row does not depend on other rows. A tile is emitted as LLVM vectors because
LLVM does not keep the accumulators of nested loops in registers.

Copies by loops compile faster than statements on whole arrays. Kernels that allocate arrays take a
third of a second longer to compile: instead, threads that call a kernel at the same time receive
scratch memory and a queue of tasks (`Work`).
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

    # array, or NamedTuple of arrays, whose first axis is for workers. A worker beyond its length
    # returns at once
    scratch: np.ndarray
    queue: np.ndarray  # int64 (2,): next task, next worker


def new_work(scratch):
    """Combine scratch memory with a new queue."""
    return Work(scratch, np.zeros(2, np.int64))


# Whether the processor has AVX-512, with 32 registers of 64 bytes, or AVX2, with 16 of 32 bytes.
WIDE = LEVEL == "x86-64-v4"
VECTOR_BYTES = 64 if WIDE else 32
# A tile of rows x 3 vectors needs one register per accumulator, 3 for couplings and 1 for a state:
# all of AVX2's 16 registers with 4 rows, most of AVX-512's 32 with 8.
TILE_VECTORS = 3
TILE_ROWS = 8 if WIDE else 4
# Number of rows of one task of a worker.
TASK_ROWS = 24
# Number of rows of a panel (12 KiB) that stay in the first-level cache, together with the next ones
# and some rows of states, while all tiles are computed.
CHUNK_ROWS = 12 * 1024 // (TILE_VECTORS * VECTOR_BYTES)


def panel_width(dtype):
    """Return the number of columns in one panel of packed couplings."""
    return TILE_VECTORS * VECTOR_BYTES // np.dtype(dtype).itemsize


def pack(matrix):
    """Divide a matrix into panels of columns, for `product`."""
    panels = empty_panels(*matrix.shape, matrix.dtype)
    fill_panels(matrix, panels)
    return panels


def empty_panels(n_rows, n_columns, dtype):
    """Allocate a packed matrix, (n_panels, n_rows, panel_width)."""
    width = panel_width(dtype)
    return aligned((-(-n_columns // width), n_rows, width), dtype)


def fill_panels(matrix, panels):
    """Set panels[p, k, c] to matrix[k, p * width + c], and to 0 beyond the last column."""
    for part, copied in panel_views(matrix, panels):
        copied[:] = part


def panel_views(matrix, panels):
    """Return pairs of views of a matrix and of the panels of its columns; set padding to 0."""
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
    """Address of the compiled product of matrices of a type."""
    arguments = Strided[2], int, int, Strided[3], Strided[2], int
    return address_of(_product, *argument_types(dtype, *arguments))


class _Position(NamedTuple):
    """Position of a tile, and of the rows of the panel that multiply it; LLVM integers.

    Columns `skip`, ... of the panel give columns `column + skip`, ... of the result. Products with
    rows `first` to `last` of the panel are added, to zeros if `first` is 0.
    """

    row: object
    source: object
    panel: object
    skip: object
    first: object
    last: object
    column: object


def _tile(n_tile_rows):
    """Make the function for `n_tile_rows` rows of a product at a `_Position`.

    The rows are multiplied by a whole panel, or by a single vector of it.
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


def _integer(value, n_bits=64):
    """Return an integer constant of LLVM."""
    return ir.Constant(ir.IntType(n_bits), value)


def _loop(builder, first, last, body, values):
    """Emit `for k in range(first, last): values = body(k, values)`; values stay in registers."""
    before = builder.basic_block
    head, inside, end = (builder.append_basic_block(f"loop.{x}") for x in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    phis = [builder.phi(start.type) for start in (first, *values)]
    for phi, start in zip(phis, (first, *values), strict=True):
        phi.add_incoming(start, before)
    k, *values = phis
    builder.cbranch(builder.icmp_signed("<", k, last), inside, end)

    builder.position_at_end(inside)
    new = body(k, values)
    for phi, value in zip(phis, (builder.add(k, _integer(1)), *new), strict=True):
        phi.add_incoming(value, builder.basic_block)
    builder.branch(head)
    builder.position_at_end(end)
    return values


class _TileEmitter:
    """Emits out[rows, columns] += states[rows, source:] @ panel[:, columns]."""

    def __init__(self, context, builder, signature, arguments):
        states_type, packed_type = signature.args[:2]
        self.builder, number = builder, packed_type.dtype
        self.item_bytes = number.bitwidth // 8
        self.n_lanes = VECTOR_BYTES // self.item_bytes
        self.type = ir.VectorType(context.get_value_type(number), self.n_lanes)
        self.states, self.packed, self.out = (
            context.make_array(type_)(context, builder, value)
            for type_, value in zip(signature.args[:3], arguments, strict=False)
        )
        self.state_row, self.out_row = self._stride(self.states, 0), self._stride(self.out, 0)
        contiguous = states_type.layout == "C"
        self.state_column = _integer(1) if contiguous else self._stride(self.states, 1)
        self.panel_stride = self._stride(self.packed, 0)

    def _stride(self, array, axis):
        """Return the stride along an axis, in numbers."""
        n_bytes = self.builder.extract_value(array.strides, axis)
        return self.builder.sdiv(n_bytes, _integer(self.item_bytes))

    def _pointer(self, data, offset):
        """Return a pointer to the vector at an offset in numbers."""
        pointer = self.builder.gep(data, [offset])
        return self.builder.bitcast(pointer, self.type.as_pointer())

    def _load(self, data, offset):
        """Load the vector at an offset."""
        value = self.builder.load(self._pointer(data, offset))
        value.align = self.item_bytes
        return value

    def _in_all_lanes(self, number):
        """Broadcast a number to a vector."""
        undefined = ir.Constant(self.type, ir.Undefined)
        lane = self.builder.insert_element(undefined, number, _integer(0, 32))
        first = ir.Constant(ir.VectorType(ir.IntType(32), self.n_lanes), None)
        return self.builder.shuffle_vector(lane, undefined, first)

    def _fma(self, x, y, z):
        """Emit x * y + z, rounded once."""
        name = f"llvm.fma.v{self.n_lanes}f{8 * self.item_bytes}"
        function = ir.FunctionType(self.type, [self.type] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, function, name)
        return self.builder.call(function, [x, y, z])

    def _sum_of_products(self, *pairs):
        total = _integer(0)
        for x, y in pairs:
            total = self.builder.add(total, self.builder.mul(x, y))
        return total

    def emit(self, n_tile_rows, n_vectors, position):
        """Emit the tile; the position is a `_Position`."""
        builder, one = self.builder, _integer(1)
        row, source, panel, skip, first, last, column = position
        corner = self._sum_of_products((row, self.state_row), (source, self.state_column))
        state_rows = [
            builder.gep(
                self.states.data, [builder.add(corner, builder.mul(_integer(r), self.state_row))]
            )
            for r in range(n_tile_rows)
        ]
        couplings = self._sum_of_products((panel, self.panel_stride), (skip, one))
        couplings = builder.gep(self.packed.data, [couplings])
        target = self._sum_of_products((row, self.out_row), (column, one), (skip, one))
        target = builder.gep(self.out.data, [target])
        places = [
            self._sum_of_products((_integer(r), self.out_row), (_integer(v), one))
            for r in range(n_tile_rows)
            for v in range(0, n_vectors * self.n_lanes, self.n_lanes)
        ]
        # Sums begin at 0 in the first chunk of rows of the panel.
        is_first = builder.icmp_signed("==", first, _integer(0))
        sums = [
            builder.select(is_first, ir.Constant(self.type, None), self._load(target, place))
            for place in places
        ]

        def add_terms(k, sums):
            return self._next_sums(sums, state_rows, couplings, k)

        sums = _loop(builder, first, last, add_terms, sums)
        for total, place in zip(sums, places, strict=True):
            builder.store(total, self._pointer(target, place)).align = self.item_bytes

    def _next_sums(self, sums, state_rows, couplings, k):
        """Add the terms of one k, states[:, k] * couplings[k, :], to the sums."""
        builder, n_vectors = self.builder, len(sums) // len(state_rows)
        panel_row = builder.mul(k, _integer(TILE_VECTORS * self.n_lanes))
        loaded = [
            self._load(couplings, builder.add(panel_row, _integer(v * self.n_lanes)))
            for v in range(n_vectors)
        ]
        if len(state_rows) == TILE_ROWS:
            self._prefetch(builder.gep(couplings, [panel_row]), n_vectors * VECTOR_BYTES)
        column, new = builder.mul(k, self.state_column), []
        for r, state_row in enumerate(state_rows):
            state = builder.load(builder.gep(state_row, [column]))
            state = self._in_all_lanes(state)
            for v in range(n_vectors):
                new.append(self._fma(state, loaded[v], sums[r * n_vectors + v]))
        return new

    def _prefetch(self, pointer, n_bytes):
        """Prefetch the same place of the next chunk of rows into the first-level cache.

        Otherwise the first tile of a chunk would wait for it. Panels are contiguous in memory, so
        that the last chunk of a panel is followed by the first chunk of the next one.
        """
        builder, byte = self.builder, ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), [byte, *[ir.IntType(32)] * 3])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", (byte,), function)
        options = [_integer(option, 32) for option in (0, 3, 1)]  # to read, L1, data
        ahead = CHUNK_ROWS * TILE_VECTORS * self.n_lanes
        for line in range(0, n_bytes, LINE_BYTES):
            here = builder.gep(pointer, [_integer(ahead + line // self.item_bytes)])
            builder.call(prefetch, [builder.bitcast(here, byte), *options])


_full_tile = _tile(TILE_ROWS)
_two_rows = _tile(2)
_one_row = _tile(1)


@kernel(mode="by_address")
def _product(states, n_rows, source, packed, out, n_columns):
    """`product`, tile by tile."""
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
