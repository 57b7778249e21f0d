"""The Gaussian side by the Woodbury identity, against that with a full matrix."""

import numpy as np
import pytest
from kernel_cases.gaussian_sides import agree, linear, sites

from fastmf.inference.gaussian import low_rank as module


@pytest.mark.parametrize(
    "low", [(), ((3, -0.05),), ((0, -0.04), (50, 0.0), (89, 1e-9), (30, -0.02))]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_low_rank_is_dense(monkeypatch, low, dtype):
    monkeypatch.setattr(
        module, "ENTRIES_AT_A_TIME", 20 * 64
    )  # several chunks, the last one shorter
    low_rank, dense = linear(20, 90, dtype)
    agree(low_rank.moments(sites(90, low)), dense.moments(sites(90, low)), 1e-8)


@pytest.mark.parametrize("low", [(), ((0, -0.04), (50, 0.0))])
def test_variance_along_rows(low):
    low_rank, dense = linear(20, 90)
    site, rows = sites(90, low), np.random.default_rng(3).normal(size=(4, 90))
    expected = np.einsum("ij,jk,ik->i", rows, dense.covariance(site), rows)
    np.testing.assert_allclose(dense.inverse(site[1]).variance_along(rows), expected, rtol=1e-9)
    np.testing.assert_allclose(low_rank.inverse(site[1]).variance_along(rows), expected, rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_with_X_are_in_double_precision(monkeypatch, dtype):
    monkeypatch.setattr(module, "ENTRIES_AT_A_TIME", 20 * 64)
    low_rank, _ = linear(20, 90, dtype)
    X, rng = low_rank.X.astype(float), np.random.default_rng(5)
    w, residual = rng.normal(size=90), rng.normal(size=20)
    np.testing.assert_allclose(low_rank.predict(w), X @ w, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(low_rank.project(residual), X.T @ residual, rtol=1e-12, atol=1e-12)
