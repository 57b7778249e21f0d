"""The Gaussian side with a latent variable of each row, against that with a full matrix."""

import numpy as np
import pytest
from kernel_cases.gaussian_sides import agree, sites

import fastmf as mf
from fastmf.inference.gaussian import Dense, Latent, LowRank, gaussian_side

N_ROWS, N_FEATURES, NOISE = 60, 12, 0.7


def sides(dtype=np.float64):
    """The side of a model with latent variables, and the same with a full matrix."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_FEATURES)).astype(dtype)
    y, columns = rng.normal(size=N_ROWS), np.concatenate([X, -np.eye(N_ROWS, dtype=dtype)], axis=1)
    return Latent(X, y, NOISE), Dense.of_regression(columns, y, NOISE)


LOW = [(), ((0, -0.3), (1, 0.0)), ((N_FEATURES, 0.0), (N_FEATURES + 3, -0.5))]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("low", LOW)
def test_moments_are_those_with_a_full_matrix(low, dtype):
    latent, dense = sides(dtype)
    site = sites(N_FEATURES + N_ROWS, low)
    agree(latent.moments(site), dense.moments(site), 1e-11)
    agree(latent.dense().moments(site), dense.moments(site), 1e-14)
    agree(latent.low_rank().moments(site), dense.moments(site), 1e-9)


@pytest.mark.parametrize("low", LOW)
def test_covariances_solutions_and_variances(low):
    latent, dense = sides()
    site, some = sites(N_FEATURES + N_ROWS, low), np.array([0, 5, N_FEATURES, -1])
    one, other = latent.inverse(site[1]), dense.inverse(site[1])
    np.testing.assert_allclose(one.covariance(some), other.covariance(some), atol=1e-12)
    rows = np.random.default_rng(1).normal(size=(3, N_FEATURES + N_ROWS))
    np.testing.assert_allclose(one.solve(rows[0]), other.solve(rows[0]), atol=1e-11)
    np.testing.assert_allclose(one.variance_along(rows), other.variance_along(rows), rtol=1e-11)


@pytest.mark.parametrize("unit, precision", [(0, -1e3), (N_FEATURES, -2.0), (N_FEATURES, -1.42)])
def test_no_gaussian_is_said(unit, precision):
    latent, dense = sides()
    site = sites(N_FEATURES + N_ROWS, ((unit, precision),))
    assert dense.moments(site) is None
    assert latent.moments(site) is None


@pytest.mark.parametrize(
    "n_rows, n_features, kind",
    [(60, 12, Latent), (60, 60, LowRank), (50, 70, LowRank), (9, 3, Dense)],
)
def test_the_kind_is_the_cheaper_one_and_the_moments_are_the_same(n_rows, n_features, kind):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(n_rows, n_features)), rng.normal(size=n_rows)
    prior = mf.Gaussian(np.zeros(n_features + n_rows), 1.0)
    side = gaussian_side(mf.SparseLinearModel(X, y, NOISE, prior))
    assert type(side) is kind
    columns = np.concatenate([X, -np.eye(n_rows)], axis=1)
    site = sites(n_features + n_rows, ())
    whole = Dense.of_regression(columns, y, NOISE)
    agree(side.moments(site), whole.moments(site), 1e-9)
    rows = rng.normal(size=(3, n_features))
    padded = np.concatenate([rows, np.zeros((3, n_rows))], axis=1)
    expected = whole.inverse(site[1]).variance_along(padded)
    np.testing.assert_allclose(side.inverse(site[1]).variance_along(rows), expected, rtol=1e-9)


@pytest.mark.parametrize("schedule", ["parallel", "sequential", "convergent"])
def test_all_schedules_find_the_fixed_point_of_the_same_model_without_structure(schedule):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 30))
    half_line = mf.TruncatedGaussian(np.zeros(40), 1e-10, 0.0, np.inf)
    spikes = mf.GaussBernoulli(np.zeros(30), np.ones(30), np.full(30, -1.0))
    order = np.arange(70)[::-1]
    model = mf.SparseLinearModel(X, np.zeros(40), 1.0, mf.Concatenated(spikes, half_line))
    columns = np.concatenate([X, -np.eye(40)], axis=1)[:, order]
    turned = mf.SparseLinearModel(
        np.ascontiguousarray(columns), np.zeros(40), 1.0, mf.Concatenated(half_line, spikes)
    )
    assert isinstance(gaussian_side(model), Latent)
    assert isinstance(gaussian_side(turned), LowRank)
    options = {"schedule": schedule, "tol": 1e-9, "max_iter": 2000}
    one, other = (mf.expectation_propagation(m, **options) for m in (model, turned))
    assert one.converged and other.converged
    np.testing.assert_allclose(one.mean, other.mean[order], atol=1e-6)
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, atol=1e-6)
