"""Loops over the states of one group, inside kernels, in LLVM vectors.

A group has some 5 or 20 states. LLVM divides a loop into vectors only where there is enough for
several of them at once, and treats what is left one by one: of 21 numbers, all. Here the last
vector of a loop is moved so that it ends with the group: results are computed twice where it
overlaps the one before it, and left out of sums.
"""

from llvmlite import ir
from numba.core import cgutils, types

from fastmf._jit.intrinsics import in_all_lanes
from fastmf._jit.kernel import emitted

VECTOR_BYTES = 32
_INTEGER = ir.IntType(64)


def normalise(weights, first, last, out):
    """Set `out` to weights / sum(weights), for the states from `first` to `last`."""
    out[first:last] = weights[first:last] / weights[first:last].sum()


@emitted(normalise)
def _normalise(typing_context, weights, first, last, out):
    def term(builder, weight):
        return weight

    def factor(builder, total):
        return builder.fdiv(ir.Constant(total.type, 1.0), total)

    def result(builder, factor, weight):
        return builder.fmul(factor, weight)

    def generate(context, builder, signature, values):
        loops = _loops(context, builder, signature, values, [0], 3)
        return loops.sum_and_map(term, factor, result)

    return types.void(weights, first, last, out), generate


def subtract_response(mean, field, first, last, out):
    """Set `out` to mean - C field for a group: C = diag(mean) - mean mean' is its covariance."""
    m, s = mean[first:last], field[first:last]
    out[first:last] = m - m * (s - (m * s).sum())


@emitted(subtract_response)
def _subtract_response(typing_context, mean, field, first, last, out):
    def term(builder, m, s):
        return builder.fmul(m, s)

    def factor(builder, total):
        return builder.fadd(ir.Constant(total.type, 1.0), total)

    def result(builder, factor, m, s):
        return builder.fmul(m, builder.fsub(factor, s))

    def generate(context, builder, signature, values):
        loops = _loops(context, builder, signature, values, [0, 1], 4)
        return loops.sum_and_map(term, factor, result)

    return types.void(mean, field, first, last, out), generate


def _loops(context, builder, signature, values, inputs, out):
    """The `_Loops` of an intrinsic whose arguments `out` - 2 and `out` - 1 are first and last."""
    first, last = values[out - 2 : out]
    pointers = []
    for k in (*inputs, out):
        array = context.make_array(signature.args[k])(context, builder, values[k])
        pointers.append(builder.gep(array.data, [first]))
    number = signature.args[out].dtype
    return _Loops(context, builder, number, pointers, builder.sub(last, first))


class _Loops:
    """Emits loops over `n` numbers of several arrays, the last of which is written."""

    def __init__(self, context, builder, number, pointers, n):
        self.context, self.builder, self.n = context, builder, n
        self.number, self.n_bytes = context.get_value_type(number), number.bitwidth // 8
        *self.inputs, self.out = pointers

    def sum_and_map(self, term, factor, result):
        """out[i] = result(factor(sum of the terms), inputs[i]); a term is one of the inputs[i].

        `term`, `factor` and `result` emit code for numbers and for vectors of them.
        """
        n_lanes = VECTOR_BYTES // self.n_bytes
        enough = self.builder.icmp_signed(">=", self.n, ir.Constant(_INTEGER, n_lanes))
        with self.builder.if_else(enough) as (wide, narrow):
            with wide:
                self._sum_and_map(term, factor, result, n_lanes)
            with narrow:
                self._sum_and_map(term, factor, result, 1)
        return self.context.get_dummy_value()

    def _sum_and_map(self, term, factor, result, n_lanes):
        number = factor(self.builder, self._sum(term, n_lanes))
        number = in_all_lanes(self.builder, number, n_lanes)
        for at, _ in self._positions(n_lanes):
            self._store(result(self.builder, number, *self._load(at, n_lanes)), at, n_lanes)

    def _positions(self, n_lanes):
        """First number of each vector of a loop, and how many of them the one before has, too."""
        builder, step = self.builder, ir.Constant(_INTEGER, n_lanes)
        last = builder.sub(self.n, step)
        loop = cgutils.for_range_slice(builder, ir.Constant(_INTEGER, 0), self.n, step)
        with loop as (k, _):
            at = builder.select(builder.icmp_signed("<", k, last), k, last)
            yield at, builder.sub(k, at)

    def _sum(self, term, n_lanes):
        """Sum of the terms of all numbers."""
        builder = self.builder
        kind = self._kind(n_lanes)
        total = cgutils.alloca_once_value(builder, ir.Constant(kind, None if n_lanes > 1 else 0.0))
        for at, n_before in self._positions(n_lanes):
            value = term(builder, *self._load(at, n_lanes))
            if n_lanes > 1:
                lanes = ir.VectorType(_INTEGER, n_lanes)
                numbers = ir.Constant(lanes, list(range(n_lanes)))
                is_new = builder.icmp_signed(
                    ">=", numbers, in_all_lanes(builder, n_before, n_lanes)
                )
                value = builder.select(is_new, value, ir.Constant(kind, None))
            builder.store(builder.fadd(builder.load(total), value), total)
        total = builder.load(total)
        while n_lanes > 1:
            n_lanes //= 2
            lower, upper = (
                ir.Constant(ir.VectorType(ir.IntType(32), n_lanes), list(range(k, k + n_lanes)))
                for k in (0, n_lanes)
            )
            total = builder.fadd(*(builder.shuffle_vector(total, total, m) for m in (lower, upper)))
            if n_lanes == 1:
                total = builder.extract_element(total, ir.Constant(ir.IntType(32), 0))
        return total

    def _kind(self, n_lanes):
        return ir.VectorType(self.number, n_lanes) if n_lanes > 1 else self.number

    def _pointer(self, array, at, n_lanes):
        pointer = self.builder.gep(array, [at])
        return self.builder.bitcast(pointer, self._kind(n_lanes).as_pointer())

    def _load(self, at, n_lanes):
        """The numbers of each input."""
        loaded = [self.builder.load(self._pointer(a, at, n_lanes)) for a in self.inputs]
        for value in loaded:
            value.align = self.n_bytes
        return loaded

    def _store(self, value, at, n_lanes):
        self.builder.store(value, self._pointer(self.out, at, n_lanes)).align = self.n_bytes
