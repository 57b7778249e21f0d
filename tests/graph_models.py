"""Small pairwise graphs with tables, solved by enumeration of their states."""

import itertools

import numpy as np
from scipy.sparse import csr_array

import fastmf as mf


def forests():
    """Name, edges and number of units of graphs without cycles."""
    rng = np.random.default_rng(0)
    for n in (2, 5, 8):
        yield f"tree {n}", [(int(rng.integers(j)), j) for j in range(1, n)], n
    yield "star", [(0, 4), (1, 4), (2, 4), (3, 4)], 5
    yield "chain", [(5, 2), (2, 0), (0, 3), (3, 1), (1, 4)], 6
    yield "forest", [(0, 3), (3, 5), (1, 2)], 7
    yield "no edges", [], 3
    yield "one unit", [], 1


def cyclic():
    """Name, edges and number of units of graphs with cycles."""
    rng = np.random.default_rng(1)
    for n in (3, 4, 7):
        yield f"ring {n}", [(i, (i + 1) % n) for i in range(n)], n
    numbers = np.arange(9).reshape(3, 3)
    right = zip(numbers[:, :-1].ravel(), numbers[:, 1:].ravel(), strict=True)
    down = zip(numbers[:-1].ravel(), numbers[1:].ravel(), strict=True)
    yield "grid", [*right, *down], 9
    yield "complete", list(itertools.combinations(range(5), 2)), 5
    yield "random", [e for e in itertools.combinations(range(8), 2) if rng.random() < 0.4], 8
    yield "ring, tree and single unit", [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5)], 7


class Graph:
    """A machine of categorical units, and what enumeration says of it.

    Parameters
    ----------
    edges : list of pairs
    n : int
    strength : float
        Standard deviation of the exponents.
    forbidden : float
        Fraction of the pairs of states that are forbidden.
    """

    def __init__(self, edges, n, strength=1.0, forbidden=0.0, seed=0):
        rng = np.random.default_rng(seed)
        self.sizes = rng.integers(2, 4 if n > 7 else 5, n)
        self.edges = sorted(tuple(sorted(map(int, edge))) for edge in edges)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.fields = [rng.normal(size=size) for size in self.sizes]
        self.tables = {}
        for i, j in self.edges:
            table = rng.normal(size=(self.sizes[i], self.sizes[j])) * strength
            # With the first states of all units there is always a state.
            mask = rng.random(table.shape) < forbidden
            mask[0, 0] = False
            self.tables[i, j] = np.where(mask, -np.inf, table)

    def block(self, i):
        """States of a unit among all."""
        return slice(self.starts[i], self.starts[i] + self.sizes[i])

    def machine(self, sparse=True):
        """The `BoltzmannMachine`."""
        couplings = np.zeros((self.sizes.sum(),) * 2)
        for (i, j), table in self.tables.items():
            couplings[self.block(i), self.block(j)] = table
            couplings[self.block(j), self.block(i)] = table.T
        couplings = csr_array(couplings) if sparse else couplings
        return mf.BoltzmannMachine(couplings, mf.Categorical(self.fields))

    def solve(self, field=0.0, clamp=None):
        """log Z, marginals (flat), pair tables, and the largest exponent of a state."""
        ranges = [range(size) for size in self.sizes]
        for i, value in enumerate(() if clamp is None else clamp):
            if value >= 0:
                ranges[i] = [int(value)]
        states = np.array(list(itertools.product(*ranges)))
        flat = np.concatenate(self.fields) + field
        logs = flat[self.starts + states].sum(1)
        for (i, j), table in self.tables.items():
            logs = logs + table[states[:, i], states[:, j]]
        top = logs.max()
        weights = np.exp(logs - top)
        log_partition, weights = top + np.log(weights.sum()), weights / weights.sum()
        marginals = np.zeros(self.sizes.sum())
        for column, start in zip(states.T, self.starts, strict=True):
            np.add.at(marginals, start + column, weights)
        pairs = {}
        for i, j in self.edges:
            pairs[i, j] = np.zeros((self.sizes[i], self.sizes[j]))
            np.add.at(pairs[i, j], (states[:, i], states[:, j]), weights)
        return log_partition, marginals, pairs, top


def grid_couplings(n, coupling=1.0, torus=False):
    """Couplings of an n x n grid of units, sparse."""
    numbers = np.arange(n * n).reshape(n, n)
    pairs = [(numbers[:, :-1], numbers[:, 1:]), (numbers[:-1], numbers[1:])]
    if torus:
        pairs += [(numbers[:, -1], numbers[:, 0]), (numbers[-1], numbers[0])]
    first, second = (np.concatenate([pair[k].ravel() for pair in pairs]) for k in (0, 1))
    values = np.broadcast_to(coupling, first.shape).astype(float)
    upper = csr_array((values, (first, second)), shape=(n * n, n * n))
    return upper + upper.T
