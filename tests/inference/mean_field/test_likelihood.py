from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

from fastmf.inference.mean_field.likelihood import log_likelihood, log_partition_estimate
from fastmf.models import RBM, BoltzmannMachine, exact
from fastmf.priors import Bernoulli, Concatenated, Gaussian, TruncatedGaussian


def solutions(means, log_partition):
    means = np.array(means, dtype=float)
    log_partition, var = np.array(log_partition, dtype=float), means - means**2
    return SimpleNamespace(mean=(means, means), var=(var, var), log_partition=log_partition)


@pytest.mark.parametrize("hidden", [Bernoulli([0.1, -0.4]), Gaussian([0.1, -0.4], [2.0, 3.0])])
def test_probabilities_of_all_states_add_up_to_one(hidden):
    model = RBM(np.random.default_rng(0).normal(size=(4, 2)), Bernoulli(np.arange(4) / 4), hidden)
    states = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(float)
    p = np.exp(log_likelihood(model, states, exact(model).log_partition))
    assert p.sum() == pytest.approx(1, abs=1e-13)


def test_probabilities_give_at_most_the_average_over_states():
    rng = np.random.default_rng(0)
    visible, hidden = Bernoulli(rng.normal(size=4)), Bernoulli(rng.normal(size=3))
    model, p = RBM(rng.normal(size=(4, 3)), visible, hidden), rng.random(4)
    states = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(float)
    average = np.where(states, p, 1 - p).prod(1) @ log_likelihood(model, states, 2.0)
    found = log_likelihood(model, p[None], 2.0)[0]
    assert average - 0.5 < found < average


def test_probabilities_enter_by_their_mean_beside_other_units_too():
    rng = np.random.default_rng(0)
    field, p, x = rng.normal(size=3), rng.random(3), rng.normal(size=2)
    visible = Concatenated(Bernoulli(field), Gaussian([0.3, -0.4], [2.0, 3.0]))
    model = RBM(np.zeros((5, 1)), visible, Bernoulli(np.zeros(1)))
    log_partition = (
        model.hidden.log_partition(0.0, 0.0).sum() + visible.log_partition(0.0, 0.0).sum()
    )
    found = log_likelihood(model, np.concatenate([p, x])[None], log_partition)
    q = 1 / (1 + np.exp(-field))
    expected = (p * np.log(q) + (1 - p) * np.log(1 - q)).sum()
    mean, variance = np.array([0.3 / 2, -0.4 / 3]), 1 / np.array([2, 3])
    expected -= ((x - mean) ** 2 / variance + np.log(2 * np.pi * variance)).sum() / 2
    assert found == pytest.approx([expected], abs=1e-12)


def test_sparse_rows_have_the_likelihood_of_dense_ones():
    rng = np.random.default_rng(0)
    model = RBM(rng.normal(size=(6, 2)), Bernoulli(rng.normal(size=6)), Bernoulli(np.zeros(2)))
    X = (rng.random((9, 6)) < 0.3).astype(float)
    found = log_likelihood(model, csr_array(X), 1.5)
    np.testing.assert_allclose(found, log_likelihood(model, X, 1.5), rtol=1e-13)


@pytest.mark.parametrize(
    "bad, message",
    [
        (np.full((2, 3), np.nan), "finite"),
        (np.ones((2, 4)), r"shape \(n_rows, 3\)"),
        (np.ones((0, 3)), r"shape \(n_rows, 3\)"),
        (np.full((2, 3), 2.0), r"values in \[0, 1\]"),
    ],
)
def test_bad_sparse_rows_are_refused(bad, message):
    model = RBM(np.zeros((3, 2)), Bernoulli(np.zeros(3)), Bernoulli(np.zeros(2)))
    with pytest.raises(ValueError, match=message):
        log_likelihood(model, csr_array(bad), 0.0)


def test_estimates_count_each_solution_once():
    reached = solutions([[0], [1], [0]], [1.0, 3.0, 1.0])
    assert log_partition_estimate(reached) == pytest.approx(np.log(np.exp(1) + np.exp(3)))
    assert log_partition_estimate(reached, "mean") == pytest.approx(2)
    with pytest.raises(ValueError, match="'median'"):
        log_partition_estimate(reached, "median")


def test_diverged_solutions_do_not_count():
    reached = solutions([[0], [1]], [-np.inf, 3.0])
    assert log_partition_estimate(reached) == 3
    assert log_partition_estimate(reached, "mean") == 3


BINARY = RBM(np.full((3, 2), 0.3), Bernoulli([0.1, -0.2, 0.3]), Bernoulli([0.0, 0.5]))


def test_any_array_of_rows_is_accepted():
    expected = log_likelihood(BINARY, np.array([[1.0, 0.0, 1.0]]), 2.0)
    for X in ([[1, 0, 1]], [1, 0, 1], np.array([[True, False, True]]), np.uint8([[1, 0, 1]])):
        np.testing.assert_array_equal(log_likelihood(BINARY, X, 2.0), expected)


def test_values_whose_squares_are_no_numbers_have_no_likelihood():
    weights = np.array([[0.5, -0.2], [0.1, 0.3]])
    model = RBM(weights, Gaussian(np.ones(2), np.ones(2)), Bernoulli(np.zeros(2)))
    X = np.array([[1e200, 0.0], [1e308, -1e308], [1e100, 1.0], [0.0, 0.0]])
    found = log_likelihood(model, X, 0.0)
    assert found[:2].tolist() == [-np.inf, -np.inf]
    np.testing.assert_allclose(found[2:], [-5e199, 2 * np.log(2)])


def test_what_real_units_cannot_be_has_no_likelihood():
    bounded = RBM(np.ones((2, 1)), TruncatedGaussian([0.0, 1.0], 1.0, 0.0, 1.0), Bernoulli([0.0]))
    found = log_likelihood(bounded, [[0.5, 0.5], [0.5, 1.5]], 0.0)
    assert np.isfinite(found[0]) and found[1] == -np.inf


@pytest.mark.parametrize(
    "model, X, log_partition, message",
    [
        (BINARY, [[2.0, 0.0, 1.0]], 0.0, r"X must have values in \[0, 1\]"),
        (BINARY, [[0.0, -0.1, 1.0]], 0.0, r"X must have values in \[0, 1\]"),
        (BINARY, [[np.nan, 0.0, 1.0]], 0.0, "X must be finite"),
        (BINARY, np.ones((2, 4)), 0.0, r"X must have shape \(3,\)"),
        (BINARY, [["one", "two", "three"]], 0.0, "X must be an array of real numbers"),
        (BINARY, np.ones((1, 3)), np.nan, "log_partition must be a number"),
        (BoltzmannMachine(np.zeros((3, 3)), Bernoulli(np.zeros(3))), np.ones((1, 3)), 0.0, "model"),
    ],
)
def test_bad_input_is_named(model, X, log_partition, message):
    with pytest.raises((ValueError, TypeError), match=message):
        log_likelihood(model, X, log_partition)
