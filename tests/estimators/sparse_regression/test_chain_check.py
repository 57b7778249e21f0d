"""`reliable_` of fitted spike-and-slab models, against enumeration."""

import numpy as np
import pytest
from kernel_cases.regression import equal_columns, exact

import fastmf as mf

GIVEN = {"noise_variance": 0.01, "slab_variance": 10.0, "inclusion_probability": 0.02}


def test_blocks_are_reliable_and_single_sites_of_copies_are_not():
    X, y = equal_columns()
    right = mf.SpikeSlabRegressor(**GIVEN).fit(X, y)
    assert right.reliable_ is True
    assert right.message_ == ""
    wrong = mf.SpikeSlabRegressor(blocks=None, **GIVEN).fit(X, y)
    assert wrong.reliable_ is False
    assert "of feature 0 is" in wrong.message_ or "of feature 1 is" in wrong.message_
    # Another fit of the same estimator is checked anew.
    wrong.set_params(blocks="auto").fit(X, y)
    assert wrong.reliable_ is True


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_units_of_features_and_of_y(scale):
    X, y = equal_columns()
    given = GIVEN | {"noise_variance": 0.01 * scale**2, "slab_variance": 10.0 * scale**2}
    wrong = mf.SpikeSlabRegressor(blocks=None, **given).fit(X / scale, y * scale)
    assert wrong.reliable_ is False
    assert mf.SpikeSlabRegressor(**given).fit(X / scale, y * scale).reliable_ is True


@pytest.mark.parametrize("average", [False, True])
def test_learned_parameters(average):
    X, y = equal_columns()
    model = mf.SpikeSlabRegressor(
        average_parameters=average, inclusion_probability=1 / X.shape[1]
    ).fit(X, y)
    assert model.reliable_ is True
    model.inclusion_probability_ = model.inclusion_probability_ - [0, 0.3, 0, 0]
    assert model.reliable_ is False
    assert "feature 1" in model.message_


def test_unpenalised_columns_are_not_compared():
    X, y = equal_columns()
    model = mf.SpikeSlabRegressor(unpenalised=[2, 3], **GIVEN).fit(X, y)
    assert model.reliable_ is True
    model.inclusion_probability_ = np.array([0.2, 0.5, 1, 1])
    assert "feature 0" in model.message_


def test_moments_of_independent_parts():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 6))
    X, _ = np.linalg.qr(X)
    X = (
        9 * X @ np.array([[1, 1, 0, 0, 0, 0], [0, 0.1, 0, 0, 0, 0], *np.eye(6)[2:]])
    )  # the first two are nearly equal
    y = X[:, 1] + 0.5 * rng.normal(size=80)
    gram = [X[:, :2].T @ X[:, :2], X[:, 2:].T @ X[:, 2:]]
    given = {"noise_variance": 0.25, "slab_variance": 1.0, "inclusion_probability": 0.1}
    model = mf.SpikeSlabRegressor(fit_intercept=False, **given)
    model.fit_moments(gram, X.T @ y, y @ y, 80)
    prior = mf.GaussBernoulli(np.zeros(6), 1.0, np.log(1 / 9))
    _, _, _, included = exact(mf.SparseLinearModel(X, y, 0.25, prior))
    np.testing.assert_allclose(model.inclusion_probability_, included, atol=0.03)
    assert model.reliable_ is True
    model.inclusion_probability_ = np.where(np.arange(6) == 4, 0.5, included)
    assert "feature 4" in model.message_


def test_what_cannot_be_checked():
    X, y = equal_columns()
    model = mf.SpikeSlabClassifier(inclusion_probability=1 / X.shape[1]).fit(X, y > 0)
    assert model.reliable_ is None
    assert model.message_ == ""
    rng = np.random.default_rng(0)
    dense = mf.SpikeSlabRegressor(
        noise_variance=1.0, slab_variance=1e-4, inclusion_probability=0.9
    ).fit(rng.normal(size=(40, 80)), rng.normal(size=40))
    assert dense.reliable_ is None


def test_features_in_bytes_and_loaded_models(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.binomial(2, 0.3, (60, 100)).astype(np.int8)
    X[:, 9] = X[:, 5]
    y = X[:, 5] - X[:, 70] + 0.7 * rng.normal(size=60)
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", 1600)
    given = {"noise_variance": 0.5, "slab_variance": 1.0, "inclusion_probability": 0.01}
    for blocks in ("auto", None):
        model = mf.SpikeSlabRegressor(blocks=blocks, **given).fit(X, y)
        model.save(tmp_path / "model.npz")
        loaded = mf.SpikeSlabRegressor.load(tmp_path / "model.npz")
        assert loaded.reliable_ is model.reliable_
        assert loaded.message_ == model.message_
        if blocks:
            assert model.reliable_ is True
