"""Exact sums over the states of a pairwise graph, by elimination of one unit after the other.

Steps are counted in the order of elimination. The weights that mention the unit of step k, which
belong to its states, its couplings to later units and messages of earlier steps, are
multiplied and summed over its states x; that is its message, a table over the units of its
separator s, to the first step of these:

    m_k(s) = sum_x A(x, s) B(x, s),    p(x, s) = A(x, s) B(x, s) p(s) / m_k(s)

with the factors in two groups A and B, each a table over a part of the units, so that the sum is a
product of matrices. Constants of empty separators multiply to Z. In the opposite order p(s) / m(s)
is summed over what A lacks, or B, and times A or B gives the probabilities of units and pairs, and
p(s) of the messages in the group. No table is made over all of a unit and its separator.
Weights are scaled; where rounding could lose small ones that matter, because the logarithms of the
factors of a step span more than `MAX_SPAN`, all is done with logarithms. Marginals need all
messages.
"""

import math
from sys import float_info
from typing import NamedTuple

import numpy as np

from fastmf.models._state_tables import Marginals

# Span of logarithms of the factors of a product: sums of 1 / epsilon of them are finite.
MAX_SPAN = math.log(float_info.max * float_info.epsilon)


class _Arithmetic(NamedTuple):
    """How weights are multiplied and added: as they are, as logarithms, or as maxima of these."""

    times: np.ufunc
    plus: np.ufunc
    is_log: bool


PLAIN = _Arithmetic(np.multiply, np.add, False)
LOGARITHMS = _Arithmetic(np.add, np.logaddexp, True)
MAX_LOGARITHMS = _Arithmetic(np.add, np.maximum, True)


class _SpanError(ArithmeticError):
    """Weights of a step whose logarithms exceed the range of float64."""


class _Factor(NamedTuple):
    """A table over the units of some steps, its axes, and bounds of logarithms of its weights.

    The logarithm of what its weights have been divided by is `scale`.
    """

    table: np.ndarray
    axes: tuple
    low: float = 0.0
    high: float = 0.0
    scale: float = 0.0


def sum_over_states(tables, plan, averages=True, maximum=False):
    """The `Marginals` of `tables`; with `maximum`, the most probable state takes all the weight."""
    for arithmetic in (MAX_LOGARITHMS,) if maximum else (PLAIN, LOGARITHMS):
        try:
            graph = _Elimination(tables, plan, arithmetic)
            log_partition = graph.forward(averages)
            if not averages or log_partition == -np.inf:
                return Marginals(log_partition, None, None)
            visit = graph.set_state if maximum else graph.set_marginals
            for k in reversed(range(len(plan.order))):
                visit(k)
        except _SpanError:
            continue
        if maximum:
            units = np.zeros(len(tables.fields))
            units[tables.first[plan.order] + graph.states] = 1
            _, row, column = tables.pairs()
            return Marginals(log_partition, units, units[row] * units[column])
        parts = (graph.units, graph.pairs)
        flat = (np.concatenate([np.zeros(0), *map(np.ravel, part)]) for part in parts)
        return Marginals(log_partition, *flat)


class _Elimination:
    """Tables of a graph by steps of its elimination, with the messages that wait at each."""

    def __init__(self, tables, plan, arithmetic):
        self.plan, self.arithmetic, n = plan, arithmetic, len(plan.order)
        self.constants, self.states = [], np.zeros(n, np.int64)
        self.units, self.pairs = [None] * n, [None] * len(tables.edges)
        step = np.empty(n, np.int64)
        step[plan.order] = np.arange(n)
        steps = step[tables.edges]
        starts = np.cumsum(tables.sizes[tables.edges].prod(1))
        fields, lows = self._weights(tables.fields, tables.first)
        couplings, pair_lows = self._weights(tables.couplings, np.append(0, starts)[:-1])
        fields, couplings = tables._replace(fields=fields, couplings=couplings).arrays()
        # Factors of each step, with the list and the place in it to which their probabilities go.
        self.inputs = [
            [(self.units, v, _Factor(fields[v], (k,), lows[v]))] for k, v in enumerate(plan.order)
        ]
        for e in np.lexsort(np.sort(tables.edges, axis=1).T[::-1]).tolist():
            i, j = steps[e].tolist()
            factor = _Factor(couplings[e], (i, j), pair_lows[e])
            self.inputs[min(i, j)].append((self.pairs, e, factor))
        self.children, self.messages = plan.children, [None] * n
        # Products of the factors of small cliques.
        self.products = {}

    def _weights(self, logs, starts):
        """The weights of tables that begin at some places, and the smallest logarithm of each."""
        if self.arithmetic.is_log or not len(starts):
            return logs, np.zeros(len(starts)).tolist()
        lengths = np.diff(np.append(starts, len(logs)))
        top = np.maximum.reduceat(logs, starts)
        top[top == -np.inf] = 0
        self.constants += top.tolist()
        logs = logs - np.repeat(top, lengths)
        low = np.minimum.reduceat(np.where(logs > -np.inf, logs, 0), starts)
        return np.exp(logs), low.tolist()

    def _factors(self, k):
        """The factors of a step, scaled so that their product is one of numbers; their places."""
        for c in (None, *self.children[k]):
            if c is not None:
                self.messages[c] = self._scaled(self.messages[c])
            factors = self.inputs[k] + [
                (self.messages, c, self.messages[c]) for c in self.children[k]
            ]
            low, high = (sum(entry[-1][at] for entry in factors) for at in (2, 3))
            if self.arithmetic.is_log or (low >= -MAX_SPAN and high <= MAX_SPAN):
                return factors
        raise _SpanError

    def _scaled(self, factor):
        """The same with a largest weight of 1, or 0 as a logarithm; the constant is kept."""
        table, is_log = factor.table, self.arithmetic.is_log
        top = table.max()
        if top == (-np.inf if is_log else 0):
            return factor._replace(low=0.0, high=0.0)
        if is_log:
            low, scale = 0.0, top
            table -= top
        else:
            least = table.min() or np.min(table, initial=top, where=table > 0)
            scale = math.log(top)
            low = math.log(least) - scale
            table /= top
        self.constants.append(scale)
        return factor._replace(low=low, high=0.0, scale=factor.scale + scale)

    def _size(self, axes):
        return math.prod(map(self.plan.sizes.__getitem__, axes))

    def _aligned(self, factor, axes, at=None):
        """View of a table with these axes, of length 1 where it has none, at some states."""
        table, steps = factor.table, factor.axes
        if at:
            table = table[tuple(at.get(s, slice(None)) for s in steps)]
            steps = [s for s in steps if s not in at]
        if steps == axes:
            return table
        table = table.transpose([steps.index(s) for s in axes if s in steps])
        return table.reshape([self.plan.sizes[s] if s in steps else 1 for s in axes])

    def _groups(self, factors, k):
        """Two groups of the factors of a step, with their places, and the products of both."""
        groups = [[factors[at] for at in group] for group in self.plan.groups[k]]
        products = []
        for group in groups:
            # Small tables first; a group without any has no product.
            product = group[-1][-1] if group else None
            for n, (*_, factor) in enumerate(group[-2::-1]):
                axes = (*(s for s in product.axes if s not in factor.axes), *factor.axes)
                parts = self._aligned(product, axes), self._aligned(factor, axes)
                out = product.table if n and axes == product.axes else None
                product = _Factor(self.arithmetic.times(*parts, out=out), axes)
            products.append(product)
        return groups, products

    def _contracted(self, first, second, keep):
        """Sum of the product of two factors over shared axes that are not in `keep`."""
        if first is None:
            return second
        both = [s for s in first.axes if s in second.axes]
        shared, summed = [s for s in both if s in keep], [s for s in both if s not in keep]
        rows = [s for s in first.axes if s not in second.axes]
        columns = [s for s in second.axes if s not in first.axes]
        if not self.arithmetic.is_log:
            sizes = [self._size(axes) for axes in (shared, rows, summed, columns)]
            first_matrix = self._aligned(first, (*shared, *rows, *summed)).reshape(sizes[:3])
            second_matrix = self._aligned(second, (*shared, *summed, *columns))
            axes = (*shared, *rows, *columns)
            table = first_matrix @ second_matrix.reshape(sizes[0], sizes[2], sizes[3])
            return _Factor(table.reshape([self.plan.sizes[s] for s in axes]), axes)
        axes, total = (*rows, *columns, *shared), None
        for state in np.ndindex(*(self.plan.sizes[s] for s in summed)):
            at = dict(zip(summed, state, strict=True))
            parts = (self._aligned(factor, axes, at) for factor in (first, second))
            table = self.arithmetic.times(*parts)
            if total is None:
                total = np.asarray(table)
            else:
                self.arithmetic.plus(total, table, out=total)
        return _Factor(total, axes)

    def _message(self, k):
        """Sum of the products of a step over the states of its unit."""
        factors = self._factors(k)
        groups, (product, second) = self._groups(factors, k)
        if second is None:
            self.products[k] = groups, (product, second)
            table = self.arithmetic.plus.reduce(product.table, product.axes.index(k))
            message = _Factor(table, tuple(s for s in product.axes if s != k))
        else:
            message = self._contracted(product, second, self.plan.separators[k])
        low, high = (sum(entry[-1][at] for entry in factors) for at in (2, 3))
        message = message._replace(low=low, high=high + math.log(self.plan.sizes[k]))
        return self._scaled(message) if message.axes and self.arithmetic.is_log else message

    def forward(self, keeps):
        """The log-partition; messages are kept, or dropped once they are used."""
        for k, separator in enumerate(self.plan.separators):
            self.messages[k] = self._message(k)
            if not separator:
                is_log, value = self.arithmetic.is_log, float(self.messages[k].table)
                if value == (-math.inf if is_log else 0.0):
                    return -math.inf
                self.constants.append(value if is_log else math.log(value))
                self.messages[k] = _Factor(np.array(-value if is_log else 1 / value), ())
            for c in () if keeps else self.children[k]:
                self.messages[c] = None
        return math.fsum(self.constants)

    def _joints(self, k, ratio):
        """Groups of factors of a step, and probabilities of the units of each group."""
        groups, products = self.products.pop(k, None) or self._groups(self._factors(k), k)
        for group, product, partner in zip(groups, products, products[::-1], strict=True):
            if product is None:
                continue
            ratios = self._contracted(partner, ratio, product.axes)
            joint = self.arithmetic.times(product.table, self._aligned(ratios, product.axes))
            if self.arithmetic.is_log:
                np.exp(joint, out=joint)
            yield group, _Factor(joint, product.axes)

    def set_state(self, k):
        """Set the most probable state of the unit of a step, given the states of its separator."""
        logs = np.zeros(self.plan.sizes[k])
        for *_, factor in self._factors(k):
            logs = (
                logs
                + factor.table[
                    tuple(slice(None) if s == k else self.states[s] for s in factor.axes)
                ]
            )
        self.states[k] = logs.argmax()
        self.messages[k] = None

    def set_marginals(self, k):
        """Set probabilities of the unit of a step and of its pairs, and p / m of its messages."""
        ratio, self.messages[k] = self.messages[k], None
        for group, joint in self._joints(k, ratio):
            for results, place, factor in group:
                axes = tuple(s for s in joint.axes if s in factor.axes)
                summed = tuple(a for a, s in enumerate(joint.axes) if s not in axes)
                p = _Factor(joint.table.sum(summed), axes)
                is_message = results is self.messages
                results[place] = (
                    self._ratio(p, factor) if is_message else self._aligned(p, factor.axes)
                )

    def _ratio(self, p, message):
        """p / m, 0 where no state is possible; its logarithm if m is one."""
        m, out = self._aligned(message, p.axes), p.table
        if self.arithmetic.is_log:
            with np.errstate(divide="ignore"):
                np.log(out, out=out)
            np.subtract(out, m + message.scale, out=out, where=m > -np.inf)
        else:
            np.divide(out, m, out=out, where=m > 0)
            out *= math.exp(-message.scale)
        return p
