"""Rows of a weight against rows that are repeated."""

import numpy as np
import pytest

from fastmf.inference.gaussian import Dense
from fastmf.inference.gaussian.blocks import Blocks, block_side
from fastmf.inference.gaussian.latent import RepeatedRows, with_latent_columns
from fastmf.models import SparseLinearModel
from fastmf.priors import Gaussian

COPIES, NOISE = np.array([1, 3, 2, 5]), 0.7


def problem():
    """Rows, and sites of three coefficients and of the latent variable of each row."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4, 3)), rng.normal(size=4)
    return X, y, np.stack([rng.normal(size=7), rng.uniform(-0.3, 1.5, 7) + [1, 1, 1, 0, 0, 0, 0]])


def repeated(X, y, site):
    """Moments and log-partition with all rows and latent variables, of the first of each."""
    rows = np.repeat(np.arange(4), COPIES)
    side = Dense.of_regression(with_latent_columns(X[rows]), y[rows], NOISE)
    moments = side.moments(np.concatenate([site[:, :3], site[:, 3 + rows]], axis=1))
    first = np.append(np.arange(3), 3 + np.searchsorted(rows, np.arange(4)))
    return moments.marginal[:, first], moments.log_partition


def test_moments_are_those_of_repeated_rows():
    X, y, site = problem()
    root = np.sqrt(COPIES)
    side = Dense.of_regression(with_latent_columns(X * root[:, None]), y * root, NOISE)
    found = RepeatedRows(side, COPIES, NOISE).moments(site)
    # Densities of the rows that are not there are constants of the regression's.
    expected, log_partition = repeated(X, y, site)
    np.testing.assert_allclose(found.marginal, expected, rtol=1e-11)
    assert found.log_partition == pytest.approx(log_partition, rel=1e-11)


def test_moments_with_blocks():
    X, y, site = problem()
    root = np.sqrt(COPIES)
    model = SparseLinearModel(X * root[:, None], y * root, NOISE, Gaussian(np.zeros(7), 1.0))
    blocks = Blocks([np.array([0, 2])], 7)
    matrix = np.diag(site[1, [0, 2]])
    vector = np.concatenate([site[0], site[1, blocks.singles], matrix.ravel()])
    side = RepeatedRows(block_side(model, blocks), COPIES, NOISE, blocks)
    moments, log_partition = side.moments(vector)
    expected, log_of_rows = repeated(X, y, site)
    mean, var, _ = blocks.parts(moments)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-11)
    np.testing.assert_allclose(var, expected[1, blocks.singles], rtol=1e-11)
    assert log_partition == pytest.approx(log_of_rows, rel=1e-11)


def test_sites_without_a_gaussian_of_one_row():
    X, y, site = problem()
    site[1, 4] = -1 / NOISE
    side = Dense.of_regression(with_latent_columns(X), y, NOISE)
    assert RepeatedRows(side, np.full(4, 0.5), NOISE).moments(site) is None
