"""Sums in rounds over graphs of width two, against enumeration and elimination unit by unit."""

import itertools

import numpy as np
import pytest
from scipy.sparse import block_diag, coo_array, csr_array, diags_array

import fastmf as mf
from fastmf.models._elimination import Tables, most_probable_state, sum_over_states
from fastmf.models._elimination_order import elimination_plan
from fastmf.models._narrow_graphs import (
    most_probable_in_rounds,
    n_bytes_of,
    reduction_of,
    sum_in_rounds,
)


def sums(tables, averages=True):
    """Marginals and most probable state, in rounds, with the core one unit after the other."""
    sizes = np.array(list(map(len, tables.fields)))
    reduction = reduction_of(len(sizes), tables.edges)
    plan = elimination_plan(sizes[reduction.core], reduction.edges)
    found = sum_in_rounds(tables, reduction, lambda left: sum_over_states(left, plan), averages)
    state = most_probable_in_rounds(tables, reduction, lambda left: most_probable_state(left, plan))
    return found, state, len(reduction.core)


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
    edges = narrow_graph(n, rng)
    if seed >= 15 and n >= 4:  # any graph, which has a core of four units or more
        edges = np.array([e for e in itertools.combinations(range(n), 2) if rng.random() < 0.8])
        edges = np.where(rng.random((len(edges), 1)) < 0.5, edges, edges[:, ::-1]).reshape(-1, 2)
    tables = tables_of(sizes, edges, rng, forbidden=0.1 * (seed % 3))
    log_z, units, pairs, state = enumerated(tables)
    found, most, n_core = sums(tables)
    assert n_core == 0 or seed >= 15
    if log_z == -np.inf:
        assert found.log_partition == -np.inf
        return
    assert abs(found.log_partition - log_z) < 1e-11
    assert abs(sums(tables, False)[0].log_partition - log_z) < 1e-11
    for ours, theirs in ((found.units, units), (found.pairs, pairs)):
        assert len(ours) == len(theirs)
        assert all(abs(a - b).max() < 1e-12 for a, b in zip(ours, theirs, strict=True))
    assert most.tolist() == state.tolist()


def test_larger_graphs_against_elimination_unit_by_unit():
    for seed, n in ((0, 60), (1, 300), (2, 200)):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(2, 5, size=n)
        edges = narrow_graph(n, rng)
        if seed == 2:  # trees that hang from eight units, all of which are coupled
            core = itertools.combinations(range(8), 2)
            edges = np.array([*core, *((int(rng.integers(k)), k) for k in range(8, n))])
        tables = tables_of(sizes, edges, rng)
        plan = elimination_plan(sizes, tables.edges)
        (found, most, n_core), known = sums(tables), sum_over_states(tables, plan)
        assert n_core == (0 if seed < 2 else 8)
        assert abs(found.log_partition - known.log_partition) < 1e-9
        for ours, theirs in ((found.units, known.units), (found.pairs, known.pairs)):
            assert all(abs(a - b).max() < 1e-11 for a, b in zip(ours, theirs, strict=True))
        assert most.tolist() == most_probable_state(tables, plan).tolist()


def test_rounds_leave_a_core():
    def n_left(n, edges):
        return len(reduction_of(n, np.array(edges, int).reshape(-1, 2)).core)

    complete = list(itertools.combinations(range(4), 2))
    assert n_left(3, list(itertools.combinations(range(3), 2))) == 0
    assert n_left(4, complete) == 4
    assert n_left(9, [*complete, (0, 4), *((k, k + 1) for k in range(4, 8))]) == 4
    assert n_left(0, []) == 0
    # A long ladder has a width of two, but two units at each end that can be summed over.
    n = 5000
    ladder = [(k, k + n) for k in range(n)]
    ladder += [(k, k + 1) for k in [*range(n - 1), *range(n, 2 * n - 1)]]
    assert n_left(2 * n, ladder) == 2 * n
    pair = np.array([[0, 1]])
    assert n_bytes_of(reduction_of(2, pair).rounds, 3) >= 8 * 9
    left_alone = reduction_of(2, pair, 3, max_entries=5)
    assert not left_alone.rounds and left_alone.core.tolist() == [0, 1]


def test_a_long_chain_beside_a_dense_part():
    rng, n = np.random.default_rng(3), 4000
    J = np.triu(rng.normal(size=(9, 9)), 1)
    dense = mf.BoltzmannMachine(J + J.T, mf.Ising(rng.normal(size=9)))
    bonds = rng.normal(size=n)
    line = diags_array([bonds, bonds], offsets=[-1, 1])
    both = block_diag([csr_array(dense.couplings), line], format="csr")
    model = mf.BoltzmannMachine(both, mf.Ising(np.append(dense.prior.field, np.zeros(n + 1))))
    exact = mf.exact(dense)
    expected = exact.log_partition + np.log(2) + np.log(2 * np.cosh(bonds)).sum()
    found = mf.belief_propagation(model, algorithm="auto")
    assert found.method == "elimination" and found.reliable
    assert found.log_partition == pytest.approx(expected, rel=1e-12)
    assert abs(found.mean[:9] - exact.mean).max() < 1e-10
    (entry,) = mf.log_partition_report(model)
    assert entry.log_partition == pytest.approx(expected, rel=1e-12)


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
