"""Matrix products of a few rows with fixed couplings, inside kernels.

BLAS packs its right operand again at every call, brings threads of its own, and rounds a row
differently with the number of rows beside it. Here the couplings are packed once per solve; a tile
of rows times one panel of columns stays in registers; and an entry is always the same chain of
fused multiply-adds, so that a row's result does not depend on which rows are with it. A tile is
written in LLVM vectors because no loop nest would keep its accumulators in registers.
"""

import math

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from fastmf._numba import INNER, not_inlined

# A tile of rows x 3 vectors needs one register per accumulator, 3 for couplings and 1 for a state:
# all of AVX2's 16 registers with 4 rows, most of AVX-512's 32 with 8.
_WIDE = bool(llvmlite.binding.get_host_cpu_features().get("avx512f", False))
VECTOR_BYTES = 64 if _WIDE else 32
TILE_VECTORS = 3
TILE_ROWS = 8 if _WIDE else 4
# So many rows of a panel (24 KiB) stay in the first-level cache while all tiles pass over them.
CHUNK = 24 * 1024 // (TILE_VECTORS * VECTOR_BYTES)


def panel_width(dtype):
    """Number of columns in one panel of packed couplings."""
    return TILE_VECTORS * VECTOR_BYTES // np.dtype(dtype).itemsize


def pack(matrix):
    """Cut a matrix into panels of columns, for `product`.

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
    """Memory for a packed matrix, (n_panels, n_rows, panel_width), at the start of a cache line.

    A vector that lies across two lines takes twice as long to load.
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


def product(states, n_rows, source, packed, panel, out, column, n_columns):
    """Set out[:n_rows, column:column + width] to states[:n_rows, source:] times one panel.

    Padding after `n_columns`, the columns of all panels together, need not be multiplied.
    """
    panel_of_couplings = packed[panel, :, : n_columns - panel * packed.shape[2]]
    n_source, width = panel_of_couplings.shape
    rows = states[:n_rows, source : source + n_source]
    out[:n_rows, column : column + width] = rows @ panel_of_couplings


def _tile(n_tile_rows):
    """Intrinsic for `n_tile_rows` rows of a product from `row` on.

    They are multiplied with a whole panel, or with a single vector of it, `skip` columns from its
    first one.
    """

    @intrinsic
    def tile(
        typing_context, states, row, source, packed, panel, single, skip, first, last, out, column
    ):
        i = types.intp
        signature = types.void(states, i, i, packed, i, types.boolean, i, i, i, out, i)

        def generate(context, builder, signature, arguments):
            arguments = list(arguments)
            single = arguments.pop(5)
            with builder.if_else(single) as branches:
                for n_vectors, branch in zip((1, TILE_VECTORS), branches, strict=True):
                    with branch:
                        size = n_tile_rows, n_vectors
                        _emit_tile(context, builder, signature, arguments, size)
            return context.get_dummy_value()

        return signature, generate

    return tile


def _emit_tile(context, builder, signature, arguments, size):
    n_tile_rows, n_vectors = size
    states_type, _, _, packed_type, _, _, _, _, _, out_type, _ = signature.args
    element = packed_type.dtype
    states, row, source, packed, panel, skip, first_k, last_k, out, column = arguments
    states = context.make_array(states_type)(context, builder, states)
    packed = context.make_array(packed_type)(context, builder, packed)
    out = context.make_array(out_type)(context, builder, out)

    n_bytes = element.bitwidth // 8
    n_lanes = VECTOR_BYTES // n_bytes
    width = TILE_VECTORS * n_lanes
    i64, i32 = ir.IntType(64), ir.IntType(32)
    vector = ir.VectorType(context.get_value_type(element), n_lanes)
    undefined = ir.Constant(vector, ir.Undefined)
    suffix = f"v{n_lanes}f{element.bitwidth}"
    fma = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.{suffix}"
    )

    def number(value):
        return ir.Constant(i64, value)

    def stride(array, axis):
        return builder.sdiv(builder.extract_value(array.strides, axis), number(n_bytes))

    def vector_pointer(pointer, offset):
        return builder.bitcast(builder.gep(pointer, [offset]), vector.as_pointer())

    between_rows = stride(states, 0)
    between_columns = number(1) if states_type.layout == "C" else stride(states, 1)
    between_out_rows = stride(out, 0)
    first = builder.add(builder.mul(row, between_rows), builder.mul(source, between_columns))
    state_rows = [
        builder.gep(states.data, [builder.add(first, builder.mul(number(r), between_rows))])
        for r in range(n_tile_rows)
    ]
    couplings = builder.add(builder.mul(panel, stride(packed, 0)), skip)
    couplings = builder.gep(packed.data, [couplings])
    target = builder.add(builder.mul(row, between_out_rows), builder.add(column, skip))
    target = builder.gep(out.data, [target])

    def pieces(pointers):
        for r in range(n_tile_rows):
            for v in range(n_vectors):
                offset = builder.add(builder.mul(number(r), between_out_rows), number(v * n_lanes))
                yield vector_pointer(pointers, offset)

    # accumulators = out[rows, columns], or 0 in the first chunk
    nothing_yet = builder.icmp_signed("==", first_k, number(0))
    starts = []
    for pointer in pieces(target):
        load = builder.load(pointer)
        load.align = n_bytes
        starts.append(builder.select(nothing_yet, ir.Constant(vector, None), load))
    # for k in range(first_k, last_k): accumulators += states[:, k] * couplings[k, :]
    before = builder.basic_block
    head = builder.append_basic_block("tile.head")
    body = builder.append_basic_block("tile.body")
    end = builder.append_basic_block("tile.end")
    builder.branch(head)

    builder.position_at_end(head)
    k = builder.phi(i64)
    k.add_incoming(first_k, before)
    accumulators = [builder.phi(vector) for _ in range(n_tile_rows * n_vectors)]
    for accumulator, start in zip(accumulators, starts, strict=True):
        accumulator.add_incoming(start, before)
    builder.cbranch(builder.icmp_signed("<", k, last_k), body, end)

    builder.position_at_end(body)
    loaded = []
    for v in range(n_vectors):
        offset = builder.add(builder.mul(k, number(width)), number(v * n_lanes))
        load = builder.load(vector_pointer(couplings, offset))
        load.align = n_bytes
        loaded.append(load)
    sums = []
    for r in range(n_tile_rows):
        position = builder.mul(k, between_columns)
        state = builder.load(builder.gep(state_rows[r], [position]))
        lane = builder.insert_element(undefined, state, ir.Constant(i32, 0))
        spread = builder.shuffle_vector(
            lane, undefined, ir.Constant(ir.VectorType(i32, n_lanes), None)
        )
        for v in range(n_vectors):
            sums.append(builder.call(fma, [spread, loaded[v], accumulators[r * n_vectors + v]]))
    k.add_incoming(builder.add(k, number(1)), builder.basic_block)
    for accumulator, total in zip(accumulators, sums, strict=True):
        accumulator.add_incoming(total, builder.basic_block)
    builder.branch(head)

    # out[rows, columns] = accumulators
    builder.position_at_end(end)
    for pointer, accumulator in zip(pieces(target), accumulators, strict=True):
        builder.store(accumulator, pointer).align = n_bytes


_full_tile = _tile(TILE_ROWS)
_two_rows = _tile(2)
_one_row = _tile(1)


@overload(product, jit_options=INNER | {"_nrt": False})
def _product(states, n_rows, source, packed, panel, out, column, n_columns):
    lanes = VECTOR_BYTES // (packed.dtype.bitwidth // 8)

    def tiled(states, n_rows, source, packed, panel, out, column, n_columns):
        not_inlined()
        n_source, width = packed.shape[1:]
        # A panel that has a vector or more of padding is taken vector by vector.
        n_here = n_columns - panel * width
        narrow = n_here <= width - lanes
        for first in range(0, max(n_source, 1), CHUNK):
            last = min(first + CHUNK, n_source)
            for skip in range(0, n_here if narrow else 1, lanes):
                part = packed, panel, narrow, skip, first, last, out, column
                row = 0
                while row + TILE_ROWS <= n_rows:
                    _full_tile(states, row, source, *part)
                    row += TILE_ROWS
                while row + 2 <= n_rows:
                    _two_rows(states, row, source, *part)
                    row += 2
                if row < n_rows:
                    _one_row(states, row, source, *part)

    return tiled
