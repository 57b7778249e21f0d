from dataclasses import replace

import numpy as np
import pytest
from stripes import N_HIDDEN, N_VISIBLE, quick, start, stripes

from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.learning.layered.family import train
from fastmf.models import RBM, exact
from fastmf.priors import Bernoulli, Gaussian, Ising, TruncatedGaussian


@pytest.mark.parametrize("hidden", [Bernoulli, Ising, Gaussian])
@pytest.mark.parametrize("gradient", ["tap", "mean_field", "tap3", "adaptive_tap", "cd", "pcd"])
def test_every_gradient_learns(gradient, hidden):
    if gradient == "adaptive_tap" and hidden is Ising:
        pytest.skip("one compilation less")
    prior = hidden(np.zeros(N_HIDDEN), 2.0) if hidden is Gaussian else hidden(np.zeros(N_HIDDEN))
    # Spins below spins, the machines that other tests compile.
    visible, X = (Ising, 2 * stripes() - 1) if hidden is Ising else (Bernoulli, stripes())
    n_epochs, rate = (25, 0.1) if gradient == "adaptive_tap" else (60, 0.05)
    settings = quick(gradient=gradient, n_epochs=n_epochs, learning_rate=rate)
    model = train(start(prior, visible=visible), X, settings, seed=0).model
    independent = N_VISIBLE * np.log(0.5)
    assert log_likelihood(model, X, exact(model).log_partition).mean() > independent + 1


def test_the_damping_of_adaptive_tap_is_that_of_the_solver():
    """Damping that is nearly one leaves sites where they start: those of one iteration."""
    settings = quick(gradient="adaptive_tap", n_epochs=1, learning_rate=0.5)
    weights = np.random.default_rng(0).normal(size=(N_VISIBLE, N_HIDDEN))
    model = start().rebuilt((weights,), start().layers)
    options = {"one": {"n_sweeps": 1}, "held": {"damping": 1 - 1e-12}, "free": {"damping": 0.0}}
    found = {
        name: train(model, stripes(), replace(settings, **given), seed=0).model.weights
        for name, given in options.items()
    }
    np.testing.assert_allclose(found["held"], found["one"], rtol=1e-8)
    assert abs(found["free"] - found["one"]).max() > 1e-3


@pytest.mark.parametrize("kind", ["data", "noise", "random", "persistent"])
def test_every_kind_of_start(kind):
    state = train(start(), stripes(), quick(starts=kind, n_epochs=2, n_starts=5), seed=0)
    assert np.isfinite(state.model.weights).all()
    assert [len(c) for c in state.chains] == ([5] * 4 if kind == "persistent" else [])


def test_gaussian_units_need_no_bound_on_their_precision():
    """Beyond half the critical coupling, and better than units alone."""
    hidden = Gaussian(np.zeros(N_HIDDEN), 1.0)
    state = train(start(hidden), stripes(), quick(learning_rate=0.2, n_epochs=60), seed=0)
    model = state.model
    broadening = (model.weights**2).sum(0) / 4
    assert (model.hidden.precision < 2 * broadening).any()
    found = log_likelihood(model, stripes(), exact(model, averages=False).log_partition).mean()
    assert found > -N_VISIBLE * np.log(2) + 2
    assert np.isfinite(state.history["log_likelihood"]).all()


@pytest.mark.parametrize(
    "gradient", ["tap", "mean_field", "tap3", "adaptive_tap", "cd", "pcd", "exact"]
)
def test_a_machine_that_is_right_stays_at_a_rate_near_zero(gradient):
    """Two clusters 20 / 3 standard deviations apart: a bound on precisions would move them."""
    z = np.random.default_rng(0).integers(0, 2, 200) * 2 - 1
    X = z[:, None] + 0.3 * np.random.default_rng(1).normal(size=(200, 3))
    p = np.full(3, 1 / 0.09)
    truth = RBM((2 * p)[:, None], Gaussian(-p, p), Bernoulli(np.zeros(1)))
    settings = quick(gradient=gradient, learning_rate=1e-9, n_epochs=2)
    found = train(truth, X, settings, seed=0).model
    np.testing.assert_allclose(found.weights, truth.weights, rtol=1e-5)
    np.testing.assert_allclose(found.visible.precision, p, rtol=1e-5)
    np.testing.assert_allclose(found.visible.field, -p, rtol=1e-5)


def test_learning_says_where_mean_fields_have_no_moments_and_goes_on_with_chains():
    rectified = TruncatedGaussian(np.zeros(N_HIDDEN), 1.0, 0.0, np.inf)
    model = RBM(np.full((N_VISIBLE, N_HIDDEN), 0.8), start().visible, rectified)
    settings = quick(learning_rate=0.01, n_epochs=2)
    with pytest.warns(
        UserWarning, match="'tap' cannot follow .* goes on with gradient='pcd'"
    ) as told:
        found = train(model, stripes(), settings, seed=0)
    assert len(told) == 1
    assert len(found.chains) == 1 and np.isfinite(found.history["log_likelihood"]).all()
    chains = train(model, stripes(), replace(settings, gradient="pcd"), seed=0)
    np.testing.assert_allclose(found.model.weights, chains.model.weights, rtol=0.2)
