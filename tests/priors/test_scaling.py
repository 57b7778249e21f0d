"""Units of measurement of real values, and steps of precisions in the logarithm."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.priors import _scaling as measures
from fastmf.priors._queries import average_gradient

N = 3
FIELD = np.array([0.4, -1.0, 2.0])
PRIORS = {
    "gaussian": mf.Gaussian(FIELD, [2.0, 0.5, 30.0]),
    "half line": mf.TruncatedGaussian(FIELD, [2.0, 0.5, 3.0], [0.0, -1.0, 2.0], np.inf),
    "interval": mf.TruncatedGaussian(FIELD, [2.0, -0.5, 3.0], -1.0, [2.0, 3.0, 4.0]),
    "spike": mf.GaussBernoulli(FIELD, [2.0, 0.5, 30.0], [0.3, -1.0, 2.0]),
    "bounded spike": mf.TruncatedGaussBernoulli(FIELD, [2.0, -0.5, 3.0], 0.3, -1.0, 2.0),
    "two": mf.Concatenated(mf.Bernoulli([0.3]), mf.Gaussian([0.4, 2.0], [2.0, 0.5])),
}


@pytest.mark.parametrize("kind", PRIORS)
def test_units_of_y_have_the_distribution_of_x(kind):
    """Moments under any tilt, of x = offset + scale y."""
    prior = PRIORS[kind]
    offset, scale = measures.units_of_measurement(prior)
    assert (offset != 0).any() or (scale != 1).any()
    assert not (offset.any() and "spike" in kind)
    b, a = np.array([0.3, -0.2, 0.5]), np.array([0.1, 0.2, 0.3])
    of_y = measures.rescaled(prior, offset, scale)
    # exp(b x - a x^2 / 2) as a tilt of y.
    tilt = scale * (b - a * offset), scale**2 * a
    mean, var = of_y.moments(*tilt)
    expected_mean, expected_var = prior.moments(b, a)
    np.testing.assert_allclose(offset + scale * mean, expected_mean, rtol=1e-9)
    np.testing.assert_allclose(scale**2 * var, expected_var, rtol=1e-9)
    again = measures.rescaled(of_y, -offset / scale, 1 / scale)
    for part, other in zip(again.moments(b, a), prior.moments(b, a), strict=True):
        np.testing.assert_allclose(part, other, rtol=1e-9)


@pytest.mark.parametrize("kind", PRIORS)
def test_log_densities_differ_by_the_volume(kind):
    prior = PRIORS[kind]
    offset, scale = measures.units_of_measurement(prior)
    x = prior.sample(np.zeros((5, N)), 0.0, np.random.default_rng(0))
    y, of_y = (x - offset) / scale, measures.rescaled(prior, offset, scale)

    def log_likelihood(prior, x):
        return (prior.log_prob(x) - prior.log_partition(0.0, 0.0)).sum(1)

    found = log_likelihood(of_y, y) - measures.log_volume(of_y, scale, y)
    np.testing.assert_allclose(found, log_likelihood(prior, x), rtol=1e-9)


def test_scales_follow_the_units_of_measurement_of_data():
    X = np.random.default_rng(0).normal(3, 2, (50, N))
    factors = np.array([1e-3, 1.0, 1e3])
    one, other = (measures.units_of_measurement(mf.Gaussian.from_data(x)) for x in (X, X * factors))
    np.testing.assert_allclose(other, np.array(one) * factors, rtol=1e-9)
    np.testing.assert_allclose(one[1], X.std(0) / measures.LEARNED_DEVIATION)
    offset, scale = measures.units_of_measurement(PRIORS["interval"])
    mean, var = PRIORS["interval"].moments(0.0, 0.0)
    np.testing.assert_allclose([offset, scale], [mean, np.sqrt(var)])
    narrow = mf.TruncatedGaussian(np.zeros(1), 1e6, -1.0, 1.0)  # hardly varies
    assert measures.units_of_measurement(narrow)[1] == 2 / measures.WIDEST_INTERVAL
    # Of a spike the deviation is that of the slab, unless most values are zero.
    slab = np.array([[9.0, 3.0], [4.0, 4.0]])
    for log_odds, expected in ((30.0, 0.5), (-30.0, np.sqrt(2.25**2 + 0.25))):
        spiked = mf.GaussBernoulli(slab[0, :1], slab[1, :1], log_odds + np.zeros(1))
        found = measures.units_of_measurement(spiked)[1] * measures.LEARNED_DEVIATION
        np.testing.assert_allclose(found, max(expected, np.sqrt(2.25**2 + 0.25) / 4))
    assert not measures.is_real(mf.Bernoulli([0.0])) and measures.is_real(PRIORS["two"])


def test_constant_columns_have_a_scale_of_their_own():
    X = np.full((9, 3), [0.0, 5.0, -2e6])
    prior = mf.Gaussian.from_data(X)
    assert np.isfinite(prior.precision).all()
    tiny = 1e-8 * np.random.default_rng(0).normal(size=(50, 3))
    np.testing.assert_allclose(mf.Gaussian.from_data(tiny).precision, 1 / tiny.var(0))


@pytest.mark.parametrize("kind", ["gaussian", "half line", "spike", "two"])
def test_derivatives_by_logarithms_are_those_of_finite_differences(kind):
    prior = PRIORS[kind]
    mean, var = prior.moments(0.0, 0.0)
    averages = np.array([mean + 0.1, var + mean**2 + 0.3, np.full(N, 0.7)])

    def average_log_prob(prior):
        """Average of log_prob - log_partition over any distribution with these averages."""
        total = 0.0
        for part in getattr(prior, "parts", (prior,)):
            if not hasattr(part, "precision"):
                continue
            x, square, nonzero = averages[:, -len(part.field) :]
            value = part.field * x - part.precision * square / 2
            if hasattr(part, "log_odds"):
                at_zero = part.slab().log_partition(0.0, 0.0)
                value = value + nonzero * (part.log_odds - at_zero)
            total += value.sum()
        return total

    derivatives = measures.by_log_precision(prior, average_gradient(prior, averages))
    values = measures.with_log_precisions(prior)
    part = -1 if kind == "two" else None
    for unit in range(len(derivatives.parts[1].field if part else derivatives.field)):
        found = []
        for step in (-1e-5, 1e-5):
            here = values.parts[1] if part else values
            logs = here.precision.copy()
            logs[unit] += step
            changed = here._replace(precision=logs)
            changed = values._replace(parts=(values.parts[0], changed)) if part else changed
            found.append(average_log_prob(measures.from_log_precisions(prior, changed)))
        analytic = derivatives.parts[1] if part else derivatives
        difference = (found[1] - found[0]) / 2e-5
        assert analytic.precision[unit] == pytest.approx(difference, rel=1e-6, abs=1e-8)


def test_steps_keep_precisions_positive_and_means_of_slabs_where_they_are():
    prior = PRIORS["spike"]
    step = prior._replace(field=0 * FIELD, precision=np.array([-9.0, 0.1, 0.2]), log_odds=0 * FIELD)
    moved = prior._replace(precision=prior.precision + step.precision)
    new = measures.with_log_steps(prior, moved, step)
    factors = np.exp([-measures.MAX_LOG_STEP, 0.1, 0.2])
    np.testing.assert_allclose(new.precision, prior.precision * factors)
    np.testing.assert_allclose(new.field / new.precision, prior.field / prior.precision)
    # A Gaussian keeps its field, with which couplings to other layers go together.
    gaussian = PRIORS["gaussian"]
    step = gaussian._replace(field=0 * FIELD, precision=np.full(N, 0.1))
    new = measures.with_log_steps(gaussian, gaussian, step)
    np.testing.assert_array_equal(new.field, FIELD)
    # Far from zero it is the mean that stays: fields move with precisions.
    away = gaussian._replace(field=50 * gaussian.precision)
    new = measures.with_log_steps(away, away, step)
    np.testing.assert_allclose(new.field / new.precision, 50)
    x = 50 + np.random.default_rng(0).normal(size=(9, N))
    derivatives = away._make([part.mean(0) for part in away.log_prob_gradient(x)])
    by_log = measures.by_log_precision(away, derivatives, means_held=True).precision
    steps = (step._replace(precision=np.full(N, h)) for h in (1e-5, -1e-5))
    up, down = (measures.with_log_steps(away, away, s).log_prob(x).mean(0) for s in steps)
    np.testing.assert_allclose(by_log, (up - down) / 2e-5, rtol=1e-5)
    # Precisions beyond the largest do not rise.
    far = gaussian._replace(precision=np.full(N, 2 * measures.MAX_PRECISION))
    new = measures.with_log_steps(far, far, step)
    np.testing.assert_array_equal(new.precision, far.precision)
