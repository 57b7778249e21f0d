"""Minimisation of the Bethe free energy against belief propagation, enumeration and calculus."""

import itertools

import numpy as np
import pytest
from bp_models import centred, sigmoid

import fastmf as mf
from fastmf.inference.bp.bethe import minimise_bethe, pairs_given_units


def minus_bethe(model, tau_v, tau_h, pairs):
    """Minus energy plus entropy, one term after another."""

    def entropy(p):
        return -sum(x * np.log(x) for x in p if x > 0)

    n, m = model.weights.shape
    total = model.visible.field @ tau_v + model.hidden.field @ tau_h + (model.weights * pairs).sum()
    for i, j in itertools.product(range(n), range(m)):
        both, first, second = pairs[i, j], tau_v[i] - pairs[i, j], tau_h[j] - pairs[i, j]
        total += entropy([both, first, second, 1 - both - first - second])
    total -= (m - 1) * sum(entropy([x, 1 - x]) for x in tau_v)
    return total - (n - 1) * sum(entropy([x, 1 - x]) for x in tau_h)


def minimise(model, tol):
    start = [np.zeros(n) for n in model.weights.shape]
    return minimise_bethe(model.weights, model.visible.field, model.hidden.field, start, tol)


def test_pairs_given_units_are_consistent_and_minimise():
    rng = np.random.default_rng(0)
    weights = rng.normal(scale=8, size=(6, 5))
    weights[0] = 0
    visible, hidden = 4 * rng.normal(size=6), 4 * rng.normal(size=5)
    both, first, second, neither = pairs_given_units(weights, visible, hidden)
    np.testing.assert_allclose(both + first, np.tile(sigmoid(visible)[:, None], 5), rtol=1e-12)
    np.testing.assert_allclose(neither + first, np.tile(sigmoid(-hidden), (6, 1)), rtol=1e-12)
    # The derivative by the pair's belief is zero.
    derivative = np.log(both) + np.log(neither) - np.log(first) - np.log(second) - weights
    np.testing.assert_allclose(derivative, 0, atol=1e-10)


@pytest.mark.parametrize("shape", [(9, 7), (4, 12), (1, 1), (1, 6), (60, 30)])
def test_the_fixed_point_where_messages_converge(shape):
    model = centred(*shape, 2 / np.sqrt(sum(shape)))
    expected = mf.belief_propagation(model, tol=1e-14)
    found = minimise(model, 1e-12)
    assert expected.converged and found.residual <= 1e-12 and found.n_iter < 40
    for log_odds, mean in zip(found.log_odds, expected.mean, strict=True):
        np.testing.assert_allclose(sigmoid(log_odds), mean, atol=1e-10)
    assert found.log_partition == pytest.approx(expected.log_partition, abs=1e-9)


def test_exact_on_a_tree_with_large_weights():
    rng = np.random.default_rng(1)
    weights = np.zeros((5, 4))
    for i, j in [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (4, 3), (0, 3)]:
        weights[i, j] = 12 * rng.normal()
    model = mf.RBM(weights, *(mf.Bernoulli(5 * rng.normal(size=n)) for n in (5, 4)))
    found, truth = minimise(model, 1e-9), mf.exact(model)
    assert found.log_partition == pytest.approx(truth.log_partition, abs=1e-8)
    for log_odds, mean in zip(found.log_odds, truth.mean, strict=True):
        np.testing.assert_allclose(sigmoid(log_odds), mean, atol=1e-8)


def test_minus_energy_plus_entropy_is_largest_at_the_minimum():
    model = centred(8, 7, 2.5, 5)
    result = mf.belief_propagation(
        model, damping=0.0, max_iter=100, on_failure="minimise", pairwise=True, tol=1e-12
    )
    assert "direct minimisation" in result.message
    best = minus_bethe(model, *result.mean, result.pairwise)
    assert result.log_partition == pytest.approx(best, abs=1e-9)
    rng, derivatives = np.random.default_rng(0), []
    for _ in range(5):
        move = [1e-4 * rng.normal(size=8), 1e-4 * rng.normal(size=7)]
        values = []
        for sign in (1, -1):
            units = [m + sign * d for m, d in zip(result.mean, move, strict=True)]
            log_odds = [np.log(x / (1 - x)) for x in units]
            pairs = pairs_given_units(model.weights, *log_odds).both
            values.append(minus_bethe(model, *units, pairs))
        assert max(values) < best
        derivatives.append((values[0] - values[1]) / 2e-4)
    np.testing.assert_allclose(derivatives, 0, atol=1e-4)
