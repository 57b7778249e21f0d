import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import beta, cauchy, lognorm

from fastmf.learning.evidence import Classification, Hyperparameters, Regression, Task
from fastmf.learning.evidence.parameter_priors import ParameterPriors

FREE = np.ones(5, bool)


def priors():
    """Of three groups of 4, 1 and 30 features; y has variance 4 and the features 9."""
    rng = np.random.default_rng(0)
    X = 3 * rng.choice([-1.0, 1.0], (20, 35))
    groups = np.repeat([0, 1, 2], [4, 1, 30])
    return ParameterPriors.of(Task.of(Regression(X, 2 * rng.choice([-1.0, 1.0], 20), groups)))


def test_densities_are_those_of_the_distributions():
    ours = priors()
    here = Hyperparameters(0.3, 0.7, np.array([-1.0, 0.5, -4.0]))
    noise = cauchy.logpdf(np.log(0.3), np.log(0.6 * 4), 0.5)
    slab = lognorm.logpdf(0.7, 2.0, scale=0.5 * 4 / 9) + np.log(0.7)  # by its logarithm
    p = expit(here.log_odds)
    odds = beta.logpdf(p, 0.5, [2, 0.5, 15]) + np.log(p * (1 - p))  # by the log-odds
    assert ours.log_density(here, FREE)[0] == pytest.approx(noise + slab + odds.sum(), rel=1e-12)
    fixed = np.array([False, True, False, False, True])
    value, gradient = ours.log_density(here, fixed)
    assert value == pytest.approx(slab + odds[2])
    np.testing.assert_array_equal(gradient[~fixed], 0)


@pytest.mark.parametrize("n_lost", [0, 1])
def test_gradient_and_information_against_differences(n_lost):
    ours = priors()._replace(n_lost=n_lost)
    centre, h = np.array([-3.0, 1.0, -1.0, 0.5, -4.0]), 1e-4

    def at(x):
        return ours.log_density(Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:]), FREE)

    steps = h * np.eye(5)
    value = [(at(centre + s)[0] - at(centre - s)[0]) / (2 * h) for s in steps]
    np.testing.assert_allclose(at(centre)[1], value, rtol=1e-6, atol=1e-8)
    here = Hyperparameters(np.exp(centre[0]), np.exp(centre[1]), centre[2:])
    slopes = [(at(centre - s)[1] - at(centre + s)[1])[k] / (2 * h) for k, s in enumerate(steps)]
    np.testing.assert_allclose(ours.information(here)[1:], slopes[1:], rtol=1e-6)


def test_a_constant_of_flat_prior_is_integrated():
    """Over it, rows of noise s2 have a density of which a factor is the deviation of the noise."""
    y = np.random.default_rng(0).normal(size=6)

    def ratio(s2):
        def density(c):
            return np.exp(-((y - c) ** 2).sum() / (2 * s2)) / (2 * np.pi * s2) ** 3

        centred = np.exp(-((y - y.mean()) ** 2).sum() / (2 * s2)) / (2 * np.pi * s2) ** 3
        return np.log(quad(density, -20, 20, points=[y.mean()])[0] / centred)

    ours = priors()
    lost = [
        ours._replace(n_lost=1).log_density(Hyperparameters(s2, 1.0, np.zeros(3)), FREE)[0]
        - ours.log_density(Hyperparameters(s2, 1.0, np.zeros(3)), FREE)[0]
        for s2 in (0.2, 1.5)
    ]
    assert lost[1] - lost[0] == pytest.approx(ratio(1.5) - ratio(0.2), rel=1e-6)


def test_classes_have_a_prior_on_the_slab_over_the_noise():
    X = 2.0 * np.random.default_rng(0).choice([-1.0, 1.0], (10, 3))
    task = Task.of(Classification.of(X, np.ones(10), np.zeros(3, int)))
    assert ParameterPriors.of(task).slab == pytest.approx(0.5 / 4)
