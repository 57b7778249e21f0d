"""The energy of a sparse linear model, and the checks of its parameters."""

import numpy as np
import pytest

import fastmf as mf


def test_energy_is_minus_the_log_of_the_joint_density():
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=(4, 3))
    prior = mf.Gaussian([0.1, 0.2, 0.3], 2.0)
    model = mf.SparseLinearModel(X, y, 0.5, prior)
    for row, energy in zip(w, model.energy(w), strict=True):
        density = np.exp(-((y - X @ row) ** 2)) / np.sqrt(np.pi)  # variance 1 / 2
        weight = np.exp(prior.field * row - row**2)
        assert energy == pytest.approx(-np.log(density).sum() - np.log(weight).sum(), rel=1e-12)


def test_energy_with_a_latent_variable_of_each_row():
    rng = np.random.default_rng(1)
    X, y, w = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=(2, 4, 8))
    latent = mf.SparseLinearModel(X, y, 0.5, mf.Gaussian(np.zeros(8), 2.0))
    columns = np.concatenate([X, -np.eye(5)], axis=1)
    other = mf.SparseLinearModel(columns, y, 0.5, mf.Gaussian(np.zeros(8), 2.0))
    assert latent.has_latent and not other.has_latent
    assert (latent.n_features, latent.n_units) == (3, 8)
    np.testing.assert_allclose(latent.energy(w), other.energy(w), rtol=1e-13)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": np.zeros(4)}, ValueError, r"y must have shape \(5,\)"),
        ({"noise_variance": 0.0}, ValueError, "positive and finite"),
        ({"noise_variance": "1"}, TypeError, "must be a number"),
        ({"prior": mf.Ising([0.0])}, ValueError, "must have 3 units"),
        ({"prior": mf.Ising}, TypeError, "must be a unit prior"),
        ({"X": np.full((5, 3), np.nan)}, ValueError, "X must be finite"),
        ({"row_weights": 2.0}, ValueError, "without latent variables"),
        ({"row_weights": [1.0, 0, 1, 1, 1]}, ValueError, "leave rows of weight 0 out"),
        ({"row_weights": np.ones(4)}, ValueError, r"of shape \(5,\)"),
    ],
)
def test_what_is_refused(change, error, message):
    given = {"X": np.ones((5, 3)), "y": np.zeros(5), "noise_variance": 1.0}
    given |= {"prior": mf.Ising(np.zeros(3))} | change
    with pytest.raises(error, match=message):
        mf.SparseLinearModel(**given)


def test_weights_of_rows(tmp_path):
    weights = np.array([0.5, 1.0, 2.0, 1.0, 3.0])
    arguments = np.ones((5, 3)), np.zeros(5), 1.0, mf.Gaussian(np.zeros(8), 1.0)
    model = mf.SparseLinearModel(*arguments, row_weights=weights)
    np.testing.assert_array_equal(model.unit_weights(), [1, 1, 1, *weights])
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(mf.load(tmp_path / "model.npz").row_weights, weights)
    with pytest.raises(ValueError, match="repeat the rows"):
        model.energy(np.zeros(8))
    equal = mf.SparseLinearModel(*arguments, row_weights=np.ones(5))
    assert not equal.has_weights and equal.unit_weights() is None


@pytest.mark.parametrize("w", [np.ones(6), np.ones(5) + 1j, 1.0])
def test_coefficients_of_another_number_are_refused(w):
    X = np.random.default_rng(0).normal(size=(40, 5))
    prior = mf.GaussBernoulli(np.zeros(5), np.ones(5), np.zeros(5))
    model = mf.SparseLinearModel(X, X[:, 0], 0.1, prior)
    with pytest.raises(ValueError, match="w must hold real numbers, 5 in the last axis"):
        model.prediction(w)
    assert model.prediction([[1, 0, 0, 0, 0]]).shape == (1, 40)
