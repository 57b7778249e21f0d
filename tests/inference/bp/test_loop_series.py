"""The next term of the loop series against walks that are counted, rings and enumeration."""

import numpy as np
import pytest
from graph_models import Graph

import fastmf as mf
from fastmf.inference.bp.loop_series import (
    loop_correction,
    spin_correlations,
    state_covariances,
)


def walk_matrix(sizes, edges, covariances):
    """B, between directed edges, whose blocks are those of the pairs."""
    offsets = np.cumsum(sizes[edges].prod(1)) - sizes[edges].prod(1)
    directed = []
    for k, (i, j) in enumerate(edges):
        m = covariances[offsets[k] :][: sizes[i] * sizes[j]].reshape(sizes[i], sizes[j])
        directed += [(i, j, m), (j, i, m.T)]
    ends = np.cumsum([m.shape[0] for _, _, m in directed])
    out = np.zeros((ends[-1], ends[-1]))
    for a, (i, j, m) in enumerate(directed):
        for b, (k, target, other) in enumerate(directed):
            if k == j and target != i:
                block = np.s_[ends[a] - m.shape[0] : ends[a], ends[b] - other.shape[0] : ends[b]]
                out[block] = m
    return out


@pytest.mark.parametrize("sizes", [[1] * 5, [2, 3, 2, 4, 3]])
def test_it_is_the_determinant_of_walks_that_never_turn_back(sizes):
    sizes, rng = np.array(sizes), np.random.default_rng(0)
    edges = np.array([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 4)])
    m = rng.normal(size=sizes[edges].prod(1).sum()) / (8 if sizes[1] > 1 else 3)
    walks = walk_matrix(sizes, edges, m)
    right = -np.linalg.slogdet(np.eye(len(walks)) - walks)[1] / 2
    assert np.isclose(loop_correction(sizes, edges, m), right, rtol=1e-10)


@pytest.mark.parametrize("bound", ["MAX_DENSE", "none"])
def test_weak_graphs_are_closer_with_it(bound, monkeypatch):
    if bound != "none":
        monkeypatch.setattr("fastmf.inference.bp.loop_series.MAX_DENSE", 0)
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 0), (1, 3), (3, 4), (0, 4)]
    for seed in range(4):
        graph = Graph(edges, 5, 0.4, seed=seed)
        found = mf.belief_propagation(graph.machine(), pairwise=True)
        exact = graph.solve()[0]
        error = exact - found.log_partition
        assert abs(found.loop_correction - error) < 0.35 * abs(error)


def test_a_ring_is_right_to_first_order():
    couplings = np.roll(np.eye(6), 1, 1) * 0.4
    machine = mf.BoltzmannMachine(couplings + couplings.T, mf.Ising(np.zeros(6)))
    found, r = mf.belief_propagation(machine), np.tanh(0.4) ** 6
    assert np.isclose(found.loop_correction, -np.log(1 - r), rtol=1e-6)
    assert np.isclose(found.log_partition + np.log(1 + r), mf.exact(machine).log_partition)


def test_no_minimum_has_none_and_forests_have_zero():
    curie_weiss = mf.BoltzmannMachine(np.ones((6, 6)) - np.eye(6), mf.Ising(np.zeros(6)))
    found = mf.belief_propagation(curie_weiss)
    assert np.isnan(found.loop_correction)
    chain = np.diag([1.0, 2.0], 1)
    tree = mf.BoltzmannMachine(chain + chain.T, mf.Ising(np.ones(3)))
    assert mf.belief_propagation(tree).loop_correction == 0
    assert mf.most_probable(tree).loop_correction is None
    edges = np.array([(0, 1), (1, 2), (0, 2)])
    assert np.isnan(loop_correction(np.ones(3, int), edges, np.ones(3)))


def test_correlations_of_pairs_of_units():
    """The coupling of a pair of which marginals are known."""
    edges, rng = np.array([(0, 1)]), np.random.default_rng(0)
    for exponent in (-30.0, -2.0, 0.3, 5.0, 30.0, 400.0):
        field = rng.normal(size=2) * 2 - max(exponent, 0) / 2
        logs = np.array([[0, field[1]], [field[0], field.sum() + exponent]])
        table = np.exp(logs - logs.max())
        table /= table.sum()
        p = np.array([table[1].sum(), table[:, 1].sum()])
        q = np.array([table[0].sum(), table[:, 0].sum()])
        right = (table[1, 1] * table[0, 0] - table[1, 0] * table[0, 1]) / np.sqrt(np.prod(p * q))
        found = spin_correlations(p, q, np.array([exponent]), edges)[0]
        assert np.isclose(found, right, rtol=1e-6, atol=1e-9)
    certain = spin_correlations(np.array([1.0, 0.5]), np.array([1e-30, 0.5]), np.ones(1), edges)
    assert abs(certain[0]) < 1e-14
    beliefs = np.array([1.0, 0.0, 0.5, 0.5])
    found = state_covariances(beliefs, np.array([0.5, 0.5, 0, 0]), edges, np.array([2, 2]))
    assert abs(found).max() < 1e-12


def test_rows_and_several_starts():
    rng = np.random.default_rng(0)
    graph = Graph([(0, 1), (1, 2), (0, 2)], 3, 0.7, seed=1)
    fields = rng.normal(size=(2, graph.sizes.sum())) / 3
    found = mf.belief_propagation(graph.machine(), field=fields)
    assert found.loop_correction.shape == (2,)
    alone = mf.belief_propagation(graph.machine(), field=fields[1])
    assert np.isclose(found.loop_correction[1], alone.loop_correction)
    several = mf.mixture(mf.belief_propagation, graph.machine(), 4, field=fields[1])
    assert np.isclose(several.loop_correction, alone.loop_correction, rtol=1e-5)
