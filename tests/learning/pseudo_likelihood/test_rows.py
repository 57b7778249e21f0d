"""Distinct rows, their copies, and what of them was sampled."""

import numpy as np
import pytest

from fastmf.learning.pseudo_likelihood.rows import available, distinct, sampling, target_labels


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


def counted(states, weights):
    """Weight of every distinct row, one row at a time."""
    total = {}
    for row, weight in zip(states.tolist(), weights, strict=True):
        total[tuple(row)] = total.get(tuple(row), 0) + weight
    return {row: weight for row, weight in total.items() if weight > 0}


@pytest.mark.parametrize("n_units", [1, 5, 52, 53, 70])
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_rows_of_spins_are_merged_and_their_weights_added(n_units, weighted):
    rng = np.random.default_rng(n_units)
    patterns = np.where(rng.random((7, n_units)) < 0.5, -1.0, 1.0)
    patterns[1, :-1], patterns[1, -1] = patterns[0, :-1], -patterns[0, -1]
    states = patterns[rng.integers(7, size=60)]
    weights = rng.integers(3, size=60).astype(float) if weighted else np.ones(60)
    rows, sums, members = distinct(states.astype(int), weights)
    expected = counted(states, weights)
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
