"""Uniqueness by the spectral radius of Mooij and Kappen."""

import itertools

import numpy as np
import pytest
from bp_models import loopy
from graph_models import Graph, cyclic

import fastmf as mf
from fastmf.inference.bp.graphs import radius
from fastmf.inference.bp.graphs.radius import perron_bound, spectral_radius
from fastmf.inference.bp.graphs.units import GraphUnits


def radius_of(graph):
    """Spectral radius of the matrix over directed edges, written out."""
    directed = [*graph.edges, *(edge[::-1] for edge in graph.edges)]
    matrix = np.zeros((len(directed),) * 2)
    for row, (i, j) in enumerate(directed):
        table = graph.tables[min(i, j), max(i, j)]
        rows, columns = (list(itertools.combinations(range(size), 2)) for size in table.shape)
        largest = max(
            abs(table[a, b] + table[c, d] - table[a, d] - table[c, b])
            for a, c in rows
            for b, d in columns
        )
        for column, (k, other) in enumerate(directed):
            if other == i and k != j:
                matrix[row, column] = np.tanh(largest / 4)
    return abs(np.linalg.eigvals(matrix)).max()


@pytest.mark.parametrize("name, edges, n", list(cyclic()), ids=str)
@pytest.mark.parametrize("strength", [0.3, 2.0])
def test_bound_of_the_spectral_radius(name, edges, n, strength):
    graph = Graph(edges, n, strength)
    found, exact = spectral_radius(GraphUnits(graph.machine())), radius_of(graph)
    assert exact * (1 - 1e-6) <= found <= exact * 1.05


def test_two_valued_units():
    couplings = 0.4 * (np.ones((3, 3)) - np.eye(3))
    for units, strength in ((mf.Ising, 0.4), (mf.Bernoulli, 0.1)):
        model = mf.BoltzmannMachine(couplings, units(np.zeros(3)))
        assert abs(spectral_radius(GraphUnits(model)) - np.tanh(strength)) < 1e-6
    frozen = mf.BoltzmannMachine(1000 * couplings, mf.Ising(np.zeros(3)))
    assert mf.belief_propagation(frozen).unique is None


def test_layers():
    """The bound is the largest eigenvalue of the edge-to-edge matrix; trees get less than 1."""
    model = loopy(4, 3, prior=mf.Ising, scale=0.4)
    edges = list(itertools.product(range(4), range(3)))
    both = [(("v", i), ("h", j)) for i, j in edges] + [(("h", j), ("v", i)) for i, j in edges]
    strength = dict(zip(edges, np.tanh(abs(model.weights)).ravel(), strict=True))
    matrix = np.zeros((24, 24))
    for a, (source, target) in enumerate(both):
        i, j = (source[1], target[1]) if source[0] == "v" else (target[1], source[1])
        for b, (first, second) in enumerate(both):
            if second == source and first != target:
                matrix[a, b] = strength[i, j]
    expected = abs(np.linalg.eigvals(matrix)).max()
    result = mf.belief_propagation(model)
    assert result.spectral_radius >= expected - 1e-9
    assert result.spectral_radius == pytest.approx(expected, rel=1e-3)
    zero = mf.RBM(np.zeros((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    assert mf.belief_propagation(zero).spectral_radius < 1


@pytest.mark.parametrize("max_iter", [1, 3, 200])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_bound_of_matrices_holds_after_any_number_of_iterations(monkeypatch, max_iter, scale):
    monkeypatch.setattr(radius, "MAX_POWER_ITERATIONS", max_iter)
    rng = np.random.default_rng(0)
    for share in (0.1, 0.5, 1.0):
        matrix = scale * rng.exponential(size=(12, 12)) * (rng.random((12, 12)) < share)
        exact = abs(np.linalg.eigvals(matrix)).max()
        found = perron_bound(lambda x, matrix=matrix: matrix @ x, np.ones(12))
        assert found >= exact * (1 - 1e-9)
        if max_iter == 200 and share > 0.1:
            assert found < exact * (1 + 1e-4)
