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
N_TRIED_ORDERS, FEW_BITS = 8, 12
# Bits by which all tables may be smaller in another order than in the first one: 2.9 at most in 40
# random graphs, 1.6 in 14 of the UAI competitions. Where more is needed no others are tried.
MAX_GAIN_BITS = 3
# Neighbours that are looked at until the search for one order, or for others, ends: some
# seconds, or one.
MAX_NEIGHBOURS, MAX_NEIGHBOURS_OF_OTHERS = 3 * 10**7, 10**7
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

    def n_bytes(self, kept):
        """Largest memory in use at a time.

        Parameters
        ----------
        kept : {"nothing", "choices", "messages", "cliques"}
            Results of all steps: nothing for the log-partition alone, one byte for each state
            of a separator to find the most probable state, or what marginals are made of.
        """
        if not self.complete or self.log2_total > MAX_BITS:
            return 8 * 2.0 ** min(self.log2_total, 1000.0)
        total = waiting = most = largest_step = 0
        arrived = [0] * len(self.order)
        for k, separator in enumerate(self.separators):
            message = math.prod(self.sizes[s] for s in separator)
            clique = message * self.sizes[k]
            # While contributions are added there are two sums, of which one is smaller, and then
            # the clique and two arrays of the size of its message, and masks of them.
            step = clique + max(clique // 2, 2 * message + message // 4)
            most = max(most, total + waiting + step)
            largest_step = max(largest_step, step)
            total += {"choices": message // 8, "messages": message, "cliques": clique}.get(kept, 0)
            if separator and kept != "messages":
                waiting += message
                arrived[separator[0]] += message
            waiting -= arrived[k]
        # Cliques that are not kept are made once more, in the opposite order.
        return 8 * (total + largest_step if kept == "messages" else most)


def elimination_plan(n_states, edges, max_bits=MAX_BITS):
    """The plan with the smallest tables among some min-fill orders.

    Parameters
    ----------
    n_states : int array of shape (n_units,)
    edges : int array of shape (n_edges, 2)
    max_bits : float
        Logarithm of the largest number of entries of use: plans with more may be incomplete.

    Returns
    -------
    EliminationPlan
    """
    bits = np.log2(n_states)
    k = max(int(max_bits / bits.min(initial=np.inf)), 1) if len(bits) else 0
    if _has_core(np.asarray(edges), len(bits), k):
        least = k * bits.min()
        return EliminationPlan([], [], [], k, least, least, False)
    neighbours, bits = [set() for _ in n_states], bits.tolist()
    for i, j in np.asarray(edges).tolist():
        neighbours[i].add(j)
        neighbours[j].add(i)
    best, work = None, 0
    for attempt in range(N_TRIED_ORDERS):
        noise = np.random.default_rng(attempt).random(len(bits)) if attempt else np.zeros(len(bits))
        search = _MinFill(neighbours, bits, noise.tolist())
        plan = search.plan(n_states, max_bits if attempt else max_bits + MAX_GAIN_BITS)
        if best is None or (plan.complete and plan.log2_total < best.log2_total):
            best = plan
        work += search.work
        ended = not best.complete or best.log2_largest <= FEW_BITS
        if ended or work > MAX_NEIGHBOURS_OF_OTHERS:
            break
    return best


def _has_core(edges, n_units, k):
    """Whether some units have k neighbours each among themselves: every width is at least k then.

    Units with fewer neighbours are left out, in 1000 rounds at most: then it is not known.
    """
    for _ in range(1000):
        degree = np.bincount(edges.ravel(), minlength=n_units)
        kept = (degree[edges] >= k).all(1)
        if kept.all():
            return len(edges) > 0
        edges = edges[kept]
    return False


class _MinFill:
    """Graph that loses one unit after the other, with the fill of each that is left."""

    def __init__(self, neighbours, bits, noise):
        self.neighbours, self.bits, self.noise = [set(a) for a in neighbours], bits, noise
        self.work = 0
        n = len(bits)
        self.fill = [self._fill(v) for v in range(n)]
        self.clique_bits = [bits[v] + sum(bits[u] for u in neighbours[v]) for v in range(n)]
        self.heap = [self._key(v) for v in range(n)]
        heapq.heapify(self.heap)

    def _fill(self, v):
        """Number of pairs of neighbours that are not neighbours themselves."""
        around = self.neighbours[v]
        d = len(around)
        self.work += 1
        if d < 2 or self.work > MAX_NEIGHBOURS:
            return 0
        n_twice = 0
        for u in around:
            self.work += min(d, len(self.neighbours[u]))
            n_twice += len(self.neighbours[u] & around)
        return (d * (d - 1) - n_twice) // 2

    def _key(self, v):
        return self.fill[v], self.clique_bits[v], self.noise[v], v

    def plan(self, n_states, max_bits=math.inf):
        """Eliminate all units, or only some if their cliques have more entries than are of use."""
        cliques, n_units, n_entries = [], len(self.bits), 0.0
        while self.heap and self.work <= MAX_NEIGHBOURS and n_entries <= 2.0**max_bits:
            key = heapq.heappop(self.heap)
            v = key[-1]
            if key == self._key(v) and self.neighbours[v] is not None:
                cliques.append((v, self.neighbours[v], self.clique_bits[v]))
                n_entries += 2.0 ** min(self.clique_bits[v], 1000.0)
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
        new = self._join(around) if self.fill[v] else {}
        n_new = sum(map(len, new.values())) // 2
        self.work += len(around)
        for u in around:
            self.neighbours[u].discard(v)
            self.clique_bits[u] += sum(self.bits[x] for x in new.get(u, ())) - self.bits[v]
            if u in new:
                self.fill[u] = self._fill(u)
            else:
                # It was a neighbour of all others around, and v of none that u has elsewhere.
                elsewhere = len(self.neighbours[u]) - (len(around) - 1)
                self.fill[u] -= n_new + elsewhere
            heapq.heappush(self.heap, self._key(u))

    def _join(self, around):
        """Make all units around neighbours; return the new neighbours of each that has some."""
        new = {u: around - self.neighbours[u] - {u} for u in around}
        new = {u: others for u, others in new.items() if others}
        self.work += len(new) * len(around)
        changed = set()
        for u, x in ((u, x) for u, others in new.items() for x in others if u < x):
            self.work += min(len(self.neighbours[u]), len(self.neighbours[x]))
            common = (self.neighbours[u] & self.neighbours[x]) - around
            changed |= common
            for c in common:
                self.fill[c] -= 1
        for u, others in new.items():
            self.neighbours[u] |= others
        for c in changed:
            heapq.heappush(self.heap, self._key(c))
        return new
