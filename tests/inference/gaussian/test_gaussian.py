"""All kinds of Gaussian sides are the same Gaussian."""

import numpy as np
import pytest

from fastmf.inference.gaussian import Dense, bipartite
from fastmf.inference.gaussian import low_rank as module_of_low_rank
from fastmf.inference.gaussian.bipartite import Bipartite
from fastmf.inference.gaussian.low_rank import LowRank


def linear(n, d, dtype=np.float64, noise_variance=0.3):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=n)
    X[:, 7] = 0  # a constant column, centred
    X.flags.writeable = False  # like that of a model
    wide = X.astype(float)
    constant = -(y @ y / noise_variance + n * np.log(2 * np.pi * noise_variance)) / 2
    dense = Dense(wide.T @ wide / noise_variance, wide.T @ y / noise_variance, constant)
    return LowRank(X, y, noise_variance), dense


def sites(d, low=()):
    rng = np.random.default_rng(1)
    site = np.stack([rng.normal(size=d), rng.gamma(1.0, size=d) + 0.1])
    for unit, precision in low:
        site[1, unit] = precision
    return site


def agree(one, other, close=1e-9):
    np.testing.assert_allclose(one.marginal, other.marginal, rtol=close, atol=close)
    np.testing.assert_allclose(one.log_partition, other.log_partition, rtol=close)


@pytest.mark.parametrize(
    "low", [(), ((3, -0.05),), ((0, -0.04), (50, 0.0), (89, 1e-9), (30, -0.02))]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_low_rank_is_dense(monkeypatch, low, dtype):
    monkeypatch.setattr(
        module_of_low_rank, "CHUNK", 20 * 64
    )  # several chunks, the last one shorter
    low_rank, dense = linear(20, 90, dtype)
    agree(low_rank.moments(sites(90, low)), dense.moments(sites(90, low)), 1e-8)


def test_moments_are_derivatives_and_the_integral_is_one():
    """By numbers alone: no factorisation, no identity."""
    _, dense = linear(20, 9)
    site = sites(9)
    A = dense.precision + np.diag(site[1])
    mean = np.linalg.solve(A, dense.field + site[0])
    moments = dense.moments(site)
    np.testing.assert_allclose(moments.marginal, [mean, np.linalg.inv(A).diagonal()], rtol=1e-10)
    peak = dense.constant + (dense.field + site[0]) @ mean - mean @ A @ mean / 2
    expected = peak - np.linalg.slogdet(A / (2 * np.pi))[1] / 2
    np.testing.assert_allclose(moments.log_partition, expected, rtol=1e-10)


@pytest.mark.parametrize("shape", [(8, 5), (5, 8)])
def test_bipartite_is_dense(shape):
    weights = np.random.default_rng(2).normal(size=shape) / 3
    n_visible, n = shape[0], sum(shape)
    couplings = np.zeros((n, n))
    couplings[:n_visible, n_visible:] = weights
    dense = Dense(-couplings - couplings.T, np.zeros(n), 0.0)
    site = sites(n)
    site[1] += 2
    agree(Bipartite(weights).moments(site), dense.moments(site), 1e-11)


def test_no_gaussian_is_said():
    low_rank, dense = linear(20, 90)
    bipartite = Bipartite(np.full((4, 3), 2.0))
    for side, unit in ((low_rank, 3), (dense, 3), (low_rank, 7), (dense, 7)):
        assert side.moments(sites(90, ((unit, -1e4),))) is None
    assert bipartite.moments(np.ones((2, 7))) is None
    assert bipartite.moments(-np.ones((2, 7))) is None


@pytest.mark.parametrize("shape", [(30, 23), (23, 30)])
def test_rows_are_computed_together_as_they_are_alone(monkeypatch, shape):
    rng = np.random.default_rng(4)
    weights, n_rows = rng.normal(size=shape) / 5, 30
    monkeypatch.setattr(bipartite, "WORKSPACE", 13 * 23 * 23)  # several groups of rows
    sites = np.stack([rng.normal(size=(n_rows, 53)), 3 + rng.gamma(2.0, size=(n_rows, 53))], 1)
    sites[3, 1, 0], sites[5, 1, -1] = -1, 0.01  # no Gaussian
    side = Bipartite(weights)
    together = side.moments_of_rows(sites)
    assert [row for row in range(n_rows) if together[row] is None] == [3, 5]
    for site, moments in zip(sites, together, strict=True):
        if moments is not None:
            agree(moments, side.moments(site), 1e-11)
            assert type(moments.log_partition) is float
    proper = np.delete(sites, [3, 5], 0)
    whole = [side.covariance(site, slice(None))[: shape[0], shape[0] :] for site in proper]
    np.testing.assert_allclose(side.mean_covariance(proper), np.mean(whole, axis=0), atol=1e-13)


@pytest.mark.parametrize("low", [(), ((0, -0.04), (50, 0.0))])
def test_variance_along_rows(low):
    low_rank, dense = linear(20, 90)
    site, rows = sites(90, low), np.random.default_rng(3).normal(size=(4, 90))
    expected = np.einsum("ij,jk,ik->i", rows, dense.covariance(site), rows)
    np.testing.assert_allclose(dense.inverse(site[1]).variance_along(rows), expected, rtol=1e-9)
    np.testing.assert_allclose(low_rank.inverse(site[1]).variance_along(rows), expected, rtol=1e-7)


def test_blocks_of_the_covariance():
    units = np.array([0, 3, 7, 50, 88])
    low_rank, dense = linear(20, 90)
    for low in ((), ((0, -0.04), (50, 0.0))):
        site = sites(90, low)
        expected = dense.covariance(site)[units][:, units]
        np.testing.assert_allclose(low_rank.covariance(site, units), expected, rtol=1e-7, atol=1e-9)
    for shape in ((8, 5), (5, 8)):
        weights = np.random.default_rng(2).normal(size=shape) / 3
        couplings = np.zeros((13, 13))
        couplings[: shape[0], shape[0] :] = weights
        site = sites(13) + np.array([[0], [2]])
        expected = np.linalg.inv(np.diag(site[1]) - couplings - couplings.T)
        some = np.array([1, 4, 6, 12])
        np.testing.assert_allclose(
            Bipartite(weights).covariance(site, some), expected[some][:, some], atol=1e-12
        )


@pytest.mark.parametrize("low", [(), ((0, -0.04), (50, 0.0))])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_solving(low, dtype):
    low_rank, dense = linear(20, 90, dtype)
    site, right = sites(90, low), np.random.default_rng(3).normal(size=90)
    A = dense.precision + np.diag(site[1])
    for side in (low_rank, dense):
        solution = side.inverse(site[1]).solve(right)
        np.testing.assert_allclose(A @ solution, right, atol=1e-7)
    bipartite, site = Bipartite(np.random.default_rng(2).normal(size=(50, 40)) / 9), sites(90)
    site[1] += 2
    inverse = bipartite.inverse(site[1])
    expected = inverse.covariance(np.arange(90)) @ right
    np.testing.assert_allclose(inverse.solve(right), expected, atol=1e-12)
