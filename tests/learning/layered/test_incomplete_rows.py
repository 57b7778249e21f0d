"""Exact likelihood of rows in which values are missing: finite differences and SciPy."""

import numpy as np
import pytest
from differences import differences
from scipy.optimize import minimize

import fastmf as mf
from fastmf.inference.missing.layered import log_likelihood_of_seen
from fastmf.learning.layered.exact_averages import exact_averages
from fastmf.learning.layered.gradients import free_units
from fastmf.learning.layered.quasi_newton_steps import Objective, take_step
from fastmf.learning.training.ascent import initial_state

RNG = np.random.default_rng(0)
W = RNG.normal(size=(4, 3)) / 2
F, G = RNG.normal(size=4), RNG.normal(size=3)
HIDDEN = mf.Bernoulli(G)
# The largest score of the second unit is 1.
SCORES = np.where(np.arange(3) > np.array([[2], [1], [2], [2]]), -np.inf, 0.1 * np.arange(3))
MODELS = {
    "binary": mf.RBM(W, mf.Bernoulli(F), HIDDEN),
    "gaussian": mf.RBM(W, mf.Gaussian(F, np.ones(4)), HIDDEN),
    "truncated": mf.RBM(W, mf.TruncatedGaussian(F, np.ones(4), -np.ones(4), np.full(4, 2)), HIDDEN),
    "spike": mf.RBM(W, mf.GaussBernoulli(F, np.ones(4), np.zeros(4)), HIDDEN),
    "categorical": mf.RBM(RNG.normal(size=(6, 3)), mf.Categorical(np.zeros((2, 3))), HIDDEN),
    "mixed": mf.RBM(
        RNG.normal(size=(4, 3)) / 2,
        mf.Concatenated(mf.Bernoulli(F[:2]), mf.Gaussian(F[2:], np.ones(2))),
        HIDDEN,
    ),
    "ordinal": mf.RBM(W, mf.Ordinal(SCORES), HIDDEN),
    "ordinal hidden": mf.RBM(W.T, mf.Bernoulli(G), mf.Ordinal(SCORES)),
    "missing states": mf.RBM(W / 3, mf.Bernoulli(F), mf.Gaussian(G, np.ones(3))),
    "only gaussian": mf.RBM(W / 3, mf.Gaussian(F, np.ones(4)), mf.Gaussian(G, np.ones(3))),
}


def rows(model, n=25):
    """Rows from the uncoupled units, a quarter of the entries of which is missing."""
    visible, n_units = model.visible, model.n_visible
    X = visible.sample(np.zeros((n, n_units)), np.zeros((n, n_units)), RNG)
    size = 3 if n_units == 6 else 1
    missing = RNG.random((n, n_units // size)) < 0.25
    missing[:5] = False
    missing[5, 1:] = True
    X[np.repeat(missing, size, axis=1)] = np.nan
    return X


@pytest.mark.parametrize("name", MODELS)
def test_value_and_derivatives(name):
    model = MODELS[name]
    X, weights = rows(model), RNG.random(25)
    objective = Objective(X, weights, 0.3)
    point = objective.at(model)
    total = exact_averages(model).log_partition
    value = np.average(log_likelihood_of_seen(model, X, total)[0], weights=weights)
    assert point.value == pytest.approx(value - 0.15 * np.square(model.weights).sum(), abs=1e-9)
    found = differences(lambda x: objective.near(model, x).value, point.variables)
    # The last variables are precisions, which are held.
    if any(map(np.any, free_units(model.layers))):
        found[-model.n_hidden :] = [0.0] * model.n_hidden
    np.testing.assert_allclose(point.gradient, found, rtol=1e-5, atol=1e-7)


def test_steps_reach_the_maximum_that_scipy_finds():
    model = MODELS["binary"].rebuilt((W[:, :1],), (mf.Bernoulli(F), mf.Bernoulli(G[:1])))
    X = rows(model, 20)
    objective = Objective(X, None, 0.05)
    state = initial_state(model)
    for _ in range(60):
        take_step(state, objective)

    def negative(variables):
        w, f, g = variables[:4, None], variables[4:8], variables[8:]
        machine = mf.RBM(w, mf.Bernoulli(f), mf.Bernoulli(g))
        values = log_likelihood_of_seen(machine, X, mf.exact(machine).log_partition)[0]
        return -values.mean() + 0.025 * np.square(w).sum()

    best = minimize(negative, np.concatenate([W[:, 0], F, G[:1]]), method="BFGS")
    assert objective.at(state.model).value == pytest.approx(-best.fun, abs=1e-7)
