"""algorithm="auto": exact where that is quick, and otherwise the best of several starts."""

import numpy as np
import pytest
from graph_models import Graph, cyclic, forests

import fastmf as mf
from fastmf.inference.bp import belief_propagation as module
from fastmf.inference.checks import judge


def check_exact(graph, clamp=None):
    """Check the log-partition, marginals and pairs against enumeration; return the result."""
    found = mf.belief_propagation(graph.machine(), algorithm="auto", clamp=clamp, pairwise=True)
    log_partition, marginals, pairs, _ = graph.solve(clamp=clamp)
    assert np.isclose(found.log_partition, log_partition, rtol=1e-12)
    assert np.allclose(found.mean, marginals, atol=1e-12)
    for edge in graph.edges:
        assert np.allclose(found.table(*edge), pairs[edge], atol=1e-12)
    return found


def test_small_graphs_are_exact():
    for _, edges, n in (*cyclic(), *forests()):
        graph = Graph(edges, n, 2.0, seed=n)
        found = check_exact(graph)
        assert found.reliable and found.converged
        assert found.method in ("elimination", "belief propagation")
        assert ("exact" in found.message) == (found.method == "elimination")


def test_forbidden_pairs_and_clamps_are_exact():
    for _, edges, n in cyclic():
        graph = Graph(edges, n, 2.0, forbidden=0.2, seed=n)
        clamp = np.full(n, -1)
        clamp[n // 2] = 0
        for held in (None, clamp):
            check_exact(graph, held)


def test_nothing_is_possible():
    couplings = np.zeros((6, 6))
    for i, j in ((0, 2), (2, 4), (0, 4)):
        couplings[i : i + 2, j : j + 2] = couplings[j : j + 2, i : i + 2] = -np.inf
    impossible = mf.BoltzmannMachine(couplings, mf.Categorical(np.zeros((3, 2))))
    found = mf.belief_propagation(impossible, algorithm="auto")
    assert found.log_partition == -np.inf and not found.converged and not found.mean.any()


@pytest.mark.parametrize("units", [mf.Ising, mf.Bernoulli])
def test_spins_with_rows_clamps_and_pairs(units):
    rng = np.random.default_rng(0)
    couplings = np.triu(rng.normal(size=(6, 6)), 1)
    model = mf.BoltzmannMachine(couplings + couplings.T, units(rng.normal(size=6)))
    fields, clamp = rng.normal(size=(3, 6)), np.array([1, *[np.nan] * 5])
    found = mf.belief_propagation(model, algorithm="auto", field=fields, clamp=clamp, pairwise=True)
    assert found.reliable.all() and found.mean.shape == (3, 6)
    for k in range(3):
        exact = mf.exact(model, field=fields[k], clamp=clamp)
        assert np.isclose(found.log_partition[k], exact.log_partition)
        assert np.allclose(found.mean[k], exact.mean) and np.allclose(found.var[k], exact.var)
        i, j = found.edges.T
        assert np.allclose(found.pairwise[k], exact.pairwise[i, j])


def test_layers():
    rng = np.random.default_rng(1)
    model = mf.RBM(rng.normal(size=(6, 4)) * 3, mf.Ising(np.zeros(6)), mf.Bernoulli(np.ones(4)))
    found, exact = mf.belief_propagation(model, algorithm="auto"), mf.exact(model)
    assert np.isclose(found.log_partition, exact.log_partition)
    assert all(map(np.allclose, found.mean, exact.mean)) and found.method == "elimination"


def test_several_starts_where_tables_are_large(monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTRIES", 0)
    monkeypatch.setattr(judge, "MAX_ENTRIES", 1)
    monkeypatch.setattr(judge, "MAX_NUMBERS", 1)
    couplings = (np.ones((10, 10)) - np.eye(10)) / 2
    model = mf.BoltzmannMachine(couplings, mf.Ising(np.full(10, 0.02)))
    found, exact = mf.belief_propagation(model, algorithm="auto"), mf.exact(model)
    assert found.method == "several starts"
    assert abs(found.log_partition - exact.log_partition) < 0.1
    assert abs(found.mean - exact.mean).max() < 0.05
    weak = mf.BoltzmannMachine(couplings / 10, mf.Ising(np.full(10, 0.02)))
    assert mf.belief_propagation(weak, algorithm="auto").method == "belief propagation"


def test_what_is_not_available():
    model = mf.BoltzmannMachine(np.zeros((3, 3)), mf.Ising(np.zeros(3)))
    with pytest.raises(ValueError, match="init"):
        mf.belief_propagation(model, algorithm="auto", init=np.zeros(0))


def test_checks_of_layers_are_kept():
    rng = np.random.default_rng(0)
    sizes = 60, 40
    layers = [mf.Bernoulli(rng.normal(size=n)) for n in sizes]
    model = mf.RBM(rng.normal(size=sizes) / 2, *layers)
    found, one = mf.belief_propagation(model, algorithm="auto"), mf.belief_propagation(model)
    assert found.method == "belief propagation" and found.reliable == one.reliable
    assert found.message == one.message
    clamp = np.r_[1.0, np.full(59, np.nan)]
    fixed = mf.belief_propagation(model, clamp=(clamp, None))
    assert fixed.reliable is not None


def test_graphs_that_are_too_large_for_checks_have_one_start(monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTRIES", 0)
    model = Graph([(0, 1), (1, 2), (0, 2)], 3).machine()
    one = mf.belief_propagation(model)
    monkeypatch.setattr(type(one), "reliable", property(lambda found: None))
    found = mf.belief_propagation(model, algorithm="auto")
    assert found.method == "belief propagation"
    assert found.log_partition == one.log_partition


def colouring(n_units, n_colours):
    """All units coupled, no two of one colour."""
    same = np.kron(1 - np.eye(n_units), np.eye(n_colours)) > 0
    prior = mf.Categorical(np.zeros((n_units, n_colours)))
    return mf.BoltzmannMachine(np.where(same, -np.inf, 0.0), prior)


def test_a_colouring_that_does_not_exist_is_infeasible():
    """Three units that all differ, of two colours; with three there are six states."""
    found = mf.belief_propagation(colouring(3, 2), algorithm="auto")
    assert not found.converged and not found.reliable and found.log_partition == -np.inf
    assert "infeasible" in found.message and not found.mean.any()
    summed = mf.belief_propagation(colouring(3, 2))
    assert not summed.reliable and "no state is possible" in summed.message
    best = mf.most_probable(colouring(3, 2))
    assert not best.converged and best.objective == -np.inf
    assert "no assignment that is possible" in best.message
    assert mf.most_probable(colouring(3, 3)).objective == 0
    possible = mf.belief_propagation(colouring(3, 3), algorithm="auto")
    assert possible.reliable and np.isclose(possible.log_partition, np.log(6))
    rows = np.array([[np.nan] * 3, [0, 0, np.nan], [1, np.nan, np.nan]])
    some = mf.belief_propagation(colouring(3, 3), algorithm="auto", clamp=rows)
    assert some.converged.tolist() == [True, False, True]
    assert np.allclose(np.exp(some.log_partition), [6, 0, 2])
