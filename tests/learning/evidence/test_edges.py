"""Effects that are zero or not, against the enumeration of all patterns."""

import numpy as np
import pytest
from normal_slabs import given_slabs
from potts_data import all_labels
from scipy import optimize
from scipy.integrate import trapezoid
from scipy.linalg import block_diag
from scipy.special import voigt_profile
from scipy.stats import cauchy, norm

from fastmf.learning.evidence.edges import SingleEffects, Whitened


def estimates(n=6, correlation=0.4, seed=0):
    """Estimates of effects of which half are zero, and a covariance with correlations."""
    rng = np.random.default_rng(seed)
    errors = rng.uniform(0.15, 0.6, n)
    common = np.where(np.arange(n) % 2, 1.0, -1.0)
    C = (1 - correlation) * np.eye(n) + correlation * np.outer(common, common)
    C *= np.outer(errors, errors)
    theta = np.where(np.arange(n) < n // 2, rng.normal(size=n), 0.0)
    return rng.multivariate_normal(theta, C), C


def enumerated(estimate, C, log_odds=0.0, scale=1.0, sets=None):
    """Log-evidence, inclusion, means and variances, by all patterns of effects or of sets."""
    sets = np.arange(len(estimate))[:, None] if sets is None else sets
    patterns = all_labels([2] * len(sets))
    slabs = np.zeros((len(patterns), len(estimate)))
    for included, members in zip(patterns.T, sets, strict=True):
        slabs[:, members] = included[:, None] * scale**2
    logs, means, variances = given_slabs(estimate, C, slabs)
    logs = logs + patterns.sum(1) * log_odds - len(sets) * np.logaddexp(0, log_odds)
    evidence = np.logaddexp.reduce(logs)
    weights = np.exp(logs - evidence)
    mean = weights @ means
    return evidence, weights @ patterns, mean, weights @ (variances + means**2) - mean**2


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("n, correlation", [(6, 0.0), (6, 0.4), (6, 0.8), (11, 0.3)])
def test_posterior_of_all_patterns(seed, n, correlation):
    estimate, C = estimates(n, correlation, seed)
    found = SingleEffects.of(estimate, C).posterior(-0.5, 0.8)
    evidence, inclusion, mean, variance = enumerated(estimate, C, -0.5, 0.8)
    assert found.converged
    np.testing.assert_allclose(found.probability, inclusion, atol=0.02)
    np.testing.assert_allclose(found.mean, mean, atol=0.02)
    np.testing.assert_allclose(found.std, np.sqrt(variance), atol=0.02)
    assert abs(found.log_evidence - evidence) < 0.03


def test_blocks_of_five_correlated_effects_are_exact():
    parts = [estimates(5, 0.95, seed) for seed in range(3)]
    values, covariances = zip(*parts, strict=True)
    together = SingleEffects.of(np.concatenate(values), block_diag(*covariances))
    expected = np.concatenate([enumerated(*part)[1] for part in parts])
    np.testing.assert_allclose(together.posterior().probability, expected, atol=1e-4)


@pytest.mark.parametrize("n, correlation, strength", [(5, 0.8, 30), (5, 0.6, 300), (8, 0.9, 8)])
def test_effects_beyond_doubt_against_sums_of_logarithms(n, correlation, strength):
    """Log-odds of hundreds and thousands of nats, of both signs, as all patterns give them."""
    estimate, C = estimates(n, correlation, 3)
    estimate = estimate + strength * np.sqrt(C.diagonal()) * (np.arange(n) % 3 > 0)
    patterns = all_labels([2] * n)
    logs = given_slabs(estimate, C, patterns)[0][:, None]
    included = np.logaddexp.reduce(np.where(patterns > 0, logs, -np.inf))
    excluded = np.logaddexp.reduce(np.where(patterns > 0, -np.inf, logs))
    found = SingleEffects.of(estimate, C).posterior()
    np.testing.assert_allclose(found.log_odds, included - excluded, rtol=1e-6, atol=1e-6)
    cauchy = SingleEffects.of(estimate, C).posterior(slab="cauchy")
    assert (cauchy.probability[np.arange(n) % 3 > 0] > 0.99).all()


def test_independent_estimates_have_closed_forms():
    """One effect at a time: log-odds are those of two normal densities, whatever their size."""
    estimate, errors = np.array([0.0, 1.0, -3.0, 40.0]), np.array([0.1, 0.5, 1.0, 0.2])
    found = SingleEffects.of(estimate, np.diag(errors**2)).posterior(0.0, 2.0)
    total = errors**2 + 4.0
    expected = np.log(errors**2 / total) / 2 + estimate**2 / 2 * (1 / errors**2 - 1 / total)
    np.testing.assert_allclose(found.log_odds, expected, rtol=1e-6)


def test_units_of_measurement_make_no_difference():
    estimate, C = estimates()
    units = 10.0 ** np.array([-6, -3, 0, 2, 4, 6])
    wide = Whitened.of(estimate * units, C * np.outer(units, units))
    narrow = Whitened.of(estimate, C)
    assert np.isclose(wide.chi_square, narrow.chi_square)
    assert np.isclose(wide.chi_square, estimate @ np.linalg.solve(C, estimate))
    small = SingleEffects.of(1e-5 * estimate, 1e-10 * C).posterior(0.0, 1e-5)
    np.testing.assert_allclose(
        small.log_odds, SingleEffects.of(estimate, C).posterior().log_odds, atol=1e-4
    )


@pytest.mark.parametrize("given", [(None, None), (0.0, None), (None, 1.0)])
def test_learned_parameters_maximise_the_evidence_times_their_prior(given):
    estimate, C = estimates(4, correlation=0.0, seed=1)
    found = SingleEffects.of(estimate, C).posterior(*given)

    def loss(values):
        log_odds = given[0] if given[0] is not None else values[0]
        scale = given[1] if given[1] is not None else np.exp(values[1])
        value = enumerated(estimate, C, log_odds, scale)[0]
        if given[0] is None:
            value -= np.logaddexp(0, log_odds) + np.logaddexp(0, -log_odds)
        if given[1] is None:
            value -= (np.log(scale)) ** 2 / 2
        return -value

    best = optimize.minimize(loss, np.zeros(2), method="Nelder-Mead", options={"maxiter": 120}).x
    if given[0] is None:
        assert abs(found.prior_log_odds - best[0]) < 0.02
    if given[1] is None:
        assert abs(np.log(found.scale) - best[1]) < 0.02


def test_collinear_estimates_are_refused():
    C = np.array([[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="singular"):
        Whitened.of(np.ones(2), C)
    with pytest.raises(ValueError, match="positive"):
        Whitened.of(np.ones(2), np.zeros((2, 2)))


def test_cauchy_slabs_of_independent_estimates_are_voigt_profiles():
    """The density of an estimate with such an effect is that of a normal and a Cauchy variable."""
    estimate, errors = np.array([0.0, 0.5, 1.0, -3.0, 40.0]), np.array([0.1, 0.5, 1.0, 1.0, 0.2])
    found = SingleEffects.of(estimate, np.diag(errors**2)).posterior(0.3, 2.0, "cauchy")
    slab, spike = np.log(voigt_profile(estimate, errors, 2.0)), norm.logpdf(estimate, 0, errors)
    np.testing.assert_allclose(found.log_odds, 0.3 + slab - spike, atol=1e-9)
    evidence = np.logaddexp(spike, 0.3 + slab).sum() - 5 * np.logaddexp(0, 0.3)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)


def enumerated_mixtures(estimate, C, log_odds, scale):
    """The same with Cauchy slabs, by all combinations of normal components of each effect."""
    z = -norm.ppf((np.arange(40) + 0.5) / 80)  # 1 / omega is the square of a normal variable
    variances = np.append(0.0, (scale / z) ** 2)
    logs = np.append(0.0, log_odds - np.log(40) + np.zeros(40)) - np.logaddexp(0, log_odds)
    chosen = all_labels([41] * len(estimate))
    slabs = variances[chosen]
    densities, means, _ = given_slabs(estimate, C, slabs)
    values = logs[chosen].sum(1) + densities
    evidence = np.logaddexp.reduce(values)
    weights = np.exp(values - evidence)
    return evidence, weights @ (slabs > 0), weights @ means


@pytest.mark.parametrize("seed, correlation", [(0, 0.4), (1, 0.6), (4, 0.8)])
def test_cauchy_slabs_of_correlated_estimates(seed, correlation):
    estimate, C = estimates(3, correlation, seed)
    found = SingleEffects.of(estimate, C).posterior(-0.5, 0.8, "cauchy")
    evidence, inclusion, mean = enumerated_mixtures(estimate, C, -0.5, 0.8)
    assert found.converged
    np.testing.assert_allclose(found.probability, inclusion, atol=0.02)
    np.testing.assert_allclose(found.mean, mean, atol=0.02)
    assert abs(found.log_evidence - evidence) < 0.03


@pytest.mark.parametrize("n, correlation, seed, scale", [(3, 0.8, 7, 0.8), (2, 0.99, 13, 0.1)])
def test_normal_slabs_that_replace_cauchy_slabs_have_their_moments(n, correlation, seed, scale):
    """The fixed point of correlated effects, whose Cauchy densities are integrated numerically.

    Without damping, the iteration of the second case cycles.
    """
    estimate, C = estimates(n, correlation, seed)
    log_odds, points = -0.5, np.linspace(-15, 15, 20_001)
    included, change, variances = all_labels([2] * n), np.zeros(n), np.full(n, scale**2)
    for _ in range(60):
        densities, means, given = given_slabs(estimate, C, included * variances)
        logs = included @ (log_odds + change) + densities
        weights = np.exp(logs - np.logaddexp.reduce(logs))
        p = weights @ included
        mean = weights @ (included * means) / p
        var = weights @ (included * (given + means**2)) / p - mean**2
        v = 1 / (1 / var - 1 / variances)
        m = v * mean / var
        density = norm.pdf(points, m[:, None], np.sqrt(v)[:, None]) * cauchy.pdf(points, 0, scale)
        total = trapezoid(density, points)
        slab_mean = trapezoid(density * points, points) / total
        slab_var = trapezoid(density * points**2, points) / total - slab_mean**2
        new = v * slab_mean / (m - slab_mean)
        ratio = np.log(total) - norm.logpdf(m, 0, np.sqrt(v + new))
        variances, change = np.sqrt(variances * new), (change + ratio) / 2
    found = SingleEffects.of(estimate, C).posterior(log_odds, scale, "cauchy")
    assert found.converged
    np.testing.assert_allclose(found.log_odds, np.log(p / (1 - p)), atol=1e-3)
    np.testing.assert_allclose(found.mean, p * slab_mean, atol=2e-4)
    std = np.sqrt(p * slab_var + p * (1 - p) * slab_mean**2)
    np.testing.assert_allclose(found.std, std, atol=2e-4)


@pytest.mark.parametrize("slab, correlation", [("cauchy", 0.0), ("gaussian", 0.9)])
def test_scales_are_learned(slab, correlation):
    """Of correlated estimates, single sites would find another scale than blocks."""
    estimate, C = estimates(6, correlation, 2)
    errors = np.sqrt(C.diagonal())
    found = SingleEffects.of(estimate, C).posterior(0.0, None, slab)

    def loss(log_scale):
        if slab == "gaussian":
            evidence = enumerated(estimate, C, 0.0, np.exp(log_scale))[0]
        else:
            density = voigt_profile(estimate, errors, np.exp(log_scale))
            evidence = np.log(norm.pdf(estimate, 0, errors) + density).sum()
        return log_scale**2 / 2 - evidence

    best = optimize.minimize_scalar(loss, bounds=(-5, 5), method="bounded").x
    assert abs(np.log(found.scale) - best) < 0.01


def test_nodes_without_common_pairs_are_independent():
    """With no correlation between the nodes, each part has the posterior of all together."""
    estimate, C = estimates(6, 0.5, 5)
    halves = [np.arange(3), np.arange(3, 6)]
    C[:3, 3:] = C[3:, :3] = 0.0
    whole = SingleEffects.of(estimate, C).posterior(-0.3, None)
    blocks = [C[np.ix_(own, own)] for own in halves]
    parts = SingleEffects.of_nodes(estimate, blocks, halves).posterior(-0.3, None)
    np.testing.assert_allclose(parts.probability, whole.probability, atol=1e-5)
    np.testing.assert_allclose(parts.std, whole.std, atol=1e-5)
    assert parts.scale == pytest.approx(whole.scale, rel=1e-4)
    assert parts.log_evidence == pytest.approx(whole.log_evidence, abs=1e-6)
    twice = SingleEffects.of_nodes(estimate, blocks * 2, halves * 2).posterior(-0.3, None)
    np.testing.assert_allclose(twice.log_odds, parts.log_odds, atol=1e-8)
    assert twice.scale == pytest.approx(parts.scale, rel=1e-6)
    assert twice.log_evidence == pytest.approx(parts.log_evidence)
