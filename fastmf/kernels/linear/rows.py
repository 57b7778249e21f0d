"""Sums and updates of indexed rows of a table, inside kernels.

The loops are emitted as LLVM vectors (`fastmf._jit.vectors`), with a part of the sum in half of the
registers: rows are short, and ordinary loops would load and store the sum for each.
"""

from functools import partial

import numpy as np

from fastmf._jit.kernel import emitted, field
from fastmf._jit.lazily import types
from fastmf._jit.vectors import Vectors, integer, loop
from fastmf.kernels.linear.product import VECTOR_BYTES

# Numbers in a vector; the length of rows must be a multiple of it.
LANES = 8


def add_rows(total, table, numbers, first, last, sign):
    """Add the rows numbers[first:last] of a table, times a sign, to a row."""
    total += sign * table[numbers[first:last]].sum(0)


def add_to_rows(values, table, numbers, first, last, sign):
    """Add a row, times a sign, to the rows numbers[first:last] of a table."""
    np.add.at(table, numbers[first:last], sign * values)


def _emit(function, is_sum):
    @emitted(function)
    def define(typing_context, row, table, numbers, first, last, sign):
        def generate(context, builder, signature, arguments):
            vectors = Vectors(context, builder, row.dtype, LANES)
            arrays = list(zip(signature.args[:3], arguments[:3], strict=True))
            of_row, of_table, of_numbers = (field(context, builder, *x, "data") for x in arrays)
            (length,) = field(context, builder, *arrays[0], "shape")
            first, last, sign = arguments[3:]
            sign = vectors.in_all_lanes(sign)

            def emit_part(n_vectors, part, _):
                start = builder.mul(part, integer(n_vectors * LANES))
                columns = [builder.add(start, integer(v * LANES)) for v in range(n_vectors)]
                values = [vectors.load(of_row, column) for column in columns]

                def emit_table_row(k, sums):
                    number = builder.sext(builder.load(builder.gep(of_numbers, [k])), length.type)
                    start = builder.mul(number, length)
                    places = [builder.add(start, column) for column in columns]
                    entries = [vectors.load(of_table, place) for place in places]
                    if is_sum:
                        return [vectors.fma(sign, *x) for x in zip(entries, sums, strict=True)]
                    for entry, value, place in zip(entries, values, places, strict=True):
                        vectors.store(vectors.fma(sign, value, entry), of_table, place)

                sums = loop(builder, first, last, emit_table_row, values if is_sum else [])
                for total, column in zip(sums, columns[: len(sums)], strict=True):
                    vectors.store(total, of_row, column)

            n_vectors, part = VECTOR_BYTES // vectors.item_bytes, integer(0)
            while n_vectors:
                end = builder.sdiv(length, integer(n_vectors * LANES))
                loop(builder, part, end, partial(emit_part, n_vectors))
                n_vectors, part = n_vectors // 2, builder.mul(end, integer(2))
            return context.get_dummy_value()

        return types.void(row, table, numbers, types.intp, types.intp, row.dtype), generate


_emit(add_rows, is_sum=True)
_emit(add_to_rows, is_sum=False)
