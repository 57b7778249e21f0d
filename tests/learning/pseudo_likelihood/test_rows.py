"""Distinct rows, their copies, and what of them was sampled."""

import numpy as np
import pytest

from fastmf.learning.pseudo_likelihood.rows import distinct, sampling


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
