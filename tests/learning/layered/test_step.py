import numpy as np
import pytest
from stripes import N_HIDDEN, N_VISIBLE, quick, start, stripes

from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.learning.layered.family import train
from fastmf.models import exact
from fastmf.priors import Bernoulli, Gaussian, Ising


@pytest.mark.parametrize("hidden", [Bernoulli, Ising, Gaussian])
@pytest.mark.parametrize("gradient", ["tap", "mean_field", "tap3", "adaptive_tap", "cd", "pcd"])
def test_every_gradient_learns(gradient, hidden):
    if gradient == "tap3" and hidden is Gaussian:
        pytest.skip("the third order is for binary units")
    if gradient == "adaptive_tap" and hidden is Ising:
        pytest.skip("one compilation less")
    prior = hidden(np.zeros(N_HIDDEN), 2.0) if hidden is Gaussian else hidden(np.zeros(N_HIDDEN))
    # Spins below spins, the machines that other tests compile.
    visible, X = (Ising, 2 * stripes() - 1) if hidden is Ising else (Bernoulli, stripes())
    settings = quick(gradient=gradient, n_epochs=60, learning_rate=0.05)
    model = train(start(prior, visible=visible), X, settings, seed=0).model
    independent = N_VISIBLE * np.log(0.5)
    assert log_likelihood(model, X, exact(model).log_partition).mean() > independent + 1


@pytest.mark.parametrize("kind", ["data", "noise", "random", "persistent"])
def test_every_kind_of_start(kind):
    state = train(start(), stripes(), quick(starts=kind, n_epochs=2, n_starts=5), seed=0)
    assert np.isfinite(state.model.weights).all()
    assert [len(c) for c in state.chains] == ([5] * 4 if kind == "persistent" else [])


def test_gaussian_units_stay_in_their_domain():
    hidden = Gaussian(np.zeros(N_HIDDEN), 1.0)
    state = train(start(hidden), stripes(), quick(learning_rate=1.0, n_epochs=20), seed=0)
    broadening = (state.model.weights**2).sum(0) / 4
    assert (state.model.hidden.precision > broadening).all()
    assert np.isfinite(state.history["log_likelihood"]).all()
