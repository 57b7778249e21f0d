"""Sums over rows of couplings and softmax of rows, in LLVM vectors, for `potts`.

A row has a whole number of vectors. Vectors that are added up are few enough to stay in registers:
see `fastmf._jit.vectors` for why they are emitted.
"""

from functools import partial

import numpy as np

from fastmf._jit.kernel import emitted
from fastmf._jit.lazily import cgutils, ir, types
from fastmf._jit.vectors import Vectors, integer, loop
from fastmf.special import EXPONENTIALS

# Vectors of a row that are added up in registers at a time.
MAX_VECTORS = 10


def sum_rows(start, table, changes, span, out):
    """Set `out` to `start`, less and plus rows of a table."""
    begin, middle, end = span
    out[:] = start - table[changes[begin:middle]].sum(0) + table[changes[middle:end]].sum(0)


def add_to_rows(values, table, changes, span):
    """Subtract `values` from rows of a table, and add them to others; the rest as in `sum_rows`."""
    begin, middle, end = span
    np.subtract.at(table, changes[begin:middle], values)
    np.add.at(table, changes[middle:end], values)


def softmax(fields, scales, n_positions, statistics):
    """Replace fields by minus the probabilities times scales."""
    by_state = fields.reshape(-1, n_positions)
    lanes, largest = len(scales), by_state.max(0)
    e = np.exp(by_state - largest)
    statistics[:] = np.concatenate([np.tile(x, lanes // n_positions) for x in (largest, e.sum(0))])
    by_state[:] = -e * (scales[:n_positions] / e.sum(0))


class _PositionVectors(Vectors):
    """Vectors of rows whose lanes belong to positions in turn."""

    def __init__(self, context, builder, dtype):
        super().__init__(context, builder, dtype)
        self.form = EXPONENTIALS[np.float32 if self.n_bits == 32 else np.float64]

    def over_positions(self, combine, value, n_positions):
        """Combine the lanes of a vector that belong to the same position, for every lane."""
        builder, shift = self.builder, self.n_lanes // 2
        while shift:
            lanes = [(k + shift) % self.n_lanes for k in range(self.n_lanes)]
            combined = combine(value, self.shuffled(value, value, lanes))
            apart = builder.icmp_signed(">=", integer(shift), n_positions)
            value = builder.select(apart, combined, value)
            shift //= 2
        return value

    def loop(self, n, starts, body):
        """for k in range(0, n, lanes): values = body(k, values); the last values."""
        return loop(self.builder, integer(0), n, integer(self.n_lanes), body, starts)


def _checked(*arrays):
    if any(array.layout != "C" or array.dtype != arrays[0].dtype for array in arrays):
        raise TypeError("rows must be C-contiguous, and of one floating type")


class _RowLoops:
    """Loops over rows of a table whose vectors, up to `MAX_VECTORS` of them, are in registers."""

    def __init__(self, emitter, table, changes, span):
        builder = self.builder = emitter.builder
        self.emitter, self.table, self.changes = emitter, table, changes
        self.begin, self.middle, self.end = cgutils.unpack_tuple(builder, span)
        self.width = builder.extract_value(table.shape, 1)

    def emit(self, of_part):
        """Call of_part(first column, number of vectors) for parts of the row: a switch for each."""
        builder, n_lanes = self.builder, self.emitter.n_lanes
        size = integer(MAX_VECTORS * n_lanes)
        first = cgutils.alloca_once_value(builder, integer(0))
        check, choose, end = (
            builder.append_basic_block(f"rows.{name}") for name in ("check", "choose", "end")
        )
        builder.branch(check)
        builder.position_at_end(check)
        column = builder.load(first)
        left = builder.sub(self.width, column)
        builder.cbranch(builder.icmp_signed(">", left, integer(0)), choose, end)
        builder.position_at_end(choose)
        whole = builder.icmp_signed(">", left, size)
        n_vectors = builder.select(whole, size, left)
        n_vectors = builder.sdiv(n_vectors, integer(n_lanes))
        builder.store(builder.add(column, size), first)
        switch = builder.switch(n_vectors, end)
        for n in range(1, MAX_VECTORS + 1):
            block = builder.append_basic_block(f"rows.{n}")
            switch.add_case(integer(n), block)
            builder.position_at_end(block)
            of_part(column, n)
            builder.branch(check)
        builder.position_at_end(end)

    def over_rows(self, low, high, column, values, change):
        """values = change(pointer to the part of the row, values) for changes[low:high]."""
        builder = self.builder

        def of_row(k, values):
            index = builder.sext(builder.load(builder.gep(self.changes.data, [k])), ir.IntType(64))
            position = builder.add(builder.mul(index, self.width), column)
            return change(builder.gep(self.table.data, [position]), values)

        return loop(builder, low, high, integer(1), of_row, values)


@emitted(sum_rows)
def _sum_rows(typing_context, start, table, changes, span, out):
    _checked(start, table, out)

    def generate(context, builder, signature, values):
        emitter = _PositionVectors(context, builder, start.dtype)
        kinds = (start, table, changes, None, out)
        begin, rows, indices, _, result = (
            kind and emitter.array(kind, value) for kind, value in zip(kinds, values, strict=True)
        )
        loops = _RowLoops(emitter, rows, indices, values[3])

        def combined(operation, pointer, sums):
            return [
                operation(total, emitter.load(pointer, integer(v * emitter.n_lanes)))
                for v, total in enumerate(sums)
            ]

        def of_part(column, n_vectors):
            places = [builder.add(column, integer(v * emitter.n_lanes)) for v in range(n_vectors)]
            sums = [emitter.load(begin.data, place) for place in places]
            sums = loops.over_rows(
                loops.begin, loops.middle, column, sums, partial(combined, builder.fsub)
            )
            sums = loops.over_rows(
                loops.middle, loops.end, column, sums, partial(combined, builder.fadd)
            )
            for total, place in zip(sums, places, strict=True):
                emitter.store(total, result.data, place)

        loops.emit(of_part)
        return context.get_dummy_value()

    return types.void(start, table, changes, types.UniTuple(types.int64, 3), out), generate


@emitted(add_to_rows)
def _add_to_rows(typing_context, values, table, changes, span):
    _checked(values, table)

    def generate(context, builder, signature, given):
        emitter = _PositionVectors(context, builder, values.dtype)
        kinds = (values, table, changes)
        added, rows, indices = (
            emitter.array(kind, value) for kind, value in zip(kinds, given[:3], strict=True)
        )
        loops = _RowLoops(emitter, rows, indices, given[3])

        def changed(operation, pointer, vectors):
            for v, vector in enumerate(vectors):
                place = integer(v * emitter.n_lanes)
                emitter.store(operation(emitter.load(pointer, place), vector), pointer, place)
            return vectors

        def of_part(column, n_vectors):
            vectors = [
                emitter.load(added.data, builder.add(column, integer(v * emitter.n_lanes)))
                for v in range(n_vectors)
            ]
            for low, high, operation in (
                (loops.begin, loops.middle, builder.fsub),
                (loops.middle, loops.end, builder.fadd),
            ):
                loops.over_rows(low, high, column, vectors, partial(changed, operation))

        loops.emit(of_part)
        return context.get_dummy_value()

    return types.void(values, table, changes, types.UniTuple(types.int64, 3)), generate


@emitted(softmax)
def _softmax(typing_context, fields, scales, n_positions, statistics):
    _checked(fields, scales, statistics)

    def generate(context, builder, signature, values):
        emitter = _PositionVectors(context, builder, fields.dtype)
        row, scale, out = (
            emitter.array(kind, value)
            for kind, value in zip(
                (fields, scales, statistics), (*values[:2], values[3]), strict=True
            )
        )
        n, zero = builder.extract_value(row.shape, 0), integer(0)
        first = emitter.load(row.data, zero)
        (largest,) = emitter.loop(
            n, [first], lambda k, v: [emitter.larger(v[0], emitter.load(row.data, k))]
        )
        largest = emitter.over_positions(emitter.larger, largest, values[2])

        def exponentials(k, totals):
            e = emitter.exp(builder.fsub(emitter.load(row.data, k), largest), emitter.form)
            emitter.store(e, row.data, k)
            return [builder.fadd(totals[0], e)]

        (total,) = emitter.loop(n, [emitter.zeros()], exponentials)
        total = emitter.over_positions(builder.fadd, total, values[2])
        emitter.store(largest, out.data, zero)
        emitter.store(total, out.data, integer(emitter.n_lanes))
        factor = builder.fdiv(emitter.load(scale.data, zero), total)
        factor = builder.fsub(emitter.zeros(), factor)

        def scaled(k, _):
            emitter.store(builder.fmul(emitter.load(row.data, k), factor), row.data, k)
            return []

        emitter.loop(n, [], scaled)
        return context.get_dummy_value()

    return types.void(fields, scales, types.int64, statistics), generate
