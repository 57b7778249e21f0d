"""Exact sums over the states of a pairwise graph, by variable elimination.

Steps are numbered in the order of elimination. The factors of step k are the weights of the states
of its unit, its couplings to later units, and messages of earlier steps. They are multiplied and
summed over the states x of the unit. The result is a message, a table over the units of the
separator s of the step, which is sent to the first of their steps:

    m_k(s) = sum_x A(x, s) B(x, s),    p(x, s) = A(x, s) B(x, s) p(s) / m_k(s)

The factors are divided into two groups with the products A and B, each a table over a part of the
units, so that the sum is a matrix product. Messages with empty separators are constants whose
product is Z. In the opposite order, p(s) / m(s) is summed over the units that A (or B) does not
contain; times A (or B), it gives probabilities of units and pairs, and p(s) of the messages in the
group. No table over a unit and its whole separator is made. Weights are scaled; if rounding could
lose small weights that matter, because the logarithms of the factors of a step span more than
`MAX_SPAN`, all sums use logarithms. Marginals need all messages.

The order determines the size of tables, as the neighbours of an eliminated unit, its separator,
become neighbours of one another; to find the best order is NP-hard. The cheapest of three is taken:
the order of the units, without a search; reverse Cuthill-McKee, for grids and chains of layers; and
weighted minimum fill, which next eliminates the unit whose neighbours need the fewest new pairs of
states (Kjaerulff 1990).
"""

import heapq
import math
from dataclasses import dataclass
from sys import float_info, maxsize
from typing import NamedTuple

import numpy as np
import scipy

from fastmf._threads.workers import computed_once
from fastmf.models._state_tables import Marginals

# Largest span of logarithms of a product, such that sums of 1 / epsilon products are finite.
MAX_SPAN = math.log(float_info.max * float_info.epsilon)


class _Arithmetic(NamedTuple):
    """Operations on weights: plain, on logarithms, or on logarithms with maxima as sums."""

    times: np.ufunc
    plus: np.ufunc
    is_log: bool


PLAIN = _Arithmetic(np.multiply, np.add, False)
LOGARITHMS = _Arithmetic(np.add, np.logaddexp, True)
MAX_LOGARITHMS = _Arithmetic(np.add, np.maximum, True)


class _SpanError(ArithmeticError):
    """The logarithms of the weights of a step span more than the range of float64."""


class _Factor(NamedTuple):
    """A table over the units of some steps, its axes, and bounds of logarithms of its weights.

    `scale` is the logarithm of the number by which its weights were divided.
    """

    table: np.ndarray
    axes: tuple
    low: float = 0.0
    high: float = 0.0
    scale: float = 0.0


def sum_over_states(tables, plan, averages=True, maximum=False):
    """Compute `Marginals` of `tables`; with `maximum`, the best state has all the weight."""
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
    """Tables of a graph by steps of its elimination, with the messages that each step receives."""

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
        # Factors of each step, with the list, and the place in it, for their probabilities.
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
        """Return the weights of tables that begin at `starts`, and their smallest logarithms."""
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
        """Return the factors of a step and their places, scaled so that products are finite."""
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
        """Scale a factor to a largest weight of 1, or a logarithm of 0; store the constant."""
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
        """Return a view of a table with these axes, of length 1 if missing, at some states."""
        table, steps = factor.table, factor.axes
        if at:
            table = table[tuple(at.get(s, slice(None)) for s in steps)]
            steps = [s for s in steps if s not in at]
        if steps == axes:
            return table
        table = table.transpose([steps.index(s) for s in axes if s in steps])
        return table.reshape([self.plan.sizes[s] if s in steps else 1 for s in axes])

    def _groups(self, factors, k):
        """Return two groups of factors of a step, with their places, and both products."""
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
        """Sum the product of two factors over shared axes that are not in `keep`."""
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
        """Sum the product of the factors of a step over the states of its unit."""
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
        """Compute the log-partition; `keeps` says whether used messages are stored."""
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
        """Yield groups of factors of a step, and joint probabilities of the units of a group."""
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
        """Return p / m, 0 where no state is possible, or its logarithm if m is a logarithm."""
        m, out = self._aligned(message, p.axes), p.table
        if self.arithmetic.is_log:
            with np.errstate(divide="ignore"):
                np.log(out, out=out)
            np.subtract(out, m + message.scale, out=out, where=m > -np.inf)
        else:
            np.divide(out, m, out=out, where=m > 0)
            out *= math.exp(-message.scale)
        return p


# Maximum number of neighbours that a search for an order visits: some seconds.
MAX_NEIGHBOURS = 3 * 10**7
# Entries of a table up to which Python's calls take longer than the sums. If tables are not larger
# on average, no further order is tried; factors of such a step are in one group.
MAX_SMALL_ENTRIES = 512
# Logarithm of the largest number of entries that can be addressed.
MAX_BITS = math.log2(maxsize // 8)


@dataclass
class EliminationPlan:
    """Order of elimination, its cliques and their sizes."""

    order: list  # list of int: unit of each step
    # list of lists of int: for each step, the later steps of the units of its clique, ascending
    separators: list
    sizes: list  # list of int: states of the unit of each step
    # list of lists of int: for each step the later steps to whose units its unit is coupled,
    # by the numbers of the units
    partners: list
    width: int  # units of the largest separator
    # Logarithms of the numbers of entries, of the largest clique and of all cliques.
    log2_largest: float
    log2_total: float
    # False if the search was given up: then there is no order, and sizes are lower bounds.
    complete: bool = True

    @property
    def cost(self):
        """Logarithm of the product of memory and time, up to a constant."""
        return self.log2_largest + self.log2_total

    @property
    def n_message_entries(self):
        """Number of entries of all messages; infinite without an order."""
        return sum(map(self._size, self.separators)) if self.complete else math.inf

    def n_bytes(self, averages):
        """Return the peak memory; averages need the messages of all steps at once."""
        if not self.complete:
            return 8 * 2.0 ** min(self.log2_total, 1000.0)
        messages, work = self._entries()
        if averages:
            return 8 * (sum(messages) + max(work, default=0) + max(messages, default=0))
        waiting = peak = 0
        for k, separator in enumerate(self.separators):
            peak = max(peak, waiting + messages[k] + work[k])
            waiting += messages[k] if separator else 0
            waiting -= sum(messages[c] for c in self.children[k])
        return 8 * peak

    @computed_once
    def children(self):
        """Steps whose messages each step receives."""
        children = [[] for _ in self.order]
        for k, separator in enumerate(self.separators):
            if separator:
                children[separator[0]].append(k)
        return children

    @computed_once
    def groups(self):
        """Two groups of the factors of each step, numbered as field, couplings, messages.

        Factors are assigned, largest first, such that the products of both groups stay small;
        factors of a small clique are in one group.
        """
        return [self._groups_of(self._axes(k)) for k in range(len(self.order))]

    def _axes(self, k):
        """Return, for each factor of a step, the set of steps of its units."""
        separators = [{*self.separators[c]} for c in self.children[k]]
        return [{k}, *({k, j} for j in self.partners[k]), *separators]

    def _groups_of(self, axes):
        entries = [self._size(steps) for steps in axes]
        factors = sorted(range(len(axes)), key=lambda f: -entries[f])
        if self._size(set().union(*axes)) <= MAX_SMALL_ENTRIES:
            return factors, []
        groups, unions = ([], []), [set(), set()]
        for f in factors:
            sizes = [self._size(union | axes[f]) for union in unions]
            best = sizes.index(min(sizes))
            groups[best].append(f)
            unions[best] |= axes[f]
        return groups

    def _entries(self):
        """Count entries of the message of each step, and of the tables needed to compute it."""
        messages = list(map(self._size, self.separators))
        work = []
        for k, groups in enumerate(self.groups):
            axes = self._axes(k)
            small, large = sorted(self._size({k}.union(*(axes[f] for f in g))) for g in groups)
            # Both products, their copies as matrices, and probabilities of one group.
            work.append(2 * small + 4 * large)
        return messages, work

    def _size(self, steps):
        return math.prod(map(self.sizes.__getitem__, steps))


def elimination_plan(n_states, edges, max_bits=MAX_BITS):
    """Return the cheapest plan; incomplete if all plans have more than `2**max_bits` entries."""
    n, edges, bits = len(n_states), np.asarray(edges, np.int64).reshape(-1, 2), np.log2(n_states)
    if not n:
        return EliminationPlan([], [], [], [], 0, 0.0, 0.0)
    k = max(int(max_bits / bits.min()), 1)
    if _has_core(edges, n, k):
        least = k * bits.min()
        return EliminationPlan([], [], [], [], k, least, least, False)
    neighbours = [set() for _ in range(n)]
    for i, j in edges.tolist():
        neighbours[i].add(j)
        neighbours[j].add(i)
    bits, max_bits = bits.tolist(), max_bits + 1e-9  # rounding of sums of logarithms
    best = None
    cliques = (
        lambda: _cliques_of(range(n), neighbours, bits, max_bits),
        lambda: _cliques_of(_band_order(edges, n), neighbours, bits, max_bits),
        lambda: _MinFill(neighbours, n_states).cliques(max_bits),
    )
    for of_order in cliques:
        if best is not None and 2.0**best.log2_total <= MAX_SMALL_ENTRIES * n:
            break
        plan = _plan(n_states, of_order(), neighbours)
        if plan.complete and (best is None or plan.cost < best.cost):
            best, max_bits = plan, min(plan.log2_total, max_bits)
    return best or plan


def _has_core(edges, n_units, k):
    """Whether a graph has a k-core, which implies that the width of each order is at least k.

    Units with fewer neighbours are removed in at most 1000 rounds; False if these do not suffice.
    """
    for _ in range(1000):
        degree = np.bincount(edges.ravel(), minlength=n_units)
        in_core = (degree[edges] >= k).all(1)
        if in_core.all():
            return len(edges) > 0
        edges = edges[in_core]
    return False


def _band_order(edges, n):
    """Return an order of units in which neighbours are close."""
    graph = scipy.sparse.coo_array((np.ones(len(edges)), tuple(edges.T)), shape=(n, n)).tocsr()
    return scipy.sparse.csgraph.reverse_cuthill_mckee(
        (graph + graph.T).tocsr(), symmetric_mode=True
    ).tolist()


def _cliques_of(order, neighbours, bits, max_bits):
    """Yield (unit, neighbours, bits) of the clique of each step of an order, up to a total size."""
    place = dict(zip(order, range(len(order)), strict=True))
    waiting, n_entries = [[] for _ in order], 0.0
    for v in order:
        around = {u for u in neighbours[v] if place[u] > place[v]}.union(*waiting[place[v]])
        around.discard(v)
        waiting[place[v]] = ()
        size = sum(map(bits.__getitem__, around), bits[v])
        n_entries += 2.0 ** min(size, 1000.0)
        yield v, around, size
        if n_entries > 2.0**max_bits:
            return
        if around:
            waiting[min(place[u] for u in around)].append(around)


def _plan(n_states, cliques, neighbours):
    """Make the plan from the cliques of all steps; incomplete if some are missing."""
    cliques, n_units = list(cliques), len(n_states)
    sizes = np.array([bits for _, _, bits in cliques])
    largest = float(sizes.max(initial=0.0))
    total = largest + float(np.log2(np.exp2(sizes - largest).sum())) if len(sizes) else 0.0
    width = max((len(around) for _, around, _ in cliques), default=0)
    if len(cliques) < n_units:
        return EliminationPlan([], [], [], [], width, largest, total, False)
    order = [v for v, _, _ in cliques]
    step = dict(zip(order, range(n_units), strict=True))
    separators = [sorted(step[u] for u in around) for _, around, _ in cliques]
    states = [int(n_states[v]) for v in order]
    partners = [[step[u] for u in sorted(neighbours[v]) if step[u] > step[v]] for v in order]
    return EliminationPlan(order, separators, states, partners, width, largest, total)


class _MinFill:
    """A graph from which units are eliminated, with the fill of each remaining unit.

    The fill of a unit is the number of pairs of states of its neighbours that are not adjacent.
    """

    def __init__(self, neighbours, n_states):
        self.states, n, self.work = list(map(int, n_states)), len(n_states), 0
        self.neighbours, self.fill = [set() for _ in range(n)], [0] * n
        # Sum of the states of the neighbours of each unit, and product of the states in its clique.
        self.around, self.size = [0] * n, self.states.copy()
        for u, x in ((u, x) for x, around in enumerate(neighbours) for u in around if u < x):
            if self.work <= MAX_NEIGHBOURS:
                self._connect(u, x)
        self.heap = [self._key(v) for v in range(n)]
        heapq.heapify(self.heap)

    def _states_of(self, units):
        self.work += len(units) + 1
        return sum(map(self.states.__getitem__, units))

    def _connect(self, u, x):
        """Make two units neighbours, and return their common neighbours."""
        common = self.neighbours[u] & self.neighbours[x]
        linked, pairs = self._states_of(common), self.states[u] * self.states[x]
        for c in common:
            self.fill[c] -= pairs
        for v, new in ((u, x), (x, u)):
            self.fill[v] += self.states[new] * (self.around[v] - linked)
            self.around[v] += self.states[new]
            self.size[v] *= self.states[new]
            self.neighbours[v].add(new)
        return common

    def _key(self, v):
        return self.fill[v], -self.size[v], v

    def cliques(self, max_bits):
        """Yield (unit, neighbours, bits) of the clique of each step, up to a total size."""
        n_entries = 0.0
        while self.heap and self.work <= MAX_NEIGHBOURS and n_entries <= 2.0**max_bits:
            key = heapq.heappop(self.heap)
            v = key[-1]
            if self.neighbours[v] is not None and key == self._key(v):
                bits = math.log2(self.size[v])
                yield v, self.neighbours[v], bits
                n_entries += 2.0 ** min(bits, 1000.0)
                self._eliminate(v)

    def _eliminate(self, v):
        around, self.neighbours[v] = self.neighbours[v], None
        for u in around:
            self.neighbours[u].discard(v)
            self.around[u] -= self.states[v]
            self.size[u] //= self.states[v]
            linked = self._states_of(self.neighbours[u] & around)
            self.fill[u] -= self.states[v] * (self.around[u] - linked)
        changed = set(around)
        for u in around if self.fill[v] else ():
            for x in around - self.neighbours[u] - {u}:
                changed |= self._connect(u, x)
        for c in changed:
            heapq.heappush(self.heap, self._key(c))
