"""Matrix products of a few rows with fixed couplings, inside kernels.

BLAS packs its right operand again at every call, has threads of its own, and rounds a row
differently with the number of rows beside it. Here the couplings are packed once per solve; a tile
of rows times one panel of columns stays in registers; and an entry is always the same chain of
fused multiply-adds, so that a row's result does not depend on which rows are with it. A tile is
emitted as LLVM vectors because LLVM keeps the accumulators of no loop nest in registers.
"""

import math
from functools import cache
from typing import NamedTuple

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fastmf._jit.intrinsics import in_all_lanes, larger, smaller
from fastmf._jit.kernel import address_of, call, calls, kernel
from fastmf._threads.interrupts import next_task

# A tile of rows x 3 vectors needs one register per accumulator, 3 for couplings and 1 for a state:
# all of AVX2's 16 registers with 4 rows, most of AVX-512's 32 with 8.
_WIDE = bool(llvmlite.binding.get_host_cpu_features().get("avx512f", False))
VECTOR_BYTES = 64 if _WIDE else 32
TILE_VECTORS = 3
TILE_ROWS = 8 if _WIDE else 4
LINE_BYTES = 64
# Rows of one task of a worker.
TASK_ROWS = 24
# Rows of a panel (12 KiB) that stay in the first-level cache, beside the next ones and some rows of
# states, while all tiles are computed.
CHUNK_ROWS = 12 * 1024 // (TILE_VECTORS * VECTOR_BYTES)


def panel_width(dtype):
    """Number of columns in one panel of packed couplings."""
    return TILE_VECTORS * VECTOR_BYTES // np.dtype(dtype).itemsize


def pack(matrix):
    """Divide a matrix into panels of columns, as `product` needs it.

    Parameters
    ----------
    matrix : array of shape (n_rows, n_columns)

    Returns
    -------
    array of shape (n_panels, n_rows, panel_width)
        The last panel is padded with zeros.
    """
    panels = empty_panels(*matrix.shape, matrix.dtype)
    fill_panels(matrix, panels)
    return panels


def empty_panels(n_rows, n_columns, dtype):
    """An empty packed matrix, (n_panels, n_rows, panel_width), aligned to vectors.

    A vector that lies across two cache lines takes twice as long to load.
    """
    width = panel_width(dtype)
    shape = -(-n_columns // width), n_rows, width
    memory = np.empty(math.prod(shape) * np.dtype(dtype).itemsize + VECTOR_BYTES, np.uint8)
    start = -memory.ctypes.data % VECTOR_BYTES
    return memory[start : start + memory.size - VECTOR_BYTES].view(dtype).reshape(shape)


def fill_panels(matrix, panels):
    """Set panels[p, k, c] to matrix[k, p * width + c], and to 0 where there is none."""
    _, n_rows, width = panels.shape
    n_whole, rest = divmod(matrix.shape[1], width)
    whole = matrix[:, : n_whole * width].reshape(n_rows, n_whole, width)
    panels[:n_whole] = whole.swapaxes(0, 1)
    if rest:
        panels[n_whole, :, :rest] = matrix[:, n_whole * width :]
        panels[n_whole, :, rest:] = 0


@calls()
def product(address, states, n_rows, source, packed, out, n_columns):
    """Set the first `n_rows` rows of `out` to those of states[:, source:] times packed couplings.

    Parameters
    ----------
    address : int
        Of the compiled product: see `product_address`.
    states : array of shape (n_states, n_units)
    n_rows, source : int
    packed : array of shape (n_panels, n_source, panel_width)
    out : array of shape (n_states, n_panels * panel_width)
        Filled; whole vectors of padding, from column `n_columns` on, are left out.
    n_columns : int
        Columns of the couplings.
    """
    call(address, (states, n_rows, source, packed, out, n_columns))


@cache
def product_address(dtype):
    """Address of the compiled product of matrices of a type."""
    matrix, panels = (types.Array(numba.from_dtype(np.dtype(dtype)), n, "A") for n in (2, 3))
    integer = types.int64
    return address_of(_product, matrix, integer, integer, panels, matrix, integer)


class _Position(NamedTuple):
    """Where a tile is, and which rows of the panel it is multiplied by; LLVM integers.

    Columns `skip`, ... of the panel go to columns `column + skip`, ... of the result. Rows `first`
    to `last` of the panel are added, to zeros if `first` is 0.
    """

    row: object
    source: object
    panel: object
    skip: object
    first: object
    last: object
    column: object


def _tile(n_tile_rows):
    """Intrinsic for `n_tile_rows` rows of a product, as `_Position` says.

    They are multiplied with a whole panel, or with a single vector of it.
    """

    @intrinsic
    def tile(typing_context, states, packed, out, position, single):
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


class _TileEmitter:
    """Emits out[rows, columns] += states[rows, source:] @ panel[:, columns] in LLVM vectors."""

    def __init__(self, context, builder, signature, arguments):
        self.builder, self.n_bytes = builder, signature.args[1].dtype.bitwidth // 8
        states_type, packed_type = signature.args[:2]
        self.states, self.packed, self.out = (
            context.make_array(type_)(context, builder, value)
            for type_, value in zip(signature.args[:3], arguments, strict=False)
        )
        self.n_lanes = VECTOR_BYTES // self.n_bytes
        self.vector = ir.VectorType(context.get_value_type(packed_type.dtype), self.n_lanes)
        self.state_row, self.out_row = self._stride(self.states, 0), self._stride(self.out, 0)
        contiguous = states_type.layout == "C"
        self.state_column = self._number(1) if contiguous else self._stride(self.states, 1)
        self.panel_stride = self._stride(self.packed, 0)
        suffix = f"v{self.n_lanes}f{packed_type.dtype.bitwidth}"
        self.fma = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(self.vector, [self.vector] * 3),
            f"llvm.fma.{suffix}",
        )

    def _number(self, value):
        return ir.Constant(ir.IntType(64), value)

    def _stride(self, array, axis):
        """Stride in elements."""
        return self.builder.sdiv(
            self.builder.extract_value(array.strides, axis), self._number(self.n_bytes)
        )

    def _sum_of_products(self, *pairs):
        total = self._number(0)
        for x, y in pairs:
            total = self.builder.add(total, self.builder.mul(x, y))
        return total

    def _vector_at(self, pointer, offset):
        pointer = self.builder.gep(pointer, [offset])
        return self.builder.bitcast(pointer, self.vector.as_pointer())

    def _load(self, pointer):
        value = self.builder.load(pointer)
        value.align = self.n_bytes
        return value

    def emit(self, n_tile_rows, n_vectors, position):
        """Emit the tile; the position is a `_Position`."""
        builder, one = self.builder, self._number(1)
        row, source, panel, skip, first, last, column = position
        corner = self._sum_of_products((row, self.state_row), (source, self.state_column))
        state_rows = [
            builder.gep(
                self.states.data,
                [builder.add(corner, builder.mul(self._number(r), self.state_row))],
            )
            for r in range(n_tile_rows)
        ]
        couplings = self._sum_of_products((panel, self.panel_stride), (skip, one))
        couplings = builder.gep(self.packed.data, [couplings])
        target = self._sum_of_products((row, self.out_row), (column, one), (skip, one))
        target = builder.gep(self.out.data, [target])
        pointers = [
            self._vector_at(
                target,
                self._sum_of_products((self._number(r), self.out_row), (self._number(v), one)),
            )
            for r in range(n_tile_rows)
            for v in range(0, n_vectors * self.n_lanes, self.n_lanes)
        ]
        # The sums begin from 0 in the first chunk of rows of the panel.
        is_first = builder.icmp_signed("==", first, self._number(0))
        zeros = ir.Constant(self.vector, None)
        sums = [builder.select(is_first, zeros, self._load(p)) for p in pointers]
        sums = self._emit_loop(sums, state_rows, couplings, first, last)
        for total, pointer in zip(sums, pointers, strict=True):
            builder.store(total, pointer).align = self.n_bytes

    def _emit_loop(self, starts, state_rows, couplings, first, last):
        """for k in range(first, last): sums += states[:, k] * couplings[k, :]."""
        builder, before = self.builder, self.builder.basic_block
        head, body, end = (
            builder.append_basic_block(f"tile.{name}") for name in ("head", "body", "end")
        )
        builder.branch(head)

        builder.position_at_end(head)
        k = builder.phi(first.type)
        k.add_incoming(first, before)
        sums = [builder.phi(self.vector) for _ in starts]
        for total, start in zip(sums, starts, strict=True):
            total.add_incoming(start, before)
        builder.cbranch(builder.icmp_signed("<", k, last), body, end)

        builder.position_at_end(body)
        for total, new in zip(sums, self._next_sums(sums, state_rows, couplings, k), strict=True):
            total.add_incoming(new, builder.basic_block)
        k.add_incoming(builder.add(k, self._number(1)), builder.basic_block)
        builder.branch(head)

        builder.position_at_end(end)
        return sums

    def _next_sums(self, sums, state_rows, couplings, k):
        """The sums with the terms of one k."""
        builder, n_vectors = self.builder, len(sums) // len(state_rows)
        panel_row = builder.mul(k, self._number(TILE_VECTORS * self.n_lanes))
        loaded = []
        for v in range(n_vectors):
            offset = builder.add(panel_row, self._number(v * self.n_lanes))
            loaded.append(self._load(self._vector_at(couplings, offset)))
        new = []
        if len(state_rows) == TILE_ROWS:
            self._prefetch(builder.gep(couplings, [panel_row]), n_vectors * VECTOR_BYTES)
        column = builder.mul(k, self.state_column)
        for r, state_row in enumerate(state_rows):
            state = builder.load(builder.gep(state_row, [column]))
            state = in_all_lanes(builder, state, self.n_lanes)
            for v in range(n_vectors):
                arguments = [state, loaded[v], sums[r * n_vectors + v]]
                new.append(builder.call(self.fma, arguments))
        return new

    def _prefetch(self, pointer, n_bytes):
        """Load into the first-level cache what the next chunk of rows has in this place.

        The first tile of a chunk would wait for it otherwise. Panels follow one another in memory,
        so that after the last chunk of one comes the first of the next.
        """
        builder, integer, byte = self.builder, ir.IntType(32), ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), [byte, integer, integer, integer])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", (byte,), function)
        options = [ir.Constant(integer, option) for option in (0, 3, 1)]  # to read, L1, data
        ahead = CHUNK_ROWS * TILE_VECTORS * self.n_lanes
        for line in range(0, n_bytes, LINE_BYTES):
            here = builder.gep(pointer, [self._number(ahead + line // self.n_bytes)])
            builder.call(prefetch, [builder.bitcast(here, byte), *options])


_full_tile = _tile(TILE_ROWS)
_two_rows = _tile(2)
_one_row = _tile(1)


def _multiply(states, n_rows, source, packed, out, n_columns):
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


def _multiply_in_numpy(states, n_rows, source, packed, out, n_columns):
    n_panels, n_source, width = packed.shape
    rows = states[:n_rows, source : source + n_source]
    for panel in range(n_panels):
        column = panel * width
        n_here = min(width, n_columns - column)
        out[:n_rows, column : column + n_here] = rows @ packed[panel, :, :n_here]


_product = kernel(_multiply_in_numpy if numba.config.DISABLE_JIT else _multiply, by_address=True)


@kernel(views=True)
def multiply(address, states, source, packed, n_columns, queue, out):
    """Rows of states times packed couplings, for the rows in the queue.

    Parameters
    ----------
    address : int
        Of the compiled product.
    states : array of shape (n_rows, n_units)
    source : int
        The first of the units that the couplings belong to.
    packed : array of shape (n_panels, n_source, panel_width)
    n_columns : int
        Columns of the couplings.
    queue : int64 array of shape (1,)
        Next group of rows not taken yet; shared by all threads that call this.
    out : array of shape (n_rows, n_panels * panel_width)
        Filled, but for whole vectors of padding.
    """
    first = next_task(queue) * TASK_ROWS
    while first < states.shape[0]:
        n_rows = smaller(TASK_ROWS, states.shape[0] - first)
        product(address, states[first:], n_rows, source, packed, out[first:], n_columns)
        first = next_task(queue) * TASK_ROWS
