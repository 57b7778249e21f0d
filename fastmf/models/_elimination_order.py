"""Order in which the units of a pairwise graph are eliminated, and the memory that this takes.

To eliminate a unit is to sum over its states: what remains is a table over its neighbours, its
separator, which are neighbours of one another from then on. The order decides how large these
tables become, and to find the best one is NP-hard. The cheapest of three orders is taken: the
numbers of the units, which takes no search; reverse Cuthill-McKee, for grids and chains of layers;
and weighted minimum fill, which eliminates next the unit whose neighbours need the fewest new pairs
of states (Kjaerulff 1990).
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np
import scipy

from fastmf._threads.workers import computed_once

# Neighbours that are looked at until the search for an order ends: some seconds.
MAX_NEIGHBOURS = 3 * 10**7
# Entries of a table up to which Python's calls take longer than the sums: no other order is looked
# for if tables are as small on average, and all factors of a step are in one group.
MAX_SMALL_ENTRIES = 512
# No machine has memory for tables of more entries.
MAX_BITS = 60


@dataclass
class EliminationPlan:
    """Order of elimination, its cliques and their sizes."""

    order: list  # list of int: unit of each step
    # list of lists of int: for each step the later steps whose units its clique has, ascending
    separators: list
    sizes: list  # list of int: states of the unit of each step
    # list of lists of int: for each step the later steps to whose units its unit is coupled,
    # by the numbers of the units
    partners: list
    width: int  # units of the largest separator
    # Logarithms of the numbers of entries of the largest clique and of all (this and the next).
    log2_largest: float
    log2_total: float
    # False if the search was given up: sizes are then lower bounds, and there is no order.
    complete: bool = True

    @property
    def cost(self):
        """Logarithm of the product of memory and time, but for factors that all orders share."""
        return self.log2_largest + self.log2_total

    @property
    def n_message_entries(self):
        """Entries of the tables that sums over units leave; infinite without an order."""
        if not self.complete:
            return math.inf
        return sum(map(self._size, self.separators))

    def n_bytes(self, averages):
        """Largest memory in use at a time; averages need the messages of all steps at once."""
        if not self.complete:
            return 8 * 2.0 ** min(self.log2_total, 1000.0)
        messages, work = self._entries()
        if averages:
            return 8 * (sum(messages) + max(work, default=0) + max(messages, default=0))
        waiting = most = 0
        for k, separator in enumerate(self.separators):
            most = max(most, waiting + messages[k] + work[k])
            waiting += messages[k] if separator else 0
            waiting -= sum(messages[c] for c in self.children[k])
        return 8 * most

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
        """Two groups of the factors of each step: its field, its couplings, and its messages.

        Factors are numbered in this order, and come largest first. The products of both groups are
        small; factors of a small clique are in one group.
        """
        return [self._groups_of(self._axes(k)) for k in range(len(self.order))]

    def _axes(self, k):
        """Sets of the steps of the factors of a step."""
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
        """Entries of the message of each step, and of the tables that are used to make it."""
        messages = list(map(self._size, self.separators))
        work = []
        for k, groups in enumerate(self.groups):
            axes = self._axes(k)
            small, large = sorted(self._size({k}.union(*(axes[f] for f in g))) for g in groups)
            # Both products, copies of them as matrices, and probabilities of one.
            work.append(2 * small + 4 * large)
        return messages, work

    def _size(self, steps):
        return math.prod(map(self.sizes.__getitem__, steps))


def elimination_plan(n_states, edges, max_bits=MAX_BITS):
    """The cheapest plan; incomplete if all have more than `2**max_bits` entries."""
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
    """Whether some units have k neighbours each among themselves: every width is at least k then.

    Units with fewer neighbours are left out, in 1000 rounds at most: then it is not known.
    """
    for _ in range(1000):
        degree = np.bincount(edges.ravel(), minlength=n_units)
        in_core = (degree[edges] >= k).all(1)
        if in_core.all():
            return len(edges) > 0
        edges = edges[in_core]
    return False


def _band_order(edges, n):
    """Order of units in which neighbours have close places."""
    graph = scipy.sparse.coo_array((np.ones(len(edges)), tuple(edges.T)), shape=(n, n)).tocsr()
    return scipy.sparse.csgraph.reverse_cuthill_mckee(
        (graph + graph.T).tocsr(), symmetric_mode=True
    ).tolist()


def _cliques_of(order, neighbours, bits, max_bits):
    """Unit, neighbours and bits of the clique of each step of a given order, while of use."""
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
    """The plan of the cliques of all steps; incomplete if some are missing."""
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
    """Graph that loses one unit after the other, with the fill of each that is left.

    The fill of a unit is the number of pairs of states of neighbours that are not neighbours.
    """

    def __init__(self, neighbours, n_states):
        self.neighbours, self.states = [set(a) for a in neighbours], list(map(int, n_states))
        self.bits = np.log2(n_states).tolist()
        self.work, n = 0, len(self.states)
        self.fill = [self._fill(v) for v in range(n)]
        self.heap = [self._key(v) for v in range(n)]
        heapq.heapify(self.heap)

    def _states_of(self, units):
        self.work += len(units)
        return sum(map(self.states.__getitem__, units))

    def _fill(self, v):
        around = self.neighbours[v]
        self.work += 1
        if len(around) < 2 or self.work > MAX_NEIGHBOURS:
            return 0
        total, twice = self._states_of(around), 0
        for u in around:
            linked = self._states_of(self.neighbours[u] & around)
            twice += self.states[u] * (total - self.states[u] - linked)
        return twice // 2

    def _key(self, v):
        around = self.neighbours[v] or ()
        return self.fill[v], -sum(map(self.bits.__getitem__, around), self.bits[v]), v

    def cliques(self, max_bits):
        """Unit, neighbours and bits of the clique of each step, while of use."""
        n_entries = 0.0
        while self.heap and self.work <= MAX_NEIGHBOURS and n_entries <= 2.0**max_bits:
            key = heapq.heappop(self.heap)
            v = key[-1]
            if self.neighbours[v] is not None and key == self._key(v):
                yield v, self.neighbours[v], -key[1]
                n_entries += 2.0 ** min(-key[1], 1000.0)
                self._eliminate(v)

    def _eliminate(self, v):
        around, self.neighbours[v] = self.neighbours[v], None
        for u in around:
            self.neighbours[u].discard(v)
        new = self._join(around) if self.fill[v] else {}
        for u in around:
            if u in new:
                self.fill[u] = self._fill(u)
            else:
                # It was a neighbour of all others around, and v of none that u has elsewhere.
                elsewhere = self._states_of(self.neighbours[u] - around)
                self.fill[u] -= self.fill[v] + self.states[v] * elsewhere
            heapq.heappush(self.heap, self._key(u))

    def _join(self, around):
        """Make all units around neighbours; return the new neighbours of each that has some."""
        new = {u: around - self.neighbours[u] - {u} for u in around}
        new = {u: added for u, added in new.items() if added}
        self.work += len(new) * len(around)
        changed = set()
        for u, x in ((u, x) for u, added in new.items() for x in added if u < x):
            self.work += min(len(self.neighbours[u]), len(self.neighbours[x]))
            common = (self.neighbours[u] & self.neighbours[x]) - around
            changed |= common
            for c in common:
                self.fill[c] -= self.states[u] * self.states[x]
        for u, added in new.items():
            self.neighbours[u] |= added
        for c in changed:
            heapq.heappush(self.heap, self._key(c))
        return new
