"""Exact sums over the states of a pairwise graph, by elimination of one unit after the other.

Steps are counted in the order of elimination. The weights that mention the unit of step k, which
are those of its states, of its couplings to later units and messages of earlier steps, are
multiplied and summed over its states x; that is its message, a table over the units of its
separator s, to the first step of these:

    m_k(s) = sum_x prod_f f(x, s),    p(x, s) = prod_f f(x, s) p(s) / m_k(s)

Constants of empty separators multiply to Z. The product is made for one x after another, never with
the states of x as an axis. In the opposite order p(s) is summed from p(x, s) at the step to which
the message went. Weights are scaled; where rounding could lose small ones that matter, because the
logarithms of a step's weights span more than `MAX_SPAN`, all is done with logarithms.
Marginals need all messages. Where memory is short, steps are cut into segments: messages within one
are made again when it is its turn.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Span of logarithms of the factors of a product, short of that of float64.
MAX_SPAN = 600.0
# Numbers that lie side by side in the inner loops of products; others are moved first.
BLOCK_SIZE, SMALL_SIZE = 64, 4096


class Tables(NamedTuple):
    """Log-weights of a pairwise graph.

    Parameters
    ----------
    fields : list of arrays of shape (n_states_i,)
    edges : int array of shape (n_edges, 2)
        Every pair once.
    couplings : list of arrays of shape (n_states_i, n_states_j)
        In the order of the edges.
    """

    fields: list
    edges: np.ndarray
    couplings: list


class Marginals(NamedTuple):
    """Log-partition, probabilities of states, and of pairs of them by edges; or None."""

    log_partition: float
    units: list | None
    pairs: list | None


class _Arithmetic(NamedTuple):
    """How weights are multiplied and added: as they are, as logarithms, or as maxima of these."""

    times: Callable
    plus: Callable
    is_log: bool


WEIGHTS = _Arithmetic(np.multiply, np.add, False)
LOGARITHMS = _Arithmetic(np.add, np.logaddexp, True)
MAXIMA = _Arithmetic(np.add, np.maximum, True)


class _SpanError(ArithmeticError):
    """Weights of a step whose logarithms span more than those of float64."""


class _Factor(NamedTuple):
    """A table over the units of some steps, its axes, and bounds of logarithms of its weights.

    The logarithm of what its weights have been divided by is `scale`.
    """

    table: np.ndarray
    axes: tuple
    low: float = 0.0
    high: float = 0.0
    scale: float = 0.0


def sum_over_states(tables, plan, averages=True, max_bytes=math.inf):
    """Log-partition and marginals of the units and edges of `tables`.

    Parameters
    ----------
    tables : Tables
    plan : EliminationPlan
    averages : bool, default True
    max_bytes : float
        Memory for marginals; where they need more, messages are made twice.
    """
    starts = plan.segments(max_bytes)[0] if averages else [0]
    for arithmetic in (WEIGHTS, LOGARITHMS):
        try:
            graph = _Elimination(tables, plan, arithmetic, starts)
            log_partition = graph.forward(averages)
            if not averages or log_partition == -np.inf:
                return Marginals(log_partition, None, None)
            return Marginals(log_partition, *graph.backward())
        except _SpanError:
            continue


def most_probable_state(tables, plan):
    """State of each unit in the most probable joint state: int array of shape (n_units,)."""
    graph = _Elimination(tables, plan, MAXIMA, [0])
    graph.choices = []
    graph.forward(False)
    found = np.zeros(len(plan.order), np.int64)
    for k, (axes, choice) in reversed(list(enumerate(graph.choices))):
        found[k] = choice[tuple(found[list(axes)])]
    states = np.empty_like(found)
    states[plan.order] = found
    return states


class _Elimination:
    """Tables of a graph by steps of its elimination, with the messages that wait at each."""

    def __init__(self, tables, plan, arithmetic, starts):
        self.plan, self.arithmetic, n = plan, arithmetic, len(plan.order)
        self.n_edges, self.starts, self.choices = len(tables.edges), starts, None
        self.constants = []
        step = np.empty(n, np.int64)
        step[plan.order] = np.arange(n)
        self.own = [[self._factor(tables.fields[v], (k,))] for k, v in enumerate(plan.order)]
        # At the earlier of its two steps: (later step, number of the edge, transposed).
        self.edges = [[] for _ in plan.order]
        for e, (i, j) in enumerate(step[tables.edges].tolist()):
            self.own[min(i, j)].append(self._factor(tables.couplings[e], (i, j)))
            self.edges[min(i, j)].append((max(i, j), e, i > j))
        self.children, self.messages = [[] for _ in plan.order], [None] * n
        for k, separator in enumerate(plan.separators):
            if separator:
                self.children[separator[0]].append(k)

    def _factor(self, logs, axes):
        """The factor of a table of log-weights."""
        if self.arithmetic.is_log:
            return _Factor(np.asarray(logs), axes)
        top = logs.max()
        if top == -np.inf:
            top = 0.0
        low = np.min(logs, initial=top, where=logs > -np.inf) - top
        self.constants.append(top)
        return _Factor(np.exp(logs - top), axes, low)

    def _factors(self, k):
        """The factors of a step, scaled so that their product is one of numbers."""
        for c in () if self.arithmetic.is_log else self.children[k]:
            if self._spans(k):
                self.messages[c] = self._scaled(self.messages[c])
        if self._spans(k):
            raise _SpanError
        return self.own[k] + [self.messages[c] for c in self.children[k]]

    def _spans(self, k):
        factors = self.own[k] + [self.messages[c] for c in self.children[k]]
        low, high = (sum(f[at] for f in factors) for at in (2, 3))
        return low < -MAX_SPAN or high > MAX_SPAN

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

    def _aligned(self, factor, axes, k=None, x=None):
        """View of a table with these axes, of length 1 where it has none; at a state of step k."""
        table, own = factor.table, factor.axes
        if k is not None:
            table = table[(slice(None),) * own.index(k) + (x,)]
            own = [s for s in own if s != k]
        table = table.transpose([own.index(s) for s in axes if s in own])
        sizes = self.plan.sizes
        return table.reshape([sizes[s] if s in own else 1 for s in axes])

    def _product(self, k, factors):
        """Two factors whose product is that of all, the first with fewer axes that change fast."""
        first, *others = sorted(factors, key=lambda factor: factor.table.size)
        is_new = False
        for k_th, factor in enumerate(others):
            small, large = sorted((first, factor), key=lambda f: f.table.size)
            large = self._blocked(large, k, small.axes)
            axes = (*(s for s in small.axes if s not in large.axes), *large.axes)
            if k_th == len(others) - 1:
                return small, large, tuple(s for s in axes if s != k)
            parts = [self._aligned(part, axes) for part in (small, large)]
            fits = is_new and first.axes == axes
            table = self.arithmetic.times(*parts, out=first.table if fits else None)
            first, is_new = _Factor(table, axes), True
        return None, first, tuple(s for s in first.axes if s != k)

    def _blocked(self, large, k, axes):
        """A table whose fast axes are none of these, if it is large."""
        slow = [s for s in large.axes if s in axes and s != k]
        last = max(map(large.axes.index, (k, *slow)))
        block = math.prod(large.table.shape[last + 1 :])
        if block >= BLOCK_SIZE or large.table.size <= SMALL_SIZE:
            return large
        order = (k, *slow, *sorted(s for s in large.axes if s != k and s not in slow))
        return large._replace(
            table=np.ascontiguousarray(self._aligned(large, order)), axes=order
        )

    def _by_states(self, k, factors):
        """Axes of the message of a step, and the products at each state of its unit in turn."""
        small, large, axes = self._product(k, factors)

        def products():
            out = np.empty([self.plan.sizes[s] for s in axes])
            for x in range(self.plan.sizes[k]):
                table = self._aligned(large, axes, k, x)
                if small is None:
                    out[...] = table
                else:
                    self.arithmetic.times(self._aligned(small, axes, k, x), table, out=out)
                yield out

        return axes, products()

    def _message(self, k):
        """Sum of the products of a step over the states of its unit."""
        factors, total, choice = self._factors(k), None, None
        axes, products = self._by_states(k, factors)
        for x, product in enumerate(products):
            if total is None:
                total = np.array(product)
                if self.choices is not None:
                    choice = np.zeros(total.shape, np.min_scalar_type(self.plan.sizes[k]))
                continue
            if choice is not None:
                choice[product > total] = x
            self.arithmetic.plus(total, product, out=total)
        if choice is not None:
            self.choices.append((axes, choice))
        low, high = (sum(f[at] for f in factors) for at in (2, 3))
        message = _Factor(total, axes, low, high + math.log(self.plan.sizes[k]))
        return self._scaled(message) if axes and self.arithmetic.is_log else message

    def forward(self, keeps):
        """The log-partition; messages are kept for `backward` unless they are made again there."""
        last = self.starts[-1] if keeps else math.inf
        for k, separator in enumerate(self.plan.separators):
            self.messages[k] = self._message(k)
            if not separator:
                is_log, value = self.arithmetic.is_log, float(self.messages[k].table)
                if value == (-math.inf if is_log else 0.0):
                    return -math.inf
                self.constants.append(value if is_log else math.log(value))
                self.messages[k] = _Factor(np.array(-value if is_log else 1 / value), ())
            for c in self.children[k]:
                if not keeps or (k < last and self._is_inner(c)):
                    self.messages[c] = None
        return math.fsum(self.constants)

    def _is_inner(self, k):
        """Whether the message of a step stays within one segment."""
        separator = self.plan.separators[k]
        return bool(separator) and not any(k < start <= separator[0] for start in self.starts)

    def backward(self):
        """Probabilities of units and of pairs; messages are replaced by p(s) / m(s)."""
        n = len(self.plan.order)
        units, pairs = [None] * n, [None] * self.n_edges
        for start, stop in reversed(list(zip(self.starts, [*self.starts[1:], n], strict=True))):
            for k in range(start, stop):
                if self.messages[k] is None:
                    self.messages[k] = self._message(k)
            for k in reversed(range(start, stop)):
                units[self.plan.order[k]] = self._marginals(k, pairs)
        return units, pairs

    def _marginals(self, k, pairs):
        """Probabilities of the unit of a step, and of its pairs; ratios of its messages."""
        is_log, size = self.arithmetic.is_log, self.plan.sizes[k]
        axes, products = self._by_states(k, self._factors(k))
        ratio, order = self.messages[k].table, [axes.index(j) for j, *_ in self.edges[k]]
        received = [self.messages[c] for c in self.children[k]]
        sums = [np.empty_like(factor.table) for factor in received]
        found, rows = np.empty(size), [np.empty((size, self.plan.sizes[j])) for j, *_ in self.edges[k]]
        for x, joint in enumerate(products):
            self.arithmetic.times(joint, ratio, out=joint)
            if is_log:
                np.exp(joint, out=joint)
            for factor, out in zip(received, sums, strict=True):
                rest = [s for s in factor.axes if s != k]
                at = (slice(None),) * factor.axes.index(k) + (x,)
                kept = [s for s in axes if s in rest]
                part = joint.sum(tuple(axes.index(s) for s in axes if s not in rest))
                out[at] = part.transpose([kept.index(s) for s in rest])
            left = joint.sum(tuple(a for a in range(joint.ndim) if a not in order))
            for at in sorted(range(len(order)), key=order.__getitem__):
                rows[at][x] = left.reshape(len(left), -1).sum(1)
                left = left.sum(0)
            found[x] = left
        for c, factor, out in zip(self.children[k], received, sums, strict=True):
            self.messages[c] = factor._replace(table=_ratio(out, factor, is_log))
        for (_, e, is_transposed), table in zip(self.edges[k], rows, strict=True):
            pairs[e] = table.T if is_transposed else table
        self.messages[k] = None
        return found


def _ratio(p, message, is_log):
    """p / m, 0 where no state is possible; its logarithm if m is one."""
    m, scale = message.table, message.scale
    if not is_log:
        np.divide(p, m, out=p, where=m > 0)
        return np.multiply(p, math.exp(-scale), out=p) if scale else p
    with np.errstate(divide="ignore"):
        np.log(p, out=p)
    np.subtract(p, m, out=p, where=m > -np.inf)
    return np.subtract(p, scale, out=p)
