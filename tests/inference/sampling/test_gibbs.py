import numpy as np
import pytest

from fastmf.inference.sampling.gibbs import even_layers, gibbs, two_values
from fastmf.models import DBM, RBM, exact
from fastmf.priors import Bernoulli, Gaussian, Ising


@pytest.mark.parametrize(
    "hidden",
    [Bernoulli([0.3, -0.2]), Ising([0.3, -0.2]), Gaussian([0.3, -0.2], [2.0, 3.0])],
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


def test_same_generator_same_samples():
    model = RBM(np.ones((3, 2)), Bernoulli(np.zeros(3)), Bernoulli(np.zeros(2)))
    draws = [gibbs(model, np.zeros((50, 3)), 3, np.random.default_rng(s))[0] for s in (1, 1, 2)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


def test_two_values():
    assert two_values(Bernoulli([0.0])) == (0.0, 1.0)
    assert two_values(Ising([0.0])) == (-1.0, 1.0)
    assert two_values(Gaussian([0.0], [1.0])) is None


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
