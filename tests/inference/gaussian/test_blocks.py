import numpy as np
import pytest
from numpy.linalg import LinAlgError

import fastmf as mf
from fastmf.inference.gaussian.blocks import (
    Blocks,
    block_side,
    inverse_with,
    labels_of,
    members_of,
)

MEMBERS = [np.array([1, 4]), np.array([2, 0, 6]), np.array([3, 7])]


def case(n, p, latent=False):
    """A model, blocks, a vector of sites, and the same as a matrix; one site is negative."""
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, p)), rng.normal(size=n)
    n_units = p + n if latent else p
    prior = mf.Gaussian(np.zeros(n_units), np.ones(n_units))
    model = mf.SparseLinearModel(X, y, 0.5, prior)
    blocks = Blocks(MEMBERS, n_units)
    linear, single = rng.normal(size=n_units), rng.gamma(2.0, size=len(blocks.singles))
    if not latent:
        single[-1] = -1e-3
    matrices, T = [], np.zeros((n_units, n_units))
    T[blocks.singles, blocks.singles] = single
    for units in blocks.members:
        half = rng.normal(size=(len(units),) * 2)
        matrices.append(half @ half.T)
        T[np.ix_(units, units)] = matrices[-1]
    site = np.concatenate([linear, single, *map(np.ravel, matrices)])
    return model, blocks, site, T


@pytest.mark.parametrize("n, p, latent", [(30, 9, False), (9, 90, False), (12, 9, True),
                                          (50, 70, False), (9, 70, True)])  # fmt: skip
def test_moments_are_those_of_the_whole_matrix(n, p, latent):
    model, blocks, site, T = case(n, p, latent)
    X = np.concatenate([model.X, -np.eye(n)], axis=1) if latent else model.X
    A = X.T @ X / 0.5 + T
    covariance = np.linalg.inv(A)
    total = X.T @ model.y / 0.5 + site[: model.n_units]
    mean = covariance @ total
    constant = -(model.y @ model.y / 0.5 + n * np.log(2 * np.pi * 0.5)) / 2
    log_partition = constant + total @ mean / 2
    log_partition -= np.linalg.slogdet(A / (2 * np.pi))[1] / 2
    side = block_side(model, blocks)
    found, value, of_units = side.moments(site)
    np.testing.assert_allclose(value, log_partition, rtol=1e-9)
    np.testing.assert_allclose(blocks.parts(found)[0], mean, atol=1e-8)
    np.testing.assert_allclose(blocks.diagonal(found), covariance.diagonal(), atol=1e-8)
    found = iter(blocks.matrices(blocks.parts(found)[2]))
    for units in blocks.by_size:
        expected = [covariance[np.ix_(own, own)] for own in units]
        np.testing.assert_allclose(next(found), expected, atol=1e-8)
    several = np.concatenate(blocks.members[1:])
    expected = covariance[np.ix_(several, several)]
    np.testing.assert_allclose(of_units(several), expected, atol=1e-8)
    rows = np.random.default_rng(0).normal(size=(3, p))
    labels = labels_of(blocks.members, p)
    sites = np.stack([site[: model.n_units], blocks.diagonal(site)])
    inverse = inverse_with(model, labels, sites, blocks.parts(site)[2])
    expected = np.einsum("ri,ij,rj->r", rows, covariance[:p, :p], rows)
    np.testing.assert_allclose(inverse.variance_along(rows), expected, rtol=1e-8)


def test_an_improper_gaussian_has_no_moments():
    model, blocks, site, _ = case(9, 90)
    blocks.parts(site)[1][:] = -1e3
    assert block_side(model, blocks).moments(site) is None


def test_naturals_and_moments_are_inverse():
    _, blocks, site, T = case(30, 9)
    moments = site.copy()
    blocks.parts(moments)[1][-1] = 2.0
    natural = blocks.natural(moments)
    mean = blocks.parts(moments)[0]
    expected = np.linalg.inv(T + np.diag(np.where(T.diagonal() < 0, 2 + 1e-3, 0)))
    np.testing.assert_allclose(blocks.parts(natural)[0], expected @ mean, rtol=1e-8)
    np.testing.assert_allclose(blocks.diagonal(natural), expected.diagonal(), rtol=1e-8)
    value = mean @ expected @ mean / 2 - np.linalg.slogdet(expected / (2 * np.pi))[1] / 2
    np.testing.assert_allclose(blocks.log_partition(natural), value, rtol=1e-9)
    np.testing.assert_allclose(blocks.log_partition(natural, mean), value, rtol=1e-9)
    with pytest.raises(LinAlgError):
        blocks.natural(site)


def test_labels_and_members():
    labels = labels_of(MEMBERS, 9)
    assert labels.tolist() == [0, 1, 0, 2, 1, 3, 0, 2, 4]
    found = {tuple(units.tolist()) for units in members_of(labels)}
    assert found == {(1, 4), (0, 2, 6), (3, 7)}
