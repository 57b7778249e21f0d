"""Correlated features in spike-and-slab estimators."""

import warnings

import numpy as np
import pytest
from kernel_cases.regression import chain_of_features, equal_columns

import fastmf as mf
from fastmf.learning.evidence import Hyperparameters, Regression, evidence_gradient


def test_equal_columns_share_their_probability():
    """By enumeration 0.504 each, and 29.32 (single sites: 0.201 and 31.30)."""
    X, y = equal_columns()
    given = {"noise_variance": 0.01, "slab_variance": 10.0, "inclusion_probability": 0.02}
    model = mf.SpikeSlabRegressor(**given).fit(X, y)
    np.testing.assert_allclose(model.inclusion_probability_[:2], 0.504, atol=5e-4)
    assert abs(model.log_evidence_ - 29.32) < 0.01
    assert model.blocks_.tolist() == [0, 0, 0, 0]  # few features are one block
    labelled = mf.SpikeSlabRegressor(**given, blocks=["a", "a", "b", "c"]).fit(X, y)
    np.testing.assert_allclose(labelled.coef_, model.coef_)
    single = mf.SpikeSlabRegressor(**given, blocks=None).fit(X, y)
    assert single.blocks_.tolist() == [0, 1, 2, 3]


def test_copies_change_no_prediction(tmp_path):
    X, y = equal_columns()
    given = {"noise_variance": 0.01, "slab_variance": 10.0, "inclusion_probability": 0.02}
    twice = mf.SpikeSlabRegressor(**given).fit(X, y)
    single = mf.SpikeSlabRegressor(**given).fit(X[:, 1:], y)
    mean, deviation = twice.predict(X[:7], return_std=True)
    expected, expected_deviation = single.predict(X[:7, 1:], return_std=True)
    np.testing.assert_allclose(mean, expected, atol=2e-3)
    np.testing.assert_allclose(deviation, expected_deviation, rtol=0.02)
    twice.save(tmp_path / "model.npz")
    loaded = mf.SpikeSlabRegressor.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(X[:7], return_std=True)[1], deviation)


def test_classes_of_equal_columns():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 10))
    X[:, 1] = -X[:, 0]
    y = X[:, 0] - X[:, 5] + 0.5 * rng.normal(size=60) > 0
    given = {"slab_variance": 1.0, "inclusion_probability": 0.05}
    twice = mf.SpikeSlabClassifier(**given).fit(X, y)
    once = mf.SpikeSlabClassifier(**given).fit(np.delete(X, 1, axis=1), y)
    np.testing.assert_allclose(twice.inclusion_probability_[:2], 0.52, atol=0.02)
    assert once.inclusion_probability_[0] > 0.95
    probability = once.predict_proba(np.delete(X, 1, axis=1))
    np.testing.assert_allclose(twice.predict_proba(X), probability, atol=0.02)


def test_the_gradient_of_the_evidence_is_that_of_differences():
    X, y = equal_columns()
    task = Regression(X - X.mean(0), y - y.mean(), np.array([0, 0, 1, 1]))
    center = np.array([np.log(0.05), np.log(2.0), -2.0, -1.0])

    def fixed_point(x):
        model = task.model(Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:]))
        return model, mf.expectation_propagation(model, blocks=[0, 0, 1, 2], tol=1e-10)

    model, result = fixed_point(center)
    by_noise, by_slab, by_odds = evidence_gradient(model, result, task.groups, 2)
    h = 1e-4
    for k, derivative in enumerate([by_noise, by_slab, *by_odds]):
        up, down = (
            fixed_point(center + sign * h * np.eye(4)[k])[1].log_evidence for sign in (1, -1)
        )
        np.testing.assert_allclose((up - down) / (2 * h), derivative, rtol=1e-4, atol=1e-5)


def test_bad_blocks_are_named():
    X, y = equal_columns()
    with pytest.raises(ValueError, match="blocks must have a label for each feature"):
        mf.SpikeSlabRegressor(blocks=[0, 1]).fit(X, y)


def autoregressive(n, d, r, seed):
    """Columns of which each correlates with the one before, three effects and as much noise."""
    rng = np.random.default_rng(seed)
    X = chain_of_features(rng, n, d, r)
    f = X[:, rng.choice(d, 3, replace=False)] @ rng.normal(size=3)
    return X, f + rng.normal(size=n) * f.std()


def by_enumeration(X, y, noise_variance, slab_variance, inclusion_probability):
    """Inclusion probabilities of standardised data, from all patterns at once."""
    p = X.shape[1]
    included = (np.arange(2**p)[:, None] >> np.arange(p)) % 2
    A, h = X.T @ X / noise_variance, included * (X.T @ y / noise_variance)
    Q = included[:, :, None] * A * included[:, None] + np.eye(p) / slab_variance
    log_weight = (h * np.linalg.solve(Q, h[:, :, None])[:, :, 0]).sum(1) / 2
    log_weight -= np.linalg.slogdet(Q)[1] / 2
    odds = np.log(inclusion_probability / (1 - inclusion_probability))
    weights = np.exp(log_weight + included.sum(1) * odds - log_weight.max())
    return weights @ included / weights.sum()


@pytest.mark.parametrize("seed", [0, 11])
def test_an_effect_that_two_blocks_may_have_is_that_of_enumeration(seed, monkeypatch):
    """Before blocks are joined, probabilities are wrong by 0.015 and more."""
    X, y = autoregressive(60, 12, 0.8, seed)
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    given = {"noise_variance": 0.5, "slab_variance": 0.5, "inclusion_probability": 0.1}
    expected = by_enumeration(X, y, **given)
    model = mf.SpikeSlabRegressor(**given).fit(X, y)
    np.testing.assert_allclose(model.inclusion_probability_, expected, atol=5e-3)
    module = "fastmf.inference.ep.expectation_propagation."
    monkeypatch.setattr(module + "joined_blocks", lambda *_: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # or they do not converge
        apart = mf.SpikeSlabRegressor(**given).fit(X, y)
    assert abs(apart.inclusion_probability_ - expected).max() > 0.015
    assert len(np.unique(apart.blocks_)) > len(np.unique(model.blocks_))
