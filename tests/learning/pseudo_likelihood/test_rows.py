"""Distinct rows, their copies, and what of them was sampled."""

import numpy as np
import pytest

from fastmf.learning.pseudo_likelihood.rows import (
    available,
    distinct,
    distinct_rows,
    sampling,
    target_labels,
)


def test_equal_rows_are_merged():
    labels = np.array([[1, 2], [0, 1], [1, 2], [3, 3]], np.int8)
    rows, weights, _ = distinct(labels, np.array([1.0, 2, 3, 0]))
    assert {tuple(map(int, row)): w for row, w in zip(rows, weights, strict=True)} == {
        (1, 2): 4.0,
        (0, 1): 2.0,
    }


def test_distinct_rows_stay_in_their_order():
    labels = np.array([[5, 2], [0, 1]], np.int8)
    np.testing.assert_array_equal(distinct(labels, np.ones(2))[0], labels)


def test_members_say_where_rows_are():
    rng = np.random.default_rng(0)
    labels, weights = rng.integers(0, 2, (40, 3)), rng.random(40) * (rng.random(40) < 0.8)
    rows, sums, members = distinct(labels, weights)
    kept = weights > 0
    np.testing.assert_array_equal(members < 0, ~kept)
    np.testing.assert_array_equal(rows[members[kept]], labels[kept])
    np.testing.assert_allclose(np.bincount(members[kept], weights[kept]), sums)


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
    weights = rng.integers(3, size=60).astype(float) if weighted else None
    rows = distinct_rows(states, weights)
    expected = counted(states, np.ones(60) if weights is None else weights)
    assert dict(zip(map(tuple, rows.states.tolist()), rows.weights, strict=True)) == expected
    assert rows.total == sum(expected.values())


@pytest.mark.parametrize("n_units", [40, 60])
def test_rows_that_all_differ_stay_with_their_weights(n_units):
    rng = np.random.default_rng(0)
    states = np.where(rng.random((50, n_units)) < 0.5, -1.0, 1.0)
    weights = rng.random(50)
    rows = distinct_rows(states, weights)
    expected = counted(states, weights)
    assert dict(zip(map(tuple, rows.states.tolist()), rows.weights, strict=True)) == expected


def test_moments():
    rng = np.random.default_rng(1)
    states, weights = np.where(rng.random((30, 3)) < 0.5, -1.0, 1.0), rng.random(30)
    mean, second = distinct_rows(states, weights).moments()
    np.testing.assert_allclose(mean, np.average(states, axis=0, weights=weights), rtol=1e-13)
    products = states[:, :, None] * states[:, None, :]
    np.testing.assert_allclose(second, np.average(products, axis=0, weights=weights), rtol=1e-13)


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


def test_without_a_graph_they_are_complete_rows():
    labels = np.array([[0, 1, 1], [0, -1, 1], [-1, -1, -1]])
    assert available(labels).tolist() == [[True] * 3, [False] * 3, [False] * 3]


def test_units_without_neighbours_need_themselves_alone():
    labels = np.array([[0, -1], [-1, 1]])
    assert np.array_equal(available(labels, np.zeros((0, 2), int)), labels >= 0)
