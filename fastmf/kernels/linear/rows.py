"""Sums and updates of indexed rows of a table, and steps of a softmax, inside kernels.

The loops are emitted as LLVM vectors (`fastmf._jit.vectors`), with a part of the sum in half of the
registers: rows are short, and ordinary loops would load and store the sum for each.
"""

from functools import partial

import numpy as np

from fastmf._jit.kernel import emitted, field
from fastmf._jit.lazily import ir, types
from fastmf._jit.vectors import Vectors, integer, loop
from fastmf.kernels.linear.product import VECTOR_BYTES

# Numbers in a vector; the length of rows must be a multiple of it.
LANES = 8


def add_rows(values, table, numbers, first, middle, last, total):
    """Set `total` to a row less numbers[first:middle] of a table, plus numbers[middle:last]."""
    table = table.reshape(-1, len(values))
    total[:] = values - table[numbers[first:middle]].sum(0) + table[numbers[middle:last]].sum(0)


def add_to_rows(values, table, numbers, first, middle, last, total):
    """Subtract a row from numbers[first:middle] of a table; add it to the others and to `total`."""
    table = table.reshape(-1, len(values))
    np.subtract.at(table, numbers[first:middle], values)
    np.add.at(table, numbers[middle:last], values)
    total += values


def subtract_largest(values, n, largest, least):
    """Subtract the largest of values[i::n] and `least`, for i < n; `largest` repeats it."""
    largest.reshape(-1, n)[:] = values.reshape(-1, n).max(0, initial=least)
    values.reshape(-1, n)[:] -= largest[:n]


def scale_to_sum(values, n, sums, total):
    """Scale values[i::n] to a total, for i < n; `sums` repeats their sum."""
    sums.reshape(-1, n)[:] = values.reshape(-1, n).sum(0)
    values.reshape(-1, n)[:] *= total / sums[:n]


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


def _emit_step(function, is_sum):
    @emitted(function)
    def define(typing_context, row, n, lanes, number):
        def generate(context, builder, signature, arguments):
            vectors, first = Vectors(context, builder, row.dtype, LANES), integer(0)
            of_row, of_lanes = (
                field(context, builder, signature.args[k], arguments[k], "data") for k in (0, 2)
            )
            (length,) = field(context, builder, row, arguments[0], "shape")
            n_vectors = builder.sdiv(length, integer(LANES))
            number = vectors.in_all_lanes(arguments[3])

            def combined(x, y):
                larger = builder.fcmp_ordered(">", x, y)
                return builder.fadd(x, y) if is_sum else builder.select(larger, x, y)

            def combine(k, total):
                return [combined(*total, vectors.load(of_row, builder.mul(k, integer(LANES))))]

            def apply(k, _):
                column = builder.mul(k, integer(LANES))
                change = builder.fmul if is_sum else builder.fsub
                vectors.store(change(vectors.load(of_row, column), total), of_row, column)

            start = ir.Constant(vectors.type, None) if is_sum else number
            (total,) = loop(builder, first, n_vectors, combine, [start])
            for shift in (LANES // 2, LANES // 4, LANES // 8):
                order = [(lane + shift) % LANES for lane in range(LANES)]
                order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), order)
                both = combined(total, builder.shuffle_vector(total, total, order))
                repeats = builder.icmp_signed(">=", integer(shift), arguments[1])
                total = builder.select(repeats, both, total)
            vectors.store(total, of_lanes, first)
            total = builder.fdiv(number, total) if is_sum else total
            loop(builder, first, n_vectors, apply)
            return context.get_dummy_value()

        return types.void(row, types.intp, lanes, row.dtype), generate


_emit_step(subtract_largest, is_sum=False)
_emit_step(scale_to_sum, is_sum=True)
