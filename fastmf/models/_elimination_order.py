"""Order in which the units of a pairwise graph are eliminated, and the memory that this takes.

To eliminate a unit is to sum over its states: what remains is a table over its neighbours, its
separator, which are neighbours of one another from then on. The table before the sum, over the unit
and its separator, is a clique. The order decides how large cliques become. To find the best one is
NP-hard; here units that add the fewest new pairs of neighbours come first (min-fill), and of these
the ones with the smallest clique.
"""

import heapq
import math
from typing import NamedTuple

import numpy as np

# Orders that are tried, with random choices among equals, where the largest table has more bits.
N_ORDERS, FEW_BITS = 8, 12
# Pairs of neighbours that are looked at until the search for one order, or for others, ends: some
# seconds, or one.
MAX_WORK, MAX_WORK_OF_OTHERS = 10**8, 3 * 10**7
# No machine has memory for tables of more entries.
MAX_BITS = 60


class EliminationPlan(NamedTuple):
    """Order of elimination, its cliques and their sizes.

    Parameters
    ----------
    order : list of int
        Unit of each step.
    separators : list of lists of int
        For each step the later steps whose units its clique has, ascending.
    sizes : list of int
        States of the unit of each step.
    width : int
        Units of the largest separator.
    log2_largest, log2_total : float
        Logarithms of the numbers of entries of the largest clique and of all.
    complete : bool
        False if the search was given up: sizes are then lower bounds, and there is no order.
    """

    order: list
    separators: list
    sizes: list
    width: int
    log2_largest: float
    log2_total: float
    complete: bool = True

    def n_bytes(self, averages):
        """Largest memory in use at a time, with or without the tables that marginals need."""
        if not self.complete or self.log2_total > MAX_BITS:
            return 8 * 2.0 ** min(self.log2_total, 1000.0)
        kept = waiting = most = 0
        arrived = [0] * len(self.order)
        for k, separator in enumerate(self.separators):
            message = math.prod(self.sizes[s] for s in separator)
            clique = message * self.sizes[k]
            # While contributions are added there are two sums, of which one is smaller, and then
            # the clique and three arrays of the size of its message.
            most = max(most, kept + waiting + clique + max(clique // 2, 3 * message))
            kept += clique if averages else 0
            waiting += message - arrived[k] if separator else -arrived[k]
            if separator:
                arrived[separator[0]] += message
        return 8 * most


def elimination_plan(n_states, edges):
    """The plan with the smallest tables among some min-fill orders.

    Parameters
    ----------
    n_states : int array of shape (n_units,)
    edges : int array of shape (n_edges, 2)

    Returns
    -------
    EliminationPlan
    """
    neighbours = [set() for _ in n_states]
    for i, j in np.asarray(edges).tolist():
        neighbours[i].add(j)
        neighbours[j].add(i)
    bits = np.log2(n_states).tolist()
    smallest_width = _degeneracy(neighbours)
    fewest_bits = sum(sorted(bits)[: smallest_width + 1])
    if fewest_bits > MAX_BITS:
        return EliminationPlan([], [], [], smallest_width, fewest_bits, fewest_bits, False)
    best, work = None, 0
    for attempt in range(N_ORDERS):
        noise = np.random.default_rng(attempt).random(len(bits)) if attempt else np.zeros(len(bits))
        search = _MinFill(neighbours, bits, noise.tolist())
        plan = search.plan(n_states)
        if best is None or (plan.complete and plan.log2_total < best.log2_total):
            best = plan
        work += search.work
        if best.log2_largest <= FEW_BITS or work > MAX_WORK_OF_OTHERS:
            break
    return best


def _degeneracy(neighbours):
    """Largest smallest degree while units of smallest degree are taken out: width >= it."""
    degree = [len(a) for a in neighbours]
    heap = [(d, v) for v, d in enumerate(degree)]
    heapq.heapify(heap)
    found = 0
    while heap:
        d, v = heapq.heappop(heap)
        if d != degree[v]:
            continue
        found = max(found, d)
        degree[v] = -1
        for u in neighbours[v]:
            if degree[u] >= 0:
                degree[u] -= 1
                heapq.heappush(heap, (degree[u], u))
    return found


class _MinFill:
    """Graph that loses one unit after the other, with the fill of each that is left."""

    def __init__(self, neighbours, bits, noise):
        self.neighbours, self.bits, self.noise = [set(a) for a in neighbours], bits, noise
        self.work = 0
        n = len(bits)
        self.fill = [self._fill(v) for v in range(n)]
        self.clique_bits = [self._clique_bits(v) for v in range(n)]
        self.heap = [self._key(v) for v in range(n)]
        heapq.heapify(self.heap)

    def _fill(self, v):
        """Number of pairs of neighbours that are not neighbours themselves."""
        around = self.neighbours[v]
        d = len(around)
        self.work += 1 + d * d
        if d < 2 or self.work > MAX_WORK:
            return 0
        return (d * (d - 1) - sum(len(self.neighbours[u] & around) for u in around)) // 2

    def _clique_bits(self, v):
        return self.bits[v] + sum(self.bits[u] for u in self.neighbours[v])

    def _key(self, v):
        return self.fill[v], self.clique_bits[v], self.noise[v], v

    def plan(self, n_states):
        """Eliminate all units."""
        cliques, n_units = [], len(self.bits)
        while self.heap and self.work <= MAX_WORK:
            key = heapq.heappop(self.heap)
            v = key[-1]
            if key == self._key(v) and self.neighbours[v] is not None:
                cliques.append((v, self.neighbours[v], self.clique_bits[v]))
                self._eliminate(v)
        sizes = np.array([bits for _, _, bits in cliques])
        largest = sizes.max(initial=0.0)
        total = largest + np.log2(np.exp2(sizes - largest).sum()) if len(sizes) else 0.0
        width = max((len(around) for _, around, _ in cliques), default=0)
        if len(cliques) < n_units:
            return EliminationPlan([], [], [], width, largest, total, False)
        order = [v for v, _, _ in cliques]
        step = dict(zip(order, range(n_units), strict=True))
        separators = [sorted(step[u] for u in around) for _, around, _ in cliques]
        states = [int(n_states[v]) for v in order]
        return EliminationPlan(order, separators, states, width, float(largest), float(total))

    def _eliminate(self, v):
        around, self.neighbours[v] = self.neighbours[v], None
        changed = set(around)
        for u in around:
            self.neighbours[u].discard(v)
        if self.fill[v]:
            for u in around:
                changed |= self._join(u, around)
        for u in around:
            self.fill[u], self.clique_bits[u] = self._fill(u), self._clique_bits(u)
        for u in changed:
            heapq.heappush(self.heap, self._key(u))

    def _join(self, u, around):
        """Make u a neighbour of all around; return the others whose fill this makes smaller."""
        changed = set()
        for x in around - self.neighbours[u]:
            if x == u:
                continue
            common = (self.neighbours[u] & self.neighbours[x]) - around
            self.work += len(self.neighbours[u])
            for c in common:
                self.fill[c] -= 1
            changed |= common
            self.neighbours[u].add(x)
            self.neighbours[x].add(u)
        return changed
