"""Maxima for other weights, and weights of resampled rows."""

import numpy as np
import pytest
from scipy import sparse

from fastmf.learning.pseudo_likelihood.binary import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.fit import lbfgs, newton
from fastmf.learning.pseudo_likelihood.graph import coupled_units, edges_of
from fastmf.learning.pseudo_likelihood.resampling import (
    Refits,
    counts_of,
    with_replacement,
    without,
)
from fastmf.learning.pseudo_likelihood.rows import available, distinct, sampling, target_labels


def objective(weights=None):
    states = np.stack(np.unravel_index(np.arange(16), [2] * 4), axis=1) * 2.0 - 1
    weights = np.arange(5.0, 21.0) if weights is None else weights
    return PseudoLikelihood(states, weights)


@pytest.mark.parametrize("change", [0.0, 0.3, 40.0])
def test_maxima_for_other_weights(change):
    """Near ones by the Hessian of the first maximum, far ones by Newton's method."""
    whole = objective()
    rng = np.random.default_rng(0)
    weights = np.arange(5.0, 21.0) * np.exp(change * rng.uniform(-0.1, 0.1, 16))
    parameters = newton(whole, whole.independent(), tol=1e-8).parameters
    found = Refits(whole, parameters, tol=1e-8).maximum(weights)
    expected = newton(objective(weights), parameters, tol=1e-8)
    assert found.stopped
    np.testing.assert_allclose(found.parameters, expected.parameters, atol=1e-6)
    assert found.history[-1] == pytest.approx(expected.history[-1], rel=1e-9)
    sparse_fit = Refits(whole, parameters, l1=0.05, tol=1e-8).maximum(weights)
    expected = lbfgs(objective(weights), parameters, l1=0.05, tol=1e-8)
    np.testing.assert_allclose(sparse_fit.parameters, expected.parameters, atol=1e-6)


def test_weights_of_samples():
    rng, weights = np.random.default_rng(0), np.array([3.0, 0.0, 7.0])
    drawn = np.array([with_replacement(rng, weights, None) for _ in range(2000)])
    assert (drawn.sum(1) == 10).all()
    np.testing.assert_allclose(drawn.mean(0), weights, atol=0.1)
    np.testing.assert_allclose(drawn.var(0)[0], 10 * 0.3 * 0.7, rtol=0.1)
    kept = np.array([without(rng, 0.4, weights, None) for _ in range(2000)])
    assert (kept.sum(1) == 6).all() and (kept <= weights).all()
    np.testing.assert_allclose(kept.mean(0), 0.6 * weights, atol=0.1)


def test_weights_of_clusters():
    rng, weights = np.random.default_rng(0), np.array([3.0, 7.0])
    clusters = sparse.csr_array(np.array([[0.3, 0.0], [0.0, 0.5], [0.0, 0.2]]))
    drawn = np.array([with_replacement(rng, weights, clusters) for _ in range(3000)])
    np.testing.assert_allclose(drawn.mean(0), weights, rtol=0.05)
    assert set(drawn[:, 0].round(9)) <= {0.0, 3.0, 6.0, 9.0}
    kept = np.array([without(rng, 1 / 3, weights, clusters) for _ in range(50)])
    assert set(map(tuple, kept.round(9))) == {(3.0, 5.0), (3.0, 2.0), (0.0, 7.0)}


def test_weights_must_count():
    assert counts_of(np.array([1.0, 2.0])).tolist() == [1, 2]
    for weights in ([0.5, 2.0], [0.0, 0.0], [1e-3]):
        with pytest.raises(ValueError, match="must count rows"):
            counts_of(np.array(weights))


# --- distinct rows, their copies, and what of them was sampled ------------------------------------


@pytest.mark.parametrize("clustered", [False, True])
def test_sampling_is_the_sum_over_rows_as_they_came(clustered):
    """The matrix that sums distinct rows, times the indicator of members, has the weights."""
    rng = np.random.default_rng(1)
    labels, weights = rng.integers(0, 2, (60, 2)), rng.random(60) * (rng.random(60) < 0.8)
    _, sums, members = distinct(labels, weights)
    clusters = rng.choice(["a", "b", "c"], 60) if clustered else np.arange(60)
    found = sampling(members, weights, clusters if clustered else None)
    expected = np.zeros((60, len(sums)))
    for row, (member, weight) in enumerate(zip(members, weights / weights.sum(), strict=True)):
        if member >= 0:
            expected[np.flatnonzero(clusters == clusters[row])[0], member] += weight
    matrix = found.toarray() if clustered else np.diag(np.sqrt(found))
    np.testing.assert_allclose(matrix.T @ matrix, expected.T @ expected, atol=1e-15)


# --- spins ---


@pytest.mark.parametrize("n_units", [1, 5, 52, 53, 70])
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_rows_of_spins_are_merged_and_their_weights_added(n_units, weighted):
    rng = np.random.default_rng(n_units)
    patterns = np.where(rng.random((7, n_units)) < 0.5, -1.0, 1.0)
    patterns[1, :-1], patterns[1, -1] = patterns[0, :-1], -patterns[0, -1]
    states = patterns[rng.integers(7, size=60)]
    weights = rng.integers(3, size=60).astype(float) if weighted else np.ones(60)
    rows, sums, members = distinct(states.astype(int), weights)
    expected = {row: weights[(states == row).all(1)].sum() for row in map(tuple, states.tolist())}
    expected = {row: weight for row, weight in expected.items() if weight > 0}
    assert dict(zip(map(tuple, rows.tolist()), sums, strict=True)) == expected
    assert np.array_equal(rows[members[weights > 0]], states[weights > 0])


# --- available cases ---


def test_available_terms_are_those_whose_neighbours_were_seen():
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((50, 5)) < 0.3, -1, rng.integers(0, 3, (50, 5)))
    edges = np.array([[0, 1], [1, 2], [2, 4]])
    neighbours = [{0, 1}, {0, 1, 2}, {1, 2, 4}, {3}, {2, 4}]
    found = available(labels, edges)
    for row, own in zip(labels, found, strict=True):
        assert own.tolist() == [all(row[j] >= 0 for j in needed) for needed in neighbours]
    targets = target_labels(labels, edges)
    assert np.array_equal(targets[found], labels[found])
    assert (targets[~found] == -1).all()


# --- graphs of pairs that may be coupled, in all the forms that are taken -------------------------


class Graph:
    """A graph as networkx has it, which is not installed everywhere."""

    def __init__(self, edges=()):
        self.edges = lambda: [tuple(edge) for edge in edges]
        self.nodes = {node: {} for edge in edges for node in edge}


EDGES = [[0, 2], [1, 2], [2, 3]]
ADJACENCY = np.zeros((4, 4), bool)
ADJACENCY[[0, 2, 1, 2, 2, 3], [2, 0, 2, 1, 3, 2]] = True


@pytest.mark.parametrize("graph", [
    ADJACENCY,
    ADJACENCY.astype(float) * -2.5,
    sparse.csr_array(ADJACENCY),
    sparse.coo_matrix(ADJACENCY.astype(int)),
    EDGES,
    [(2, 0), (3, 2), (2, 1), (1, 2)],
    np.array(EDGES),
    Graph(EDGES),
    [("a", "c"), ("c", "b"), ("d", "c")],
    Graph([("a", "c"), ("c", "b"), ("d", "c")]),
])  # fmt: skip
def test_forms(graph):
    assert edges_of(graph, 4, ["a", "b", "c", "d"]).tolist() == EDGES


def test_no_edges():
    for graph in ([], np.zeros((4, 4)), sparse.csr_array((4, 4)), Graph()):
        assert edges_of(graph, 4).shape == (0, 2)
    assert np.argwhere(np.triu(coupled_units(edges_of(EDGES, 4), 4))).tolist() == EDGES


@pytest.mark.parametrize("graph, message", [
    (np.triu(ADJACENCY), "symmetric"), (sparse.csr_array((3, 4)), r"shape \(4, 4\)"),
    ([[0, 4]], "from 0 to 3"), ([[-1, 2]], "from 0 to 3"), ([[1.5, 2]], "from 0 to 3"),
    ([["a", "z"]], "names of columns"), ([[1, 1]], "different units"),
    (np.eye(4), "different units"), ([[0, 1, 2]], "pairs of units"), (["ab"], "pairs of units"),
    (np.where(ADJACENCY, np.nan, 0), "without NaN"), (zip("ab", "bc", strict=True), "got zip"),
])  # fmt: skip
def test_bad_graphs(graph, message):
    with pytest.raises((TypeError, ValueError), match=message):
        edges_of(graph, 4, ["a", "b", "c", "d"])
