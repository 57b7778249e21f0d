"""Sums in rounds over graphs of width two, against enumeration and elimination unit by unit."""

import itertools

import numpy as np
import pytest
from scipy.sparse import coo_array, diags_array

import fastmf as mf
from fastmf.models._elimination import Tables, most_probable_state, sum_over_states
from fastmf.models._elimination_order import elimination_plan
from fastmf.models._narrow_graphs import (
    most_probable_in_rounds,
    n_bytes_of,
    rounds_of,
    sum_in_rounds,
)


def narrow_graph(n, rng, share=0.8):
    """Edges of a random graph of width two at most: a part of those of a tree of triangles."""
    pairs = [(0, 1)]
    for unit in range(2, n):
        a, b = pairs[rng.integers(len(pairs))]
        pairs += [(a, unit), (b, unit)]
    number = rng.permutation(max(n, 2))
    pairs = [pair for pair in pairs if n > 1 and rng.random() < share]
    return number[np.array(pairs, int).reshape(-1, 2)]


def tables_of(sizes, edges, rng, forbidden=0.0):
    couplings = []
    for i, j in edges:
        table = 3 * rng.normal(size=(sizes[i], sizes[j]))
        couplings.append(np.where(rng.random(table.shape) < forbidden, -np.inf, table))
    return Tables([2 * rng.normal(size=q) for q in sizes], edges, couplings)


def enumerated(tables):
    """Log-partition, probabilities of units and edges, and the most probable state."""
    sizes = list(map(len, tables.fields))
    states = np.array(list(itertools.product(*map(range, sizes))))
    logs = sum(f[states[:, k]] for k, f in enumerate(tables.fields))
    for (i, j), table in zip(tables.edges, tables.couplings, strict=True):
        logs = logs + table[states[:, i], states[:, j]]
    log_z = np.logaddexp.reduce(logs)
    w = np.exp(logs - log_z)
    units = [np.bincount(states[:, k], w, q) for k, q in enumerate(sizes)]
    pairs = []
    for i, j in tables.edges:
        flat = np.bincount(states[:, i] * sizes[j] + states[:, j], w, sizes[i] * sizes[j])
        pairs.append(flat.reshape(sizes[i], sizes[j]))
    return log_z, units, pairs, states[logs.argmax()]


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs_against_enumeration(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    sizes = rng.integers(2, 4, size=n) if seed % 2 else np.full(n, 3)
    tables = tables_of(sizes, narrow_graph(n, rng), rng, forbidden=0.1 * (seed % 3))
    log_z, units, pairs, state = enumerated(tables)
    rounds = rounds_of(n, tables.edges)
    found = sum_in_rounds(tables, rounds)
    if log_z == -np.inf:
        assert found.log_partition == -np.inf
        return
    assert abs(found.log_partition - log_z) < 1e-11
    assert abs(sum_in_rounds(tables, rounds, False).log_partition - log_z) < 1e-11
    for ours, theirs in ((found.units, units), (found.pairs, pairs)):
        assert len(ours) == len(theirs)
        assert all(abs(a - b).max() < 1e-12 for a, b in zip(ours, theirs, strict=True))
    assert most_probable_in_rounds(tables, rounds).tolist() == state.tolist()


def test_larger_graphs_against_elimination_unit_by_unit():
    for seed, n in ((0, 60), (1, 300)):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(2, 5, size=n)
        tables = tables_of(sizes, narrow_graph(n, rng), rng)
        plan, rounds = elimination_plan(sizes, tables.edges), rounds_of(n, tables.edges)
        found, known = sum_in_rounds(tables, rounds), sum_over_states(tables, plan, "cliques")
        assert abs(found.log_partition - known.log_partition) < 1e-9
        for ours, theirs in ((found.units, known.units), (found.pairs, known.pairs)):
            assert all(abs(a - b).max() < 1e-11 for a, b in zip(ours, theirs, strict=True))
        most = most_probable_in_rounds(tables, rounds)
        assert most.tolist() == most_probable_state(tables, plan).tolist()


def test_graphs_that_are_wider_have_no_rounds():
    complete = np.stack(np.triu_indices(4, 1), 1)
    assert rounds_of(3, complete[[0, 1, 3]]) is not None
    assert rounds_of(4, complete) is None
    grid = [(4 * i + j, 4 * i + j + 1) for i in range(4) for j in range(3)]
    grid += [(4 * i + j, 4 * i + 4 + j) for i in range(3) for j in range(4)]
    assert rounds_of(16, np.array(grid)) is None
    # A long ladder has a width of two, but two units at each end that can be summed over.
    n = 5000
    rungs = np.arange(n)
    sides = np.arange(n - 1)
    ladder = np.concatenate([
        np.stack([rungs, rungs + n], 1), np.stack([sides, sides + 1], 1),
        np.stack([sides + n, sides + n + 1], 1),
    ])  # fmt: skip
    assert rounds_of(2 * n, ladder) is None
    assert len(rounds_of(0, np.zeros((0, 2), int))) == 0
    assert n_bytes_of(rounds_of(2, np.array([[0, 1]])), 3) >= 8 * 9


def chain(couplings, field):
    J = diags_array([couplings, couplings], offsets=[-1, 1], format="csr")
    return mf.BoltzmannMachine(J, mf.Ising(field))


def test_long_chain_by_closed_form():
    n = 200_001
    couplings = np.random.default_rng(0).normal(size=n - 1)
    found = mf.exact(chain(couplings, np.zeros(n)), mode=True)
    expected = np.log(2) + np.log(2 * np.cosh(couplings)).sum()
    assert abs(found.log_partition - expected) < 1e-9 * n
    assert abs(found.mean).max() < 1e-9
    assert (found.mode[1:] * found.mode[:-1] == np.sign(couplings)).all()
    assert abs(found.pairwise.diagonal(1) - np.tanh(couplings)).max() < 1e-9


def test_star_with_clamped_and_single_valued_units():
    n, rng = 3001, np.random.default_rng(1)
    w, field = rng.normal(size=n - 1), rng.normal(size=n)
    hub, leaf = np.zeros(n - 1, int), np.arange(1, n)
    J = coo_array((np.r_[w, w], (np.r_[hub, leaf], np.r_[leaf, hub])), shape=(n, n)).tocsr()
    model = mf.BoltzmannMachine(J, mf.Bernoulli(field))
    for clamp in (None, np.where(np.arange(n) % 3 == 1, 1.0, np.nan)):
        free = np.ones(n - 1, bool) if clamp is None else np.isnan(clamp[1:])
        logs = []
        for x in (0.0, 1.0):
            tilt = w * x + field[1:]
            logs.append(x * field[0] + np.where(free, np.logaddexp(0, tilt), tilt).sum())
        found = mf.exact(model, clamp=clamp)
        assert abs(found.log_partition - np.logaddexp(*logs)) < 1e-8
        assert abs(found.mean[0] - 1 / (1 + np.exp(logs[0] - logs[1]))) < 1e-9
