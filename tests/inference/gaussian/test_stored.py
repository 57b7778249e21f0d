"""The Gaussian side of converted columns is that of the array of them."""

import numpy as np
import pytest

import fastmf as mf
from fastmf._common.stored_columns import StoredColumns
from fastmf.inference.gaussian import gaussian_side, order_of
from fastmf.inference.gaussian.blocks import Blocks, block_side
from fastmf.inference.gaussian.low_rank import LowRank


def sides(monkeypatch):
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", 400)
    rng = np.random.default_rng(0)
    stored = rng.integers(0, 3, (12, 80)).astype(np.int8)
    mean = stored.mean(0)
    columns = StoredColumns(stored, np.ones(12), np.full(80, 2.0), np.ones((12, 1)), 2 * mean[None])
    X, y = 2 * (stored - mean), rng.normal(size=12)
    prior = mf.GaussBernoulli(np.zeros(80), np.ones(80), np.zeros(80))
    models = [mf.SparseLinearModel(rows, y, 0.7, prior) for rows in (columns, X)]
    site = rng.normal(size=(2, 80))
    site[1] = abs(site[1]) + 0.1
    return models, site, rng


@pytest.mark.parametrize("low", [False, True])
def test_moments_and_covariances(monkeypatch, low):
    models, site, rng = sides(monkeypatch)
    if low:
        site[1, [3, 40]] = -1e-3, 1e-12
    ours, theirs = gaussian_side(models[0]), LowRank(models[1].X, models[1].y, 0.7)
    assert order_of(models[0]) == 12
    for mine, other in zip(ours.moments(site), theirs.moments(site), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-8)
    one, two = ours.inverse(site[1]), theirs.inverse(site[1])
    rows, units = rng.normal(size=(5, 80)), np.array([2, 3, 41])
    np.testing.assert_allclose(one.variance_along(rows), two.variance_along(rows), rtol=1e-8)
    np.testing.assert_allclose(one.covariance(units), two.covariance(units), atol=1e-10)
    np.testing.assert_allclose(one.solve(rows[0]), two.solve(rows[0]), rtol=1e-8)
    w = rng.normal(size=(3, 80))
    np.testing.assert_allclose(models[0].prediction(w), models[1].prediction(w), atol=1e-10)


def test_blocks(monkeypatch):
    models, site, rng = sides(monkeypatch)
    monkeypatch.setattr("fastmf.inference.gaussian.blocks.MAX_DENSE_RATIO", 0)
    blocks = Blocks([np.array([1, 50, 3]), np.array([7, 8])], 80)
    elements = np.zeros(blocks.squares[-1])
    for M in blocks.matrices(elements):
        A = rng.normal(size=M.shape)
        M[:] = A @ np.swapaxes(A, 1, 2) + 0.5 * np.eye(M.shape[1])
    vector = np.concatenate([site[0], site[1, blocks.singles], elements])
    found = [block_side(model, blocks).moments(vector) for model in models]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-7, atol=1e-9)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-10)
    units = np.array([1, 3, 7, 8, 20, 50])
    one, two = (block_side(model, blocks).inverse(vector) for model in models)
    np.testing.assert_allclose(one.covariance(units), two.covariance(units), atol=1e-10)
    # The same without rotations, with a matrix of all units.
    monkeypatch.setattr("fastmf.inference.gaussian.blocks.MAX_DENSE_RATIO", 100)
    dense = block_side(models[1], blocks).inverse(vector)
    np.testing.assert_allclose(two.covariance(units), dense.covariance(units), atol=1e-9)


def test_rows_with_latent_variables_are_refused(monkeypatch):
    models, _, _ = sides(monkeypatch)
    prior = mf.GaussBernoulli(np.zeros(92), np.ones(92), np.zeros(92))
    model = mf.SparseLinearModel(models[0].X, np.zeros(12), 1.0, prior)
    with pytest.raises(TypeError, match="cannot have latent variables"):
        gaussian_side(model)
