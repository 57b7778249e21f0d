"""Likelihood and means of what was seen, against sums over all states."""

import numpy as np
import pytest
from kernel_cases.machines import solved_gaussian
from scipy.stats import multivariate_normal

import fastmf as mf
from fastmf.inference.missing.layered import log_likelihood_of_seen, means_given_seen
from fastmf.models.exact import states_of

RNG = np.random.default_rng(0)
BINARY = mf.RBM(RNG.normal(size=(5, 3)), mf.Bernoulli(RNG.normal(size=5)), mf.Ising(np.zeros(3)))
LABELLED = mf.RBM(
    RNG.normal(size=(7, 3)),
    mf.Concatenated(mf.Categorical(RNG.normal(size=(2, 3))), mf.Bernoulli(np.zeros(1))),
    mf.Bernoulli(np.zeros(3)),
)
DEEP = mf.DBM(
    [RNG.normal(size=(4, 3)), RNG.normal(size=(3, 2))],
    [mf.Bernoulli(np.zeros(4)), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(RNG.normal(size=2))],
)
MODELS = {"binary": BINARY, "labelled": LABELLED, "deep": DEEP}


def joint(model):
    """All states of all layers, and their log-weights."""
    layers, parts = model.layers, [np.vstack(list(states_of(p, 99))) for p in model.layers]
    grids = np.meshgrid(*(np.arange(len(part)) for part in parts), indexing="ij")
    units = [part[grid.ravel()] for part, grid in zip(parts, grids, strict=True)]
    logs = sum(prior.log_prob(x).sum(1) for prior, x in zip(layers, units, strict=True))
    for k, w in enumerate(model.couplings):
        logs = logs + np.einsum("ri,ij,rj->r", units[k], w, units[k + 1])
    return units, logs


def holes(model):
    units, _ = joint(model)
    X = units[0][RNG.integers(len(units[0]), size=20)].astype(float)
    if model.sizes[0] == 7:
        X[:8, :3] = X[4:12, 6:] = np.nan
    else:
        X[RNG.random(X.shape) < 0.4] = np.nan
    X[0] = np.nan
    return X


@pytest.mark.parametrize("name", MODELS)
def test_sums_over_all_that_was_not_seen(name):
    model = MODELS[name]
    X, (units, logs) = holes(model), joint(model)
    found, total = means_given_seen(model, X), np.logaddexp.reduce(logs)
    values, errors = log_likelihood_of_seen(model, X, total)
    assert not errors.any()
    assert found.converged.all()
    for r, x in enumerate(X):
        kept = ((units[0] == x) | np.isnan(x)).all(1)
        of_row = np.logaddexp.reduce(logs[kept])
        assert values[r] == pytest.approx(of_row - total, abs=1e-10)
        for mean, states in zip(found.mean, units, strict=True):
            np.testing.assert_allclose(mean[r], np.exp(logs[kept] - of_row) @ states[kept])


@pytest.mark.parametrize("name", MODELS)
def test_mean_field_is_near_for_weak_couplings(name):
    model = MODELS[name]
    model = model.rebuilt(tuple(w / 10 for w in model.couplings), model.layers)
    X, total = holes(model), mf.exact(model).log_partition
    exact, near = means_given_seen(model, X), means_given_seen(model, X, max_work=0)
    np.testing.assert_allclose(near.log_partition, exact.log_partition, atol=1e-3)
    for a, b in zip(near.mean, exact.mean, strict=True):
        np.testing.assert_allclose(a, b, atol=3e-3)
    assert abs(log_likelihood_of_seen(model, X, total, max_work=0)[0][0]) < 1e-3  # nothing was seen


@pytest.mark.parametrize("name", MODELS)
def test_annealed_rows_of_strong_couplings(name):
    model = MODELS[name]
    model = model.rebuilt(tuple(2 * w for w in model.couplings), model.layers)
    X, total = holes(model), mf.exact(model).log_partition
    exact, _ = log_likelihood_of_seen(model, X, total)
    found, errors = log_likelihood_of_seen(model, X, total, max_work=0, anneal=True)
    assert errors.max() < 0.2 and (abs(found - exact) < 4 * errors + 1e-12).all()
    # A row does not depend on the others.
    alone, _ = log_likelihood_of_seen(model, X[5:6], total, max_work=0, anneal=True)
    np.testing.assert_allclose(alone[0], found[5], rtol=1e-12)


def test_mean_field_takes_means_of_binary_units_and_probabilities_of_states():
    for name, soft in (("binary", [0.3, 0.6, np.nan, 1, 0]), ("labelled", [0.2, 0.5, 0.3] * 2)):
        model = MODELS[name]
        model = model.rebuilt((model.weights / 10,), model.layers)
        X = np.array([soft if name == "binary" else [*soft, np.nan]], float)
        exact, near = (log_likelihood_of_seen(model, X, 0.0, max_work=n)[0] for n in (None, 0))
        np.testing.assert_allclose(near, exact, atol=1e-3)


def test_gaussian_machines_have_gaussian_margins():
    w, p, q = 0.3 * RNG.normal(size=(4, 2)), RNG.random(4) + 1, RNG.random(2) + 1
    f, g = RNG.normal(size=4), RNG.normal(size=2)
    model = mf.RBM(w, mf.Gaussian(f, p), mf.Gaussian(g, q))
    mean, covariance, _ = solved_gaussian(model)
    X = RNG.normal(size=(5, 4))
    X[np.arange(5), np.arange(5) % 4] = np.nan
    total = model.integrate_gaussians().log_partition
    values, errors = log_likelihood_of_seen(model, X, total, anneal=True)
    assert not errors.any()
    for x, value in zip(X, values, strict=True):
        seen = np.flatnonzero(~np.isnan(x))
        right = multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(x[seen])
        assert value == pytest.approx(right, abs=1e-8)
