"""Graphs of machines: against loops over pairs of units."""

import numpy as np
import pytest
from scipy import sparse

import fastmf as mf
from fastmf.models._graph import pairwise_graph
from tests.models.test_couplings import SIZES, groups, spins, tables


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_scalar_units(make):
    couplings, prior = spins(np.random.default_rng(0))
    graph = pairwise_graph(mf.BoltzmannMachine(make(couplings), prior))
    pairs = [(i, j) for i in range(7) for j in range(i + 1, 7) if couplings[i, j]]
    assert graph.edges.tolist() == list(map(list, pairs)) and graph.edges.dtype == np.int64
    assert graph.values.tolist() == [couplings[pair] for pair in pairs]
    assert graph.n_states.tolist() == [2] * 7
    assert graph.offsets.tolist() == list(range(len(pairs) + 1))


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("forbidden", [False, True])
def test_groups_of_unequal_sizes(make, forbidden):
    rng = np.random.default_rng(1)
    couplings, prior = tables(rng, forbidden=forbidden), groups(rng)
    couplings[2, 5] = couplings[5, 2] = 0  # an entry of a table
    graph = pairwise_graph(mf.BoltzmannMachine(make(couplings), prior))
    assert graph.edges.tolist() == [[0, 1], [0, 3], [1, 2]]
    assert graph.n_states.tolist() == list(SIZES)
    starts = np.cumsum([0, *SIZES])
    for e, (i, j) in enumerate(graph.edges):
        table = graph.values[graph.offsets[e] : graph.offsets[e + 1]].reshape(SIZES[i], SIZES[j])
        expected = couplings[starts[i] : starts[i + 1], starts[j] : starts[j + 1]]
        np.testing.assert_array_equal(table, expected)


def test_units_of_several_kinds():
    zero = np.zeros(1)
    prior = mf.Concatenated(
        mf.Ising(zero), mf.Categorical(np.zeros((1, 3))), mf.Gaussian(zero, zero + 1)
    )
    couplings = np.zeros((5, 5))
    couplings[0, 2:5] = couplings[2:5, 0] = 1, 2, 3
    graph = pairwise_graph(mf.BoltzmannMachine(couplings, prior))
    assert graph.n_states.tolist() == [2, 3, 0]
    assert graph.edges.tolist() == [[0, 1], [0, 2]]
    assert graph.values.tolist() == [0, 1, 2, 3] and graph.offsets.tolist() == [0, 3, 4]


def test_no_edges():
    graph = pairwise_graph(mf.BoltzmannMachine(np.zeros((2, 2)), mf.Ising(np.zeros(2))))
    assert graph.edges.shape == (0, 2) and graph.offsets.tolist() == [0]
    none = mf.BoltzmannMachine(sparse.csr_array((4, 4)), mf.Categorical(np.zeros((2, 2))))
    assert pairwise_graph(none).edges.shape == (0, 2)
