"""Mixtures of fixed points of a map whose fixed points are known."""

import numpy as np
import pytest

from fastmf.inference.bp.solutions import EndsOfStarts, fixed_points, random_probabilities


def solve(messages, last):
    """Fixed points 0 (unstable) and +-1, of other log-partitions; beyond 5 nothing converges."""
    x = np.where(messages == 0, 0, np.sign(messages))
    beliefs = (1 + x) / 2
    values = np.log(2 + x[:, 0])
    return EndsOfStarts(beliefs, values, abs(messages[:, 0]) < 5, np.zeros(len(x)), x, last)


def test_stable_fixed_points_are_weighted_by_their_log_partitions():
    starts = np.array([[0.0], [2.0], [-1.0], [3.0], [9.0]])
    mixture = fixed_points(solve, starts, np.random.default_rng(0))
    np.testing.assert_allclose(np.exp(mixture.log_weights), [0.75, 0.25])
    np.testing.assert_allclose(mixture.average(mixture.ends.beliefs), [[0.75]])
    log_odds = np.where(mixture.ends.beliefs == 1, 2.0, -2.0)
    p = 0.75 / (1 + np.exp(-2)) + 0.25 / (1 + np.exp(2))
    assert mixture.average_log_odds(log_odds)[0, 0] == pytest.approx(np.log(p / (1 - p)))
    assert mixture.members.tolist()[1:] == [0, 1, 0, -1]
    assert mixture.stable and mixture.ends.result is True


def test_a_row_without_fixed_points_is_that_of_the_first_start():
    mixture = fixed_points(solve, np.array([[8.0], [9.0]]), np.random.default_rng(0))
    assert not mixture.stable and mixture.rows.tolist() == [0]
    assert mixture.members.tolist() == [-1, -1]


def test_starts_come_with_their_opposites():
    p = random_probabilities(5, 8, np.random.default_rng(0))
    np.testing.assert_array_equal(p[0:4:2] + p[1:4:2], 1)
    assert p.shape == (5, 8)
