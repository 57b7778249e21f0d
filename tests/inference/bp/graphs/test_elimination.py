"""Exact sums of graphs of small width, against enumeration."""

import numpy as np
from graph_models import Graph, cyclic, grid_couplings

import fastmf as mf
from fastmf.inference.bp.graphs import elimination
from fastmf.inference.bp.graphs.units import GraphUnits


def test_sums_are_those_of_enumeration():
    for _, edges, n in cyclic():
        graph = Graph(edges, n, 2.0, forbidden=0.2, seed=n)
        clamp = np.full(n, -1)
        clamp[n // 2] = 0
        for held in (None, clamp):
            found = elimination.eliminated_units(GraphUnits(graph.machine(), clamp=held), 2**20, {})
            log_partition, marginals, pairs, _ = graph.solve(clamp=held)
            assert np.isclose(found.log_partition, log_partition, rtol=1e-12)
            assert np.allclose(found.units, marginals, atol=1e-12)
            right = np.concatenate([pairs[edge].ravel() for edge in graph.edges])
            assert np.allclose(found.pairs, right, atol=1e-12)


def test_nothing_where_tables_are_large_or_no_state_is_left():
    wide = mf.BoltzmannMachine(grid_couplings(8), mf.Ising(np.zeros(64)))
    assert elimination.eliminated_units(GraphUnits(wide), 100.0, {}) is None
    impossible = mf.BoltzmannMachine(
        _forbidden(),
        mf.Categorical(np.zeros((2, 2))),
    )
    found = elimination.eliminated_units(GraphUnits(impossible), 2**20, {})
    assert found.log_partition == -np.inf and not found.units.any() and not found.pairs.any()


def _forbidden():
    couplings = np.zeros((4, 4))
    couplings[:2, 2:] = couplings[2:, :2] = -np.inf
    return couplings
