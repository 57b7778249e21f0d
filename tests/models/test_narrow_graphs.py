"""Sums in rounds over graphs of width two, against closed forms and elimination unit by unit."""

import itertools

import numpy as np
import pytest
from scipy.sparse import block_diag, coo_array, csr_array, diags_array

import fastmf as mf
from fastmf.models._elimination import sum_over_states
from fastmf.models._elimination_order import elimination_plan
from fastmf.models._narrow_graphs import reduction_of, sum_in_rounds
from fastmf.models._state_tables import Tables


def sums(tables, **options):
    """Marginals in rounds, with the core one unit after the other, and the number of its units."""
    reduction = reduction_of(len(tables.sizes), tables.edges)
    plan = elimination_plan(tables.sizes[reduction.core], reduction.edges)
    result = sum_in_rounds(
        tables, reduction, lambda core: sum_over_states(core, plan, **options), **options
    )
    return result, len(reduction.core)


def narrow_graph(n, rng, share=0.8):
    """Edges of a random graph of width two at most: a part of those of a tree of triangles."""
    pairs = [(0, 1)]
    for unit in range(2, n):
        a, b = pairs[rng.integers(len(pairs))]
        pairs += [(a, unit), (b, unit)]
    number = rng.permutation(max(n, 2))
    pairs = [pair for pair in pairs if n > 1 and rng.random() < share]
    return np.sort(number[np.array(pairs, int).reshape(-1, 2)])


def tables_of(sizes, edges, rng):
    couplings = [3 * rng.normal(size=(sizes[i], sizes[j])) for i, j in edges]
    return Tables.of([2 * rng.normal(size=q) for q in sizes], edges, couplings)


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
        best, expected = sums(tables, maximum=True)[0], sum_over_states(tables, plan, maximum=True)
        np.testing.assert_array_equal(best.units, expected.units)
        np.testing.assert_array_equal(best.pairs, expected.pairs)


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
