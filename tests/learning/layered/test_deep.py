"""Learning of deep machines: gradients by finite differences, likelihoods by enumeration."""

import itertools

import numpy as np
import pytest
from differences import assert_gradient
from units_to_learn import gradient

import fastmf as mf
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import train

TIGHT = {"tol": 1e-13, "max_iter": 3000}
X = (np.random.default_rng(5).random((3, 4)) < 0.5).astype(float)


def random_dbm(sizes=(4, 3, 3), scale=0.5, seed=0):
    rng = np.random.default_rng(seed)
    shapes = itertools.pairwise(sizes)
    weights = tuple(scale * rng.normal(size=shape) for shape in shapes)
    return mf.DBM(weights, tuple(mf.Bernoulli(rng.normal(size=n) / 2) for n in sizes))


def likelihood(model, order):
    free = mf.tap(model, order=order, **TIGHT)
    return log_likelihood(model, X, free.log_partition, order=order, **TIGHT).mean()


@pytest.mark.parametrize("sizes", [(4, 3, 3), (4, 3, 2, 3)])
@pytest.mark.parametrize("order", [1, 2])
def test_gradient(sizes, order):
    model = random_dbm(sizes)
    free = mf.tap(model, model.layers[0].moments(0.0, 0.0)[0][None], order=order, **TIGHT)
    slope = gradient(model, X, free, order=order, **TIGHT)[0]
    assert_gradient(slope, model, lambda moved: likelihood(moved, order), rel=1e-6, abs=1e-8)


def mean_over_samples(model, even):
    """Mean of log sum exp(-energy) over the odd layers, whose units have two states each."""
    machine = model.bipartite()
    b = even @ machine.weights
    of_units = np.hstack([even * machine.visible.field, np.logaddexp(0, b + machine.hidden.field)])
    return of_units.sum(1).mean()


@pytest.mark.parametrize("sizes", [(4, 3, 3), (4, 3, 2, 3), (4, 3, 2, 3, 2)])
def test_gradient_of_samples(sizes):
    """Samples of the even layers add what makes the sum over the odd ones change."""
    model, rng = random_dbm(sizes), np.random.default_rng(1)
    even = (rng.random((7, sum(sizes[::2]))) < 0.5).astype(float)

    def value(moved):
        of_data = log_likelihood(moved, X, 0.0, order=1, **TIGHT).mean()
        return of_data - mean_over_samples(moved, even)

    slope = gradient(model, X, even, order=1, **TIGHT)[0]
    assert_gradient(slope, model, value, rel=1e-6, abs=1e-8)


def test_persistent_chains_are_of_all_even_layers():
    """Over many chains their averages are the exact ones, which TAP only approximates."""
    model = random_dbm((4, 3, 3), scale=1.0)
    settings = LayeredSettings(
        gradient="pcd", batch_size=3, n_sweeps=50, n_starts=20_000, n_epochs=1, learning_rate=0.0,
        monitor_rows=3,
    )  # fmt: skip
    (even,) = train(model, X, settings, seed=0).chains
    assert even.shape == (20_000, 7)
    exact = mf.exact(model)
    expected = np.concatenate([exact.mean[0], exact.mean[2]])
    np.testing.assert_allclose(even.mean(0), expected, atol=0.015)  # four standard errors


def test_likelihood_is_near_the_exact_one():
    model = random_dbm()
    h = [(np.arange(8)[:, None] >> np.arange(3)) % 2.0] * 2
    h1, h2 = np.repeat(h[0], 8, 0), np.tile(h[1], (8, 1))
    exact = [
        np.logaddexp.reduce(-model.energy(np.broadcast_to(x, (64, 4)), h1, h2))
        - mf.exact(model).log_partition
        for x in X
    ]
    free = mf.tap(model, **TIGHT)
    found = log_likelihood(model, X, free.log_partition, **TIGHT)
    np.testing.assert_allclose(found, exact, atol=3e-3)
