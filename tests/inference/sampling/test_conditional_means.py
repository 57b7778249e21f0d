"""Means of missing units of fully visible machines, by enumeration, annealing and TAP."""

from functools import partial

import numpy as np
import pytest
from potts_data import random_parameters

import fastmf as mf
from fastmf.inference.sampling import discrete
from fastmf.inference.sampling.discrete import annealed_probabilities, conditional_means
from fastmf.models._gauge import in_gauge


def symmetric(J):
    return np.triu(J, 1) + np.triu(J, 1).T


def spins(J, field):
    return mf.BoltzmannMachine(symmetric(J), mf.Ising(field))


def exact_means(model, x):
    """Means given the units of one row that are not missing, by `mf.exact` of what is left."""
    free = np.isnan(x)
    prior = type(model.prior)(model.prior.field[free] + x[~free] @ model.couplings[~free][:, free])
    found = mf.exact(mf.BoltzmannMachine(model.couplings[np.ix_(free, free)], prior))
    means = np.array(x)
    means[free] = found.mean
    return means


@pytest.mark.parametrize("units", [mf.Ising, mf.Bernoulli])
def test_binary_units_are_summed_exactly(units):
    rng = np.random.default_rng(3)
    model = mf.BoltzmannMachine(symmetric(rng.normal(size=(9, 9))), units(rng.normal(size=9)))
    low = -1.0 if units is mf.Ising else 0.0
    X = np.where(rng.random((40, 9)) < 0.5, 1.0, low)
    X[rng.random(X.shape) < 0.4] = np.nan
    X[0], X[1] = np.nan, 1.0
    found = conditional_means(model, X)
    assert (found.error == 0).all() and found.converged.all()
    for x, mean in zip(X, found.mean, strict=True):
        expected = exact_means(model, x) if np.isnan(x).any() else x
        np.testing.assert_allclose(mean, expected, atol=1e-12)


def potts(sizes, scale=1.0, seed=0):
    J, h = random_parameters(sizes, seed=seed)
    return mf.BoltzmannMachine(scale * J, mf.Categorical(np.split(h, np.cumsum(sizes)[:-1])))


def conditional_probabilities(model, labels):
    """Probabilities of all states given the labels of a row that are not negative."""
    states = np.stack(np.unravel_index(np.arange(np.prod(model.prior.sizes)), model.prior.sizes), 1)
    states = states[((states == labels) | (labels < 0)).all(1)]
    x = model.prior.one_hot(states)
    weights = -model.energy(x)
    weights = np.exp(weights - weights.max())
    return weights @ x / weights.sum()


SIZES = np.array([3, 2, 4, 3, 2])


@pytest.mark.parametrize("method, tol", [("exact", 1e-12), ("annealing", 0.01), ("tap", 0.2)])
def test_categorical_units(method, tol):
    model, rng = potts(SIZES), np.random.default_rng(1)
    labels = rng.integers(SIZES, size=(30, 5))
    labels[rng.random(labels.shape) < 0.5] = -1
    labels[:2], labels[2] = -1, 1
    found = conditional_means(model, model.prior.one_hot(labels), method)
    for row, mean in zip(labels, found.mean, strict=True):
        np.testing.assert_allclose(mean, conditional_probabilities(model, row), atol=tol)
    assert not np.isnan(found.mean).any()


def random_machines():
    rng, n = np.random.default_rng(0), 14
    noise, chain = rng.normal(size=(n, n)), np.eye(n, k=1)
    up = np.r_[0.5, np.zeros(n - 1)]
    yield "chain of p = 0.99", spins(np.arctanh(0.98) * chain + 0.05 * noise, up)
    yield "alternating chain", spins(-2 * chain + 0.1 * noise, up)
    yield "two phases", spins(np.full((n, n), 0.3), np.full(n, 0.01))
    yield "two frozen phases", spins(np.full((n, n), 2.0), np.full(n, 0.01))
    yield "frozen glass", spins(8 * noise, 0.1 * noise[0])
    yield "fields against couplings", spins(np.full((n, n), 1.0), -12.8 + 0.3 * noise[0])
    yield "loop", spins(2 * chain - 2 * np.eye(n, k=n - 1), up)


@pytest.mark.parametrize("model", [pytest.param(m, id=name) for name, m in random_machines()])
def test_annealing_is_as_exact_as_it_says(model):
    found = conditional_means(model, np.full((1, model.n_units), np.nan), "annealing")
    expected = mf.exact(model).mean
    error = abs(found.mean[0] - expected).max() / 2  # of a probability
    assert error < 4 * found.error[0] + 1e-3
    assert error < 0.01 or not found.converged[0]
    assert found.error[0] < 0.015


def test_annealing_of_a_tree_is_exact():
    n, t = 60, np.array([0.98] * 30 + [-0.9] * 29)
    x = np.full((1, n), np.nan)
    x[0, 0] = 1
    found = conditional_means(spins(np.diag(np.arctanh(t), 1), np.zeros(n)), x)
    np.testing.assert_allclose(found.mean[0], np.append(1, np.cumprod(t)), atol=1e-12)
    assert found.error[0] == 0
    # Independent of how the states are parameterised: a gauge turns couplings into fields.
    sizes = np.array([3, 2, 4, 3])
    model = potts(sizes, 2.0)
    group = np.repeat(np.arange(4), sizes)
    J = model.couplings * (abs(group[:, None] - group) == 1)
    tree = mf.BoltzmannMachine(J, model.prior)
    rows = model.prior.one_hot(np.array([[-1, -1, -1, -1], [1, -1, -1, -1]]))
    expected = [conditional_probabilities(tree, np.array(r)) for r in ([-1] * 4, [1, -1, -1, -1])]
    np.testing.assert_allclose(
        conditional_means(tree, rows, "annealing").mean, expected, atol=1e-12
    )
    J, h = in_gauge(J, model.prior.field, sizes, "zero-sum", 0)
    other = mf.BoltzmannMachine(J, model.prior._replace(field=h))
    np.testing.assert_allclose(
        conditional_means(other, rows, "annealing").mean, expected, atol=1e-12
    )


def test_rows_beyond_the_limit_are_annealed(monkeypatch):
    rng, n = np.random.default_rng(5), 12
    model = spins(np.arctanh(0.8) * np.eye(n, k=1) + 0.05 * rng.normal(size=(n, n)), np.zeros(n))
    X = np.where(rng.random((20, n)) < 0.5, 1.0, -1.0)
    X[rng.random(X.shape) < 0.6] = np.nan
    exact = conditional_means(model, X, "exact")
    monkeypatch.setattr(discrete, "MAX_ENUMERATED_STATES", 1 << 6)
    found, few = conditional_means(model, X), np.isnan(X).sum(1) <= 6
    assert 0 < few.sum() < 20
    np.testing.assert_array_equal(found.mean[few], exact.mean[few])
    np.testing.assert_allclose(found.mean, exact.mean, atol=0.02)
    assert (found.error[few] == 0).all() and (found.error[~few] > 0).all()
    with pytest.raises(ValueError, match=r"at most 2\^6 states"):
        conditional_means(model, X, "exact")
    # Rows do not depend on their company, nor equal rows on their place.
    alone = conditional_means(model, X[~few][[3, 3, 1]])
    np.testing.assert_array_equal(alone.mean, found.mean[~few][[3, 3, 1]])
    threads = [conditional_means(model, X, "annealing", n_threads=t).mean for t in (1, 2)]
    np.testing.assert_array_equal(*threads)
    assert (conditional_means(model, X, seed=1).mean != found.mean).any()


def test_uncertain_means_are_flagged(monkeypatch):
    model = dict(random_machines())["two phases"]
    few = partial(annealed_probabilities, n_particles=128, n_rounds=1)
    monkeypatch.setattr(discrete, "annealed_probabilities", few)
    found = conditional_means(model, np.full((1, 14), np.nan), "annealing")
    assert found.error[0] > 0.01 and not found.converged[0]


def test_tap_takes_one_of_several_phases():
    model = spins(np.full((14, 14), 0.3), np.full(14, 0.05))
    x = np.full((1, 14), np.nan)
    found, weak = conditional_means(model, x, "tap"), spins(np.full((7, 7), 0.05), np.ones(7))
    assert np.isnan(found.error).all() and found.mean.min() > mf.exact(model).mean.max() + 0.1
    near = conditional_means(weak, x[:, :7], "tap")
    np.testing.assert_allclose(near.mean[0], mf.exact(weak).mean, atol=2e-3)
    assert near.converged.all()


def test_single_precision_machines_are_solved_in_double_precision():
    J, h = symmetric(np.random.default_rng(0).normal(size=(6, 6))), np.zeros(6)
    model = mf.BoltzmannMachine(J.astype(np.float32), mf.Ising(h.astype(np.float32)))
    x = np.array([[1, np.nan, np.nan, -1, np.nan, 1]], np.float32)
    for method in ("exact", "annealing"):
        found = conditional_means(model, x, method)
        assert found.mean.dtype == np.float64
        np.testing.assert_allclose(found.mean[0], exact_means(spins(J, h), x[0]), atol=0.015)


@pytest.mark.parametrize("method", ["exact", "annealing", "tap"])
def test_states_that_do_not_occur(method):
    model = potts([3, 3, 4], 0.3)
    field = model.prior.field.copy()
    field[1] = -np.inf
    model = mf.BoltzmannMachine(model.couplings, model.prior._replace(field=field))
    known = np.append(np.full(6, np.nan), [0, 1, 0, 0])
    mean = conditional_means(model, np.stack([np.full(10, np.nan), known]), method).mean
    assert (mean[:, 1] < 1e-300).all()
    np.testing.assert_allclose(mean[0], mf.exact(model).mean, atol=0.02)
    np.testing.assert_allclose(
        mean[1], conditional_probabilities(model, np.array([-1, -1, 1])), atol=0.02
    )
