"""Loops over the states of one group, inside kernels, in LLVM vectors.

A group has some 5 or 20 states. LLVM divides a loop into vectors only where there is enough for
several of them at once, and treats what is left one by one: of 21 numbers, all. Here the last
vector of a loop is moved so that it ends with the group: results are computed twice where it
overlaps the one before it, and left out of sums.
"""

from fastmf._jit.intrinsics import in_all_lanes
from fastmf._jit.kernel import emitted
from fastmf._jit.lazily import cgutils, ir, types
from fastmf._jit.vectors import Vectors, int32, integer

# Groups are small: the widest vectors would be used less often.
GROUP_VECTOR_BYTES = 32


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
        return _sum_and_map(loops, term, factor, result)

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
        return _sum_and_map(loops, term, factor, result)

    return types.void(mean, field, first, last, out), generate


def _loops(context, builder, signature, values, inputs, out):
    """The `_Loops` of an intrinsic whose arguments `out` - 2 and `out` - 1 are first and last."""
    first, last = values[out - 2 : out]
    pointers = []
    for k in (*inputs, out):
        array = context.make_array(signature.args[k])(context, builder, values[k])
        pointers.append(builder.gep(array.data, [first]))
    dtype, n = signature.args[out].dtype, builder.sub(last, first)
    wide, narrow = (
        _Loops(Vectors(context, builder, dtype, n_bytes), pointers, n)
        for n_bytes in (GROUP_VECTOR_BYTES, dtype.bitwidth // 8)
    )
    return wide, narrow


def _sum_and_map(loops, term, factor, result):
    """out[i] = result(factor(sum of the terms), inputs[i]); a term is one of the inputs[i].

    `term`, `factor` and `result` emit code for numbers and for vectors of them.
    """
    wide = loops[0]
    builder = wide.builder
    enough = builder.icmp_signed(">=", wide.n, integer(wide.vectors.n_lanes))
    with builder.if_else(enough) as branches:
        for branch, loop in zip(branches, loops, strict=True):
            with branch:
                loop.sum_and_map(term, factor, result)
    return wide.vectors.context.get_dummy_value()


class _Loops:
    """Emits loops over `n` numbers of several arrays, the last of which is written."""

    def __init__(self, vectors, pointers, n):
        self.vectors, self.builder, self.n = vectors, vectors.builder, n
        *self.inputs, self.out = pointers

    def sum_and_map(self, term, factor, result):
        """Sum the terms, then write the results."""
        number = self.vectors.in_all_lanes(factor(self.builder, self._sum(term)))
        for at, _ in self._positions():
            self.vectors.store(result(self.builder, number, *self._load(at)), self.out, at)

    def _load(self, at):
        return [self.vectors.load(array, at) for array in self.inputs]

    def _positions(self):
        """First number of each vector of a loop, and how many of them the one before has, too."""
        builder, step = self.builder, integer(self.vectors.n_lanes)
        last = builder.sub(self.n, step)
        with cgutils.for_range_slice(builder, integer(0), self.n, step) as (k, _):
            at = builder.select(builder.icmp_signed("<", k, last), k, last)
            yield at, builder.sub(k, at)

    def _sum(self, term):
        """Sum of the terms of all numbers."""
        builder, n_lanes = self.builder, self.vectors.n_lanes
        total = cgutils.alloca_once_value(builder, self.vectors.zeros())
        for at, n_before in self._positions():
            value = term(builder, *self._load(at))
            if n_lanes > 1:
                numbers = ir.Constant(ir.VectorType(ir.IntType(64), n_lanes), list(range(n_lanes)))
                before = in_all_lanes(builder, n_before, n_lanes)
                is_new = builder.icmp_signed(">=", numbers, before)
                value = builder.select(is_new, value, self.vectors.zeros())
            builder.store(builder.fadd(builder.load(total), value), total)
        total = builder.load(total)
        while n_lanes > 1:
            n_lanes //= 2
            halves = (range(k, k + n_lanes) for k in (0, n_lanes))
            total = builder.fadd(*(self.vectors.shuffled(total, total, half) for half in halves))
            if n_lanes == 1:
                total = builder.extract_element(total, int32(0))
        return total
