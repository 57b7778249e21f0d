from typing import NamedTuple

import numpy as np
import pytest

from fastmf.inference.sampling.gibbs import even_layers, gibbs
from fastmf.models import DBM, RBM, exact
from fastmf.priors import (
    Bernoulli,
    Binomial,
    Categorical,
    Concatenated,
    GaussBernoulli,
    Gaussian,
    Ising,
    TruncatedGaussBernoulli,
    TruncatedGaussian,
)
from fastmf.priors._protocol import can_draw
from fastmf.special import exp, log_2_cosh, sigmoid_pair, where


@pytest.mark.parametrize(
    "hidden",
    [
        Bernoulli([0.3, -0.2]),
        Ising([0.3, -0.2]),
        Binomial([0.3, -0.2], 3),
        Gaussian([0.3, -0.2], [2.0, 3.0]),
        GaussBernoulli([0.3, -0.2], [2.0, 3.0], [0.5, -0.5]),
        TruncatedGaussian([0.3, -0.2], [2.0, 3.0], 0.0, [np.inf, 1.0]),
        TruncatedGaussBernoulli([0.3, -0.2], [2.0, 3.0], [0.5, -0.5], 0.0, 2.0),
        Concatenated(Ising([0.3]), GaussBernoulli([0.3], [2.0], [0.5])),
        Categorical(np.array([[0.3, -0.2]])),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_samples_have_the_exact_averages(hidden):
    rng = np.random.default_rng(0)
    model = RBM(rng.normal(size=(3, 2)), Bernoulli([0.1, 0.5, -0.3]), hidden)
    n = 20_000
    start = np.zeros((n, 3))
    v, h = gibbs(model, start, 30, rng)
    assert not start.any()
    # `h` was drawn before `v`, from the same stationary chain.
    target = exact(model)
    for sample, mean, var in zip((v, h), target.mean, target.var, strict=True):
        np.testing.assert_allclose(sample.mean(0), mean, atol=4 * np.sqrt(var.max() / n))
    spread = np.sqrt((target.var[0].max() + 1) * (target.var[1].max() + 1) / n)
    np.testing.assert_allclose(v.T @ h / n, target.pairwise, atol=4 * spread)


def test_units_without_a_distribution_are_an_error():
    model = RBM(np.ones((3, 2)), Bernoulli(np.zeros(3)), Gaussian(np.zeros(2), np.ones(2)))
    unbounded = Gaussian._make((np.zeros(2), -np.ones(2)))
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


class OwnMoments(Ising):
    """The same, whose moments are its own, so that the inherited `draw` is not asked."""

    moments = WithoutDraw.moments


@pytest.mark.parametrize("kind", [WithoutDraw, WithDraw, WithValues, OwnMoments])
def test_units_of_ones_own_are_sampled_too(kind):
    layers = Bernoulli([0.1, 0.5, -0.3]), kind(np.array([0.3, -0.2]))
    assert can_draw(layers[1]) == (kind is not WithoutDraw)
    model = RBM(np.random.default_rng(1).normal(size=(3, 2)), *layers)
    n, twin = 20_000, RBM(model.weights, layers[0], Ising(layers[1].field))
    v, h = gibbs(model, np.zeros((n, 3)), 30, np.random.default_rng(0))
    assert set(np.unique(h)) == {-1.0, 1.0}
    np.testing.assert_allclose(v.mean(0), exact(twin).mean[0], atol=4 * 0.5 / np.sqrt(n))


def test_even_layers_are_drawn_uncoupled():
    sizes = 3, 2, 4
    weights = np.ones((3, 2)), np.ones((2, 4))
    field = np.array([0.0, 2.0, -2.0, 30.0])
    fields = np.zeros(3), np.zeros(2), field
    model = DBM(weights, tuple(map(Bernoulli, fields)))
    assert model.sizes == sizes
    visible = np.tile([1.0, 0.0, 1.0], (4000, 1))
    units = even_layers(model, visible, np.random.default_rng(0))
    assert units.shape == (4000, 7)
    np.testing.assert_array_equal(units[:, :3], visible)
    expected = 1 / (1 + np.exp(-field))
    np.testing.assert_allclose(units[:, 3:].mean(0), expected, atol=4 * 0.5 / np.sqrt(4000))
