"""Chains over inclusion patterns against enumeration."""

import numpy as np
import pytest
from kernel_cases import regression

import fastmf as mf
from fastmf.inference.ep.model_chains import InclusionPosterior, ModelChains
from tests.inference.sampling.test_spike_slab import problem

P, NOISE = 6, 0.5
LOG_ODDS, PRECISION = np.linspace(-1.5, -0.5, P), np.linspace(0.5, 2, P)
FIELD = np.linspace(-0.5, 0.5, P)


def data(kind):
    """Features, some of them equal, correlated or seen together only, and targets."""
    return problem(kind)[:2]


def enumerated(X, y, always=()):
    """Patterns and their log-weights, against that of none."""
    prior = mf.GaussBernoulli(FIELD, PRECISION, LOG_ODDS)
    patterns, weights, *_ = regression.enumerated(mf.SparseLinearModel(X, y, NOISE, prior))
    allowed = patterns[:, list(always)].all(1)
    return patterns[allowed], (weights - weights[0])[allowed]


def posterior_of(X, y):
    return InclusionPosterior.of(X, y, NOISE, LOG_ODDS, PRECISION, FIELD)


@pytest.mark.parametrize("kind", ["independent", "copies", "correlated"])
def test_weights_of_patterns_and_of_larger_ones(kind):
    X, y = data(kind)
    posterior = posterior_of(X, y)
    patterns = np.array([[0, 0, 0], [4, 0, 0], [2, 5, 0], [5, 4, 2]])
    sizes = np.array([0, 1, 2, 3])
    log_weights, larger = posterior.extended(patterns, sizes)
    of_pattern = {tuple(z): weight for z, weight in zip(*enumerated(X, y), strict=True)}
    for row, size, weight, more in zip(patterns, sizes, log_weights, larger, strict=True):
        z = np.zeros(P, int)
        z[row[:size]] = 1
        np.testing.assert_allclose(weight, of_pattern[tuple(z)], atol=1e-9)
        for j in range(P):
            if z[j]:
                assert more[j] == -np.inf
            else:
                with_j = tuple(np.where(np.arange(P) == j, 1, z))
                np.testing.assert_allclose(more[j], of_pattern[with_j], atol=1e-9)


def test_copies_are_not_added_where_the_slab_is_wide():
    X, y = data("copies")
    Q = X.T @ X / 1e-12 + np.eye(P)
    posterior = InclusionPosterior(Q, X.T @ y / 1e-12, np.zeros(P))
    _, larger = posterior.extended(np.array([[0, 2]]), np.array([2]))
    np.testing.assert_array_equal(np.isfinite(larger[0]), [False, False, False, False, True, True])


@pytest.mark.parametrize("kind", ["independent", "copies", "correlated", "masked"])
def test_inclusion_and_evidence_against_enumeration(kind):
    X, y = data(kind)
    patterns, weights = enumerated(X, y)
    exact = np.exp(weights - np.logaddexp.reduce(weights)) @ patterns
    starts = [np.arange(P // 2), np.empty(0, int)] * 40
    chains = ModelChains(posterior_of(X, y), starts, np.random.default_rng(0))
    chains.run(20)
    found = chains.run(180)
    assert found.shape == (80, P)
    for own in (found[::2], found[1::2]):
        error = own.std(0, ddof=1) / np.sqrt(40)
        assert (abs(own.mean(0) - exact) < 5 * error + 2e-3).all()
        assert error.max() < 0.03
    # All patterns of weight have been visited, and none counts twice.
    evidence = np.logaddexp.reduce(weights)
    assert evidence - 0.01 < chains.log_weight() <= evidence + 1e-9


def test_an_effect_moves_to_its_copy_without_being_left_out():
    x = data("copies")[0][:, :2]
    # Without an effect the weight is e^-1000 times that with it, and none has two of copies.
    posterior = InclusionPosterior(x.T @ x / 1e-12 + np.eye(2), x.T @ x[:, 0] / 1e-9, np.zeros(2))
    chains = ModelChains(posterior, [np.array([0])] * 400, np.random.default_rng(0))
    np.testing.assert_allclose(chains.run(1), 0.5)
    assert (chains.sizes == 1).all()
    assert abs(chains.patterns[:, 0].mean() - 0.5) < 0.1  # four standard errors


def test_chains_begin_anew_by_the_weights_of_what_was_found():
    X, y = data("independent")
    patterns, weights = enumerated(X, y)
    chains = ModelChains(posterior_of(X, y), [np.empty(0, int)] * 400, np.random.default_rng(0))
    chains.run(40)
    chains.begin_anew()
    included = np.zeros((400, P))
    for row, pattern, size in zip(included, chains.patterns, chains.sizes, strict=True):
        row[pattern[:size]] = 1
    exact = np.exp(weights - np.logaddexp.reduce(weights)) @ patterns
    assert abs(included.mean(0) - exact).max() < 0.1  # four standard errors


def test_features_that_are_always_in():
    X, y = data("correlated")
    always = np.zeros(P, bool)
    always[[1, 4]] = True
    rest, constant = posterior_of(X, y).given(always)
    log_weights, larger = rest.extended(np.array([[0, 2]]), np.array([2]))
    of_pattern = {tuple(z): weight for z, weight in zip(*enumerated(X, y, [1, 4]), strict=True)}
    # Of those left, 0, 2, 3, 5, the first and the third.
    expected = of_pattern[1, 1, 0, 1, 1, 0]
    np.testing.assert_allclose(log_weights[0] + constant, expected, atol=1e-9)
    np.testing.assert_allclose(larger[0, 3] + constant, of_pattern[1, 1, 0, 1, 1, 1], atol=1e-9)
    same, zero = posterior_of(X, y).given(np.zeros(P, bool))
    assert zero == 0
    np.testing.assert_array_equal(same.Q, posterior_of(X, y).Q)
