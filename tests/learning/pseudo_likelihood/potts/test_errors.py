"""Sandwich standard errors."""

import numpy as np
import pytest
from potts_data import log_pseudo_likelihood, random_parameters, random_rows

from fastmf.learning.pseudo_likelihood.fit import newton
from fastmf.learning.pseudo_likelihood.godambe import Godambe
from fastmf.learning.pseudo_likelihood.potts import dense
from fastmf.learning.pseudo_likelihood.potts.dense import DenseObjective

SIZES = np.array([3, 2, 3])


def sandwich(labels, weights, J=None, h=None, **penalties):
    if J is None:
        J, h = random_parameters(SIZES)
    objective = DenseObjective(labels, weights, SIZES, **penalties)
    return Godambe(objective, objective.packed(J, h), np.square(objective.weights))


def maximum(labels, weights):
    """The machine of largest log-pseudo-likelihood."""
    objective = DenseObjective(labels, weights, SIZES)
    return objective.unpacked(newton(objective, objective.independent()).parameters)


def test_hessian_and_scores_are_derivatives():
    labels, weights = random_rows(SIZES, 30, missing=0.15)
    J, h = random_parameters(SIZES)
    found = sandwich(labels, weights, J, h, l2=0.1, l2_field=0.2)
    objective, at = found.objective, found.parameters
    n, N = objective.n_parameters, weights.sum()

    def values(parameters):
        new_J, new_h = objective.unpacked(parameters)
        return log_pseudo_likelihood(new_J, new_h, labels, SIZES)

    def difference(k, at):
        step = 1e-4 * np.eye(n)[k]
        return (values(at + step) - values(at - step)) / 2e-4

    scores = np.stack([difference(k, at) for k in range(n)], 1)
    centred = weights[:, None] * (scores - weights @ scores / N)
    scores_covariance = N**2 * objective.score_covariance(at, found.sampling)
    np.testing.assert_allclose(scores_covariance, centred.T @ centred, atol=1e-6)
    ridge = N * np.where(np.arange(n) < SIZES.sum(), 0.2, 0.1)
    for k in range(0, n, 5):
        step = 1e-4 * np.eye(n)[k]
        column = [
            weights @ (difference(j, at - step) - difference(j, at + step)) / 2e-4 for j in range(n)
        ]
        expected = np.array(column) + ridge * np.eye(n)[k]
        np.testing.assert_allclose(N * objective.hessian(at)[k], expected, atol=1e-5)


def test_edges_leave_out_parameters():
    """Derivatives are those of all pairs, without the rows of absent ones."""
    labels, weights = random_rows(SIZES, 30, missing=0.15)
    J, h = random_parameters(SIZES)
    position = np.repeat(np.arange(3), SIZES)
    absent = {frozenset((0, 1))}
    J[np.ix_(position == 0, position == 1)] = J[np.ix_(position == 1, position == 0)] = 0
    whole = sandwich(labels, weights, J, h, l2=0.1)
    part = sandwich(labels, weights, J, h, l2=0.1, edges=np.array([(0, 2), (1, 2)]))
    u, v = whole.objective.pairs
    kept = np.array(
        [frozenset((position[a], position[b])) not in absent for a, b in zip(u, v, strict=True)]
    )
    kept = np.append(np.ones(len(position), bool), kept)
    assert np.allclose(part.parameters, whole.parameters[kept])
    right = whole.objective.hessian(whole.parameters)[np.ix_(kept, kept)]
    assert np.allclose(part.objective.hessian(part.parameters), right)
    scores = [x.objective.score_covariance(x.parameters, x.sampling) for x in (part, whole)]
    assert np.allclose(scores[0], scores[1][np.ix_(kept, kept)])


def test_errors_are_the_spread_of_estimates():
    """Over many samples of a machine, in both gauges."""
    from potts_data import all_labels, one_hot
    from scipy.special import softmax

    from fastmf.models._gauge import in_gauge

    J, h = random_parameters(SIZES, strength=0.4)
    labels = all_labels(SIZES)
    x = one_hot(labels, SIZES)
    p = softmax(((x @ J) * x).sum(1) / 2 + x @ h)
    rng, n_rows = np.random.default_rng(0), 1000
    found = {"zero-sum": [], "lattice": []}
    for _ in range(150):
        weights = rng.multinomial(n_rows, p)
        fitted = maximum(labels, weights)
        for gauge, results in found.items():
            results.append(in_gauge(*fitted, SIZES, gauge))
    rows = np.repeat(labels, np.rint(n_rows * p).astype(int), axis=0)
    for gauge, results in found.items():
        godambe = sandwich(rows, np.ones(len(rows)), J, h)
        of_J, of_h = godambe.objective.errors_in_gauge(godambe.covariance(), gauge)
        for k, expected in enumerate((of_J, of_h)):
            spread = np.std([result[k] for result in results], axis=0)
            kept = expected > 1e-8
            np.testing.assert_array_equal(kept, spread > 1e-8)
            ratio = spread[kept] / expected[kept]
            assert 0.8 < ratio.min() and ratio.max() < 1.25, gauge


def test_ratio_test_of_independent_positions():
    """p-values of a true hypothesis are uniform."""
    rng, p_values = np.random.default_rng(1), []
    for _ in range(20):
        labels = rng.integers(0, SIZES, (200, 3))
        pairs, ones = np.array([[0, 1], [0, 2]]), np.ones(200)
        found = sandwich(labels, ones, *maximum(labels, ones))
        _, p_value, weights, restricted = found.likelihood_ratio_test(pairs)
        assert not restricted[found.indices(pairs)].any()
        assert len(weights) == 2 + 4  # (q_0 - 1) (q_1 - 1) + (q_0 - 1) (q_2 - 1)
        p_values.append(p_value)
    assert 0.35 < np.mean(p_values) < 0.65
    assert np.mean(np.array(p_values) < 0.2) < 0.4


def test_too_many_parameters_are_refused(monkeypatch):
    monkeypatch.setattr(dense, "MAX_HESSIAN_PARAMETERS", 10)
    with pytest.raises(ValueError, match="take fewer positions"):
        sandwich(*random_rows(SIZES)).covariance()
