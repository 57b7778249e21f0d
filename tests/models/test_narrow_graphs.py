"""Sums in rounds over graphs of width two, against enumeration and elimination unit by unit."""

import itertools

import numpy as np
import pytest
from scipy.sparse import block_diag, coo_array, csr_array, diags_array

import fastmf as mf
from fastmf.models._elimination import sum_over_states
from fastmf.models._elimination_order import elimination_plan
from fastmf.models._narrow_graphs import n_bytes_of, reduction_of, sum_in_rounds
from fastmf.models._state_tables import Tables


def sums(tables, **options):
    """Marginals in rounds, with the core one unit after the other, and the number of its units."""
    reduction = reduction_of(len(tables.sizes), tables.edges)
    plan = elimination_plan(tables.sizes[reduction.core], reduction.edges)
    result = sum_in_rounds(
        tables, reduction, lambda core: sum_over_states(core, plan, **options), **options
    )
    return result, len(reduction.core)


def labels_of(tables, units):
    """State of each unit that has the probability 1."""
    np.testing.assert_array_equal(np.add.reduceat(units, tables.first), 1)
    return (np.flatnonzero(units) - tables.first).tolist()


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
    return Tables.of([2 * rng.normal(size=q) for q in sizes], edges, couplings)


def enumerated(tables):
    """Log-partition, probabilities of units and edges, and the most probable state."""
    sizes, (fields, couplings) = tables.sizes.tolist(), tables.arrays()
    states = np.array(list(itertools.product(*map(range, sizes))))
    logs = sum(f[states[:, k]] for k, f in enumerate(fields))
    for (i, j), table in zip(tables.edges, couplings, strict=True):
        logs = logs + table[states[:, i], states[:, j]]
    log_z = np.logaddexp.reduce(logs)
    w = np.exp(logs - log_z)
    units = [np.bincount(states[:, k], w, q) for k, q in enumerate(sizes)]
    pairs = []
    for i, j in tables.edges:
        flat = np.bincount(states[:, i] * sizes[j] + states[:, j], w, sizes[i] * sizes[j])
        pairs.append(flat)
    units, pairs = (np.concatenate([np.zeros(0), *part]) for part in (units, pairs))
    return log_z, units, pairs, states[logs.argmax()], logs.max()


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
    log_z, units, pairs, state, largest = enumerated(tables)
    found, n_core = sums(tables)
    assert n_core == 0 or seed >= 15
    if log_z == -np.inf:
        assert found.log_partition == -np.inf
        return
    assert abs(found.log_partition - log_z) < 1e-11
    assert abs(sums(tables, averages=False)[0].log_partition - log_z) < 1e-11
    np.testing.assert_allclose(found.units, units, atol=1e-12)
    np.testing.assert_allclose(found.pairs, pairs, atol=1e-12)
    best, _ = sums(tables, maximum=True)
    assert abs(best.log_partition - largest) < 1e-11
    assert labels_of(tables, best.units) == state.tolist()
    _, row, column = tables.pairs()
    np.testing.assert_array_equal(best.pairs, best.units[row] * best.units[column])


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
        (found, n_core), expected = sums(tables), sum_over_states(tables, plan)
        assert n_core == (0 if seed < 2 else 8)
        assert abs(found.log_partition - expected.log_partition) < 1e-9
        np.testing.assert_allclose(found.units, expected.units, atol=1e-11)
        np.testing.assert_allclose(found.pairs, expected.pairs, atol=1e-11)
        best = sum_over_states(tables, plan, maximum=True)
        assert labels_of(tables, sums(tables, maximum=True)[0].units) == labels_of(
            tables, best.units
        )


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
