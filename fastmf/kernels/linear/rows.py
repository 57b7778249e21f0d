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


def add_rows(values, table, numbers, first, middle, last, total):
    """Set `total` to a row less numbers[first:middle] of a table, plus numbers[middle:last]."""
    total[:] = values - table[numbers[first:middle]].sum(0) + table[numbers[middle:last]].sum(0)


def add_to_rows(values, table, numbers, first, middle, last, total):
    """Subtract a row from numbers[first:middle] of a table; add it to the others and to `total`."""
    np.subtract.at(table, numbers[first:middle], values)
    np.add.at(table, numbers[middle:last], values)
    total += values


def _emit(function, is_sum):
    @emitted(function)
    def define(typing_context, row, table, numbers, first, middle, last, total):
        def generate(context, builder, signature, arguments):
            vectors = Vectors(context, builder, row.dtype, LANES)
            of_row, of_table, of_numbers, of_total = (
                field(context, builder, signature.args[k], arguments[k], "data")
                for k in (0, 1, 2, 6)
            )
            (length,) = field(context, builder, row, arguments[0], "shape")
            first, middle, last = arguments[3:6]
            most = VECTOR_BYTES // vectors.item_bytes

            def emit_part(n_vectors, part, _):
                start = builder.mul(part, integer(most * LANES))
                columns = [builder.add(start, integer(v * LANES)) for v in range(n_vectors)]
                values = [vectors.load(of_row, column) for column in columns]

                def emit_table_row(operation, k, sums):
                    number = builder.sext(builder.load(builder.gep(of_numbers, [k])), length.type)
                    start = builder.mul(number, length)
                    places = [builder.add(start, column) for column in columns]
                    entries = [vectors.load(of_table, place) for place in places]
                    if is_sum:
                        return [operation(*x) for x in zip(sums, entries, strict=True)]
                    for entry, value, place in zip(entries, values, places, strict=True):
                        vectors.store(operation(entry, value), of_table, place)

                sums = values if is_sum else []
                sums = loop(builder, first, middle, partial(emit_table_row, builder.fsub), sums)
                sums = loop(builder, middle, last, partial(emit_table_row, builder.fadd), sums)
                if not is_sum:
                    totals = [vectors.load(of_total, column) for column in columns]
                    sums = [builder.fadd(*x) for x in zip(totals, values, strict=True)]
                for total, column in zip(sums, columns, strict=True):
                    vectors.store(total, of_total, column)

            # Whole parts, and a loop that runs once for the number of vectors that remain.
            n_vectors = builder.sdiv(length, integer(LANES))
            n_parts = builder.sdiv(n_vectors, integer(most))
            n_vectors = builder.srem(n_vectors, integer(most))
            loop(builder, integer(0), n_parts, partial(emit_part, most))
            for n in range(1, most):
                remains = builder.icmp_signed("==", n_vectors, integer(n))
                end = builder.add(n_parts, builder.zext(remains, n_parts.type))
                loop(builder, n_parts, end, partial(emit_part, n))
            return context.get_dummy_value()

        return types.void(row, table, numbers, *(types.intp,) * 3, total), generate


_emit(add_rows, is_sum=True)
_emit(add_to_rows, is_sum=False)
