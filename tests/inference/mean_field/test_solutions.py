from types import SimpleNamespace

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.mean_field.solutions import distinct, merge, merged, solutions


def some_solutions(means, log_partition):
    means = np.array(means, dtype=float)
    log_partition = np.array(log_partition, dtype=float)
    converged = np.ones(len(means), bool)
    return SimpleNamespace(mean=(means, means), log_partition=log_partition, converged=converged)


def one_by_one(means, order, tol):
    """The definition: each row joins the first representative that it agrees with."""
    rows, members = [], np.full(len(means), -1)
    for row in order:
        for k, other in enumerate(rows):
            if abs(means[row] - means[other]).max() <= tol:
                members[row] = k
                break
        else:
            members[row] = len(rows)
            rows.append(row)
    return np.array(rows), members


def test_merge_keeps_the_first_of_each_kind():
    means = [[0, 0], [1, 1], [0.005, 0], [1, 0.991], [0.5, 0.5]]
    rows, members = merge(np.array(means), merge_tol=0.01)
    assert rows.tolist() == [0, 1, 4]
    assert members.tolist() == [0, 1, 0, 1, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_units", [1, 3, 100])
def test_merge_is_what_its_definition_says(n_units, dtype):
    rng = np.random.default_rng(n_units)
    centres = rng.random((30, n_units)).round(1)
    means = (centres[rng.integers(30, size=300)] + 0.008 * rng.random((300, 1))).astype(dtype)
    order = rng.permutation(300)
    rows, members = merge(means, order, 0.004)
    expected_rows, expected_members = one_by_one(means, order, 0.004)
    np.testing.assert_array_equal(rows, expected_rows)
    np.testing.assert_array_equal(members, expected_members)
    assert 1 < len(rows) < 300


def test_ten_thousand_starts():
    # All distinct, all the same, and a thousand that differ in one unit only.
    rng = np.random.default_rng(0)
    means = rng.random((10_000, 200)).astype(np.float32)
    assert len(merge(means)[0]) == 10_000
    assert len(merge(np.zeros_like(means))[0]) == 1
    means = np.zeros((10_000, 1000), np.float32)
    where = rng.integers(1000, size=10_000)
    means[np.arange(10_000), where] = 0.5
    rows, members = merge(means)
    assert len(rows) == len(np.unique(where))
    np.testing.assert_array_equal(where[rows[members]], where)


def test_distinct_solutions_are_ordered_by_log_partition():
    reached = some_solutions([[0], [1], [0], [0.5]], [1.0, 3.0, 1.0, 2.0])
    rows, members = distinct(reached)
    assert rows.tolist() == [1, 3, 0]
    assert members.tolist() == [2, 0, 2, 1]
    found = merged(reached)
    assert found.counts.tolist() == [1, 1, 2]
    np.testing.assert_allclose(found.shares, np.exp([3, 2, 1]) / np.exp([3, 2, 1]).sum())


def test_solutions_of_a_ferromagnet():
    # Two phases, mirror images of each other; an odd number of units, so that no start is at zero,
    # from where sweeps lead to the paramagnet between them.
    model = mf.RBM(np.full((41, 41), 0.05), mf.Ising(np.zeros(41)), mf.Ising(np.zeros(41)))
    found = solutions(model, 200)
    assert len(found.free_energy) == 2
    assert found.counts.sum() == 200
    assert found.counts.min() > 50
    np.testing.assert_allclose(found.visible[0], -found.visible[1], atol=1e-6)
    np.testing.assert_allclose(found.shares, 0.5, atol=1e-6)
    assert len(solutions(model, np.zeros(41)).free_energy) == 1
    up = solutions(model, np.ones((5, 41)))
    assert up.members.tolist() == [0] * 5
    assert (up.visible > 0.5).all()


def test_solutions_of_a_fully_visible_machine():
    couplings = 0.1 * (1 - np.eye(31))
    found = solutions(mf.BoltzmannMachine(couplings, mf.Ising(np.zeros(31))), 100, order=1)
    assert found.hidden is None
    assert len(found.free_energy) == 2


def test_shares_are_numbers_even_if_no_solution_exists():
    means = [[0.0, 0.0], [1.0, 1.0]]
    np.testing.assert_array_equal(merged(some_solutions(means, [-np.inf] * 2)).shares, [0, 0])
    np.testing.assert_array_equal(merged(some_solutions(means, [3.0, -np.inf])).shares, [1, 0])
