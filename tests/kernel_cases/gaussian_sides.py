"""Gaussian sides of linear models, and sites for them."""

import numpy as np

from fastmf.inference.gaussian import Dense, LowRank


def linear(n, d, dtype=np.float64, noise_variance=0.3):
    """The Gaussian side of a linear model, in both forms."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=n)
    X[:, 7] = 0  # a constant column, centred
    X.flags.writeable = False  # like that of a model
    wide = X.astype(float)
    constant = -(y @ y / noise_variance + n * np.log(2 * np.pi * noise_variance)) / 2
    dense = Dense(wide.T @ wide / noise_variance, wide.T @ y / noise_variance, constant)
    return LowRank(X, y, noise_variance), dense


def sites(d, low=()):
    """Sites of d units; `low` are (unit, precision) of some of them."""
    rng = np.random.default_rng(1)
    site = np.stack([rng.normal(size=d), rng.gamma(1.0, size=d) + 0.1])
    for unit, precision in low:
        site[1, unit] = precision
    return site


def agree(one, other, close=1e-9):
    """Assert that two moments of a Gaussian are the same."""
    np.testing.assert_allclose(one.marginal, other.marginal, rtol=close, atol=close)
    np.testing.assert_allclose(one.log_partition, other.log_partition, rtol=close)
