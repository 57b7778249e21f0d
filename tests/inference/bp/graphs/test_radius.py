"""Uniqueness by the spectral radius of Mooij and Kappen."""

import itertools

import numpy as np
import pytest
from graph_models import Graph, cyclic

import fastmf as mf
from fastmf.inference.bp.graphs.radius import spectral_radius
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
