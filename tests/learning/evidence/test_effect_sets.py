"""Sets of effects that are zero or not, against the enumeration of all patterns."""

import itertools

import numpy as np
import pytest
from scipy import optimize
from scipy.stats import multivariate_normal

from fastmf.learning.evidence.edges import EffectSets
from tests.learning.evidence.test_edges import enumerated, estimates

SETS = [np.array([0, 1]), np.array([2]), np.array([3, 4, 5]), np.array([6, 7])]


def table(seed, correlation=0.3):
    """Estimates of eight effects of which those of two sets are zero, and their covariance."""
    rng = np.random.default_rng(seed)
    errors = rng.uniform(0.15, 0.6, 8)
    common = np.where(np.arange(8) % 3, 1.0, -1.0)
    C = (1 - correlation) * np.eye(8) + correlation * np.outer(common, common)
    C *= np.outer(errors, errors)
    theta = np.where(np.isin(np.arange(8), [0, 1, 3, 4, 5]), rng.normal(size=8), 0.0)
    return rng.multivariate_normal(theta, C), C


def of_all_patterns(estimate, C, log_odds, scale):
    """Log-evidence, inclusion of sets, means and variances of effects."""
    logs, patterns, means, squares = [], [], [], []
    for pattern in itertools.product([0.0, 1.0], repeat=len(SETS)):
        diagonal = np.zeros(len(estimate))
        for there, own in zip(pattern, SETS, strict=True):
            diagonal[own] = there * scale**2
        slab = np.diag(diagonal)
        gain = slab @ np.linalg.inv(C + slab)
        log_prior = sum(pattern) * log_odds - len(SETS) * np.logaddexp(0, log_odds)
        logs.append(log_prior + multivariate_normal.logpdf(estimate, cov=C + slab))
        patterns.append(pattern)
        means.append(gain @ estimate)
        squares.append(np.diag(slab - gain @ slab) + means[-1] ** 2)
    evidence = np.logaddexp.reduce(logs)
    weights = np.exp(np.array(logs) - evidence)
    mean = weights @ np.array(means)
    return evidence, weights @ np.array(patterns), mean, weights @ np.array(squares) - mean**2


@pytest.mark.parametrize("seed", range(6))
def test_posterior_of_all_patterns(seed):
    estimate, C = table(seed)
    found = EffectSets(estimate, C, SETS).posterior(-0.5, 0.8)
    evidence, inclusion, mean, variance = of_all_patterns(estimate, C, -0.5, 0.8)
    assert found.converged
    np.testing.assert_allclose(found.probability, inclusion, atol=0.02)
    np.testing.assert_allclose(found.mean, mean, atol=0.02)
    np.testing.assert_allclose(found.std, np.sqrt(variance), atol=0.02)
    assert abs(found.log_evidence - evidence) < 0.05


def test_independent_groups_have_closed_forms():
    estimate, C = table(1, 0.0)
    found = EffectSets(estimate, C, SETS).posterior(0.3, 2.0)
    evidence, inclusion, mean, variance = of_all_patterns(estimate, C, 0.3, 2.0)
    np.testing.assert_allclose(found.probability, inclusion, atol=1e-8)
    np.testing.assert_allclose(found.mean, mean, atol=1e-7)
    np.testing.assert_allclose(found.std, np.sqrt(variance), rtol=1e-6)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-7)


def test_groups_of_one_are_single_effects():
    estimate, C = estimates(6, 0.2, 3)
    found = EffectSets(estimate, C, [np.array([k]) for k in range(6)]).posterior(0.0, 1.0)
    evidence, inclusion, *_ = enumerated(estimate, C)
    np.testing.assert_allclose(found.probability, inclusion, atol=0.02)
    assert found.log_evidence == pytest.approx(evidence, abs=0.05)


def test_units_of_measurement_make_no_difference():
    estimate, C = table(2)
    found = EffectSets(estimate, C, SETS).posterior(0.0, 1.0)
    small = EffectSets(1e-5 * estimate, 1e-10 * C, SETS).posterior(0.0, 1e-5)
    np.testing.assert_allclose(small.log_odds, found.log_odds, atol=1e-6)


def test_learned_parameters_maximise_the_evidence_times_their_prior():
    estimate, C = table(4, 0.0)
    found = EffectSets(estimate, C, SETS).posterior(None, None)

    def loss(values):
        value = of_all_patterns(estimate, C, values[0], np.exp(values[1]))[0]
        value -= np.logaddexp(0, values[0]) + np.logaddexp(0, -values[0])
        return (values[1]) ** 2 / 2 - value

    best = optimize.minimize(loss, np.zeros(2), method="Nelder-Mead").x
    assert abs(found.prior_log_odds - best[0]) < 0.02
    assert abs(np.log(found.scale) - best[1]) < 0.02


def test_certain_and_absent_groups():
    """Sites of sets that are surely zero, or surely not, are sharp."""
    estimate = np.array([40.0, -40.0, 0.0, 0.0, 0.0, 0.0, 1e-3, 0.0])
    found = EffectSets(estimate, 1e-4 * np.eye(8), SETS).posterior(0.0, 1.0)
    assert found.converged and np.isfinite(found.log_evidence)
    assert found.probability[0] == 1 and (found.probability[1:] < 0.02).all()


def test_what_is_no_covariance_is_refused():
    for C in (np.ones((8, 8)), np.zeros((8, 8)), np.full((8, 8), np.nan)):
        with pytest.raises(ValueError, match="covariance"):
            EffectSets(np.ones(8), C, SETS)
