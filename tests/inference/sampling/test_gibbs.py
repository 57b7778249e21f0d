from typing import NamedTuple

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.sampling.gibbs import (
    Path,
    Phases,
    Population,
    effective_size,
    gibbs,
    log_mean,
)
from fastmf.priors._protocol import can_draw
from fastmf.special import exp, log_2_cosh, sigmoid_pair, where


@pytest.mark.parametrize("hidden", [
    mf.Bernoulli([0.3, -0.2]), mf.Ising([0.3, -0.2]), mf.Binomial([0.3, -0.2], 3),
    mf.Gaussian([0.3, -0.2], [2.0, 3.0]), mf.GaussBernoulli([0.3, -0.2], [2.0, 3.0], [0.5, -0.5]),
    mf.TruncatedGaussian([0.3, -0.2], [2.0, 3.0], 0.0, [np.inf, 1.0]),
    mf.TruncatedGaussBernoulli([0.3, -0.2], [2.0, 3.0], [0.5, -0.5], 0.0, 2.0),
    mf.Concatenated(mf.Ising([0.3]), mf.GaussBernoulli([0.3], [2.0], [0.5])),
    mf.Categorical(np.array([[0.3, -0.2]])),
], ids=lambda prior: type(prior).__name__)  # fmt: skip
def test_samples_have_the_exact_averages(hidden):
    rng = np.random.default_rng(0)
    model = mf.RBM(rng.normal(size=(3, 2)), mf.Bernoulli([0.1, 0.5, -0.3]), hidden)
    n = 5_000
    start = np.zeros((n, 3))
    v, h = gibbs(model, start, 20, rng)
    assert not start.any() and not len(gibbs(model, start[:0], 1, rng)[0])
    # `h` was drawn before `v`, from the same stationary chain.
    target = mf.exact(model)
    for sample, mean, var in zip((v, h), target.mean, target.var, strict=True):
        np.testing.assert_allclose(sample.mean(0), mean, atol=4 * np.sqrt(var.max() / n))
    spread = np.sqrt((target.var[0].max() + 1) * (target.var[1].max() + 1) / n)
    np.testing.assert_allclose(v.T @ h / n, target.pairwise, atol=4 * spread)


def test_units_without_a_distribution_are_an_error():
    model = mf.RBM(np.ones((3, 2)), mf.Bernoulli(np.zeros(3)), mf.Gaussian(np.zeros(2), np.ones(2)))
    unbounded = mf.Gaussian._make((np.zeros(2), -np.ones(2)))
    model = model.rebuilt(model.couplings, (model.visible, unbounded))
    with pytest.raises(ValueError, match="smaller couplings"):
        gibbs(model, np.ones((4, 3)), 2, np.random.default_rng(0))


class WithoutDraw(NamedTuple):
    """Spins whose values only `sample` draws."""

    field: np.ndarray

    def log_partition(self, b, a):
        return log_2_cosh(self.field + b)

    def moments(self, b, a):
        p, q = sigmoid_pair(2.0 * (self.field + b))
        return p - q, 4.0 * p * q

    def sample(self, b, a, rng):
        mean = self.moments(b, a)[0]
        return np.where(rng.random(mean.shape) < (1 + mean) / 2, 1.0, -1.0)


class WithDraw(NamedTuple):
    """The same, drawn in kernels."""

    field: np.ndarray

    log_partition = WithoutDraw.log_partition
    moments = WithoutDraw.moments

    def draw(self, b, a, u):
        t = exp(-2.0 * (self.field + b))
        return where(u * (1.0 + t) < 1.0, 1.0, -1.0)


class WithValues(NamedTuple):
    """The same, of which only the two values are known."""

    field: np.ndarray

    support = (-1.0, 1.0)
    log_partition = WithoutDraw.log_partition
    moments = WithoutDraw.moments


class OwnMoments(mf.Ising):
    """The same, whose moments are its own, so that the inherited `draw` is not asked."""

    moments = WithoutDraw.moments


@pytest.mark.parametrize("kind", [WithoutDraw, WithDraw, WithValues, OwnMoments])
def test_units_of_ones_own_are_sampled_too(kind):
    layers = mf.Bernoulli([0.1, 0.5, -0.3]), kind(np.array([0.3, -0.2]))
    assert can_draw(layers[1]) == (kind is not WithoutDraw)
    model = mf.RBM(np.random.default_rng(1).normal(size=(3, 2)), *layers)
    n, twin = 10_000, mf.RBM(model.weights, layers[0], mf.Ising(layers[1].field))
    v, h = gibbs(model, np.zeros((n, 3)), 30, np.random.default_rng(0))
    assert set(np.unique(h)) == {-1.0, 1.0}
    np.testing.assert_allclose(v.mean(0), mf.exact(twin).mean[0], atol=4 * 0.5 / np.sqrt(n))


# --- annealing ------------------------------------------------------------------------------------


def test_resampled_chains_count_for_their_starts():
    rng = np.random.default_rng(0)
    population = Population(200)
    first, second = rng.normal(size=(2, 200))
    population.add(first)
    starts = population.resample(rng)
    assert effective_size(population.log_weights) == pytest.approx(200)
    population.add(second)
    mean = np.exp(first).mean() * np.exp(second).mean()
    by_start = np.exp(population.by_start())
    assert by_start.mean() == pytest.approx(mean)
    expected = np.exp(first).mean() * np.bincount(starts, np.exp(second), 200)
    np.testing.assert_allclose(by_start, expected, rtol=1e-12)
    # Systematic resampling draws a chain as often as expected, rounded up or down.
    weights = np.exp(first) / np.exp(first).sum()
    assert (abs(np.bincount(starts, minlength=200) - 200 * weights) < 1).all()


def test_weighted_resampling_keeps_the_estimate_unbiased(monkeypatch):
    """With few chains and steps, so that a wrong weight after resampling would show."""
    rng = np.random.default_rng(0)
    priors = [mf.Bernoulli(rng.normal(size=n)) for n in (7, 4)]
    model = mf.RBM(0.8 * rng.normal(size=(7, 4)), *priors)
    monkeypatch.setattr("fastmf.inference.sampling.gibbs.RESAMPLE_BELOW", 1.1)
    neutral = [np.zeros(7), np.zeros(4)]
    path = Path.of(model, 0.0, 10, np.random.default_rng(0), 1)
    betas = np.linspace(0, 1, 6)
    truth = mf.exact(model).log_partition
    means = [np.exp(path.forward(neutral, betas).log_weights - truth).mean() for _ in range(250)]
    assert abs(np.mean(means) - 1) < 4 * np.std(means) / np.sqrt(250)


# --- phases ---------------------------------------------------------------------------------------


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    fields = mf.Bernoulli(rng.normal(size=6)), mf.Ising(rng.normal(size=4))
    return mf.RBM(0.7 * rng.normal(size=(6, 4)), *fields)


def bases(n, rng):
    return [[rng.normal(size=6), rng.normal(size=4)] for _ in range(n)]


@pytest.mark.parametrize("n_phases", [1, 3])
def test_estimates_in_both_directions_are_those_of_enumeration(model, n_phases):
    """Three sets of units in few steps: a wrong weight of a phase would show at once."""
    truth, rng = mf.exact(model).log_partition, np.random.default_rng(1)
    path = Path.of(model, 0.0, 20000, rng, 1)
    phases = Phases(path, bases(n_phases, rng))
    betas = np.linspace(0, 1, 6)
    for _ in range(2):
        leg = phases.forward(betas)
        value, error = log_mean(leg.log_weights)
        assert error < 0.02 and abs(value - truth) < 4 * error + 0.01
        assert leg.ends.shape == (20000, 6) and len(leg.log_weights) == 20000
    assert phases.shares.sum() == pytest.approx(1)
    mean = mf.exact(model).mean[0]
    assert np.allclose(leg.ends.mean(0), mean, atol=0.05)
    samples = path.sample([np.zeros(6), np.zeros(4)], leg.ends, 50)
    value, error = log_mean(-phases.backward(betas, samples))
    assert error < 0.02 and abs(-value - truth) < 4 * error + 0.01
