import numpy as np
import pytest
from numpy.linalg import LinAlgError

import fastmf as mf
from fastmf.inference.gaussian.blocks import (
    Blocks,
    block_side,
    inverse_with,
    labels_of,
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
                                          (50, 70, False), (9, 70, True),
                                          (70, 9, True)])  # fmt: skip
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
    found, value = side.moments(site)
    np.testing.assert_allclose(value, log_partition, rtol=1e-9)
    np.testing.assert_allclose(blocks.parts(found)[0], mean, atol=1e-8)
    np.testing.assert_allclose(blocks.diagonal(found), covariance.diagonal(), atol=1e-8)
    found = iter(blocks.matrices(blocks.parts(found)[2]))
    for units in blocks.by_size:
        expected = [covariance[np.ix_(own, own)] for own in units]
        np.testing.assert_allclose(next(found), expected, atol=1e-8)
    rows = np.random.default_rng(0).normal(size=(3, p))
    labels = labels_of(blocks.members, p)
    sites = np.stack([site[: model.n_units], blocks.diagonal(site)])
    inverse = inverse_with(model, labels, sites, blocks.parts(site)[2])
    several = np.concatenate(blocks.members[1:])
    expected = covariance[np.ix_(several, several)]
    np.testing.assert_allclose(inverse.covariance(several), expected, atol=1e-8)
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


@pytest.mark.parametrize("sizes", [(2,), (2, 3, 4, 5, 8, 9, 33), (7, 7, 16, 17)])
def test_what_is_done_to_all_blocks_at_once_is_done_to_each(sizes):
    rng, n = np.random.default_rng(sum(sizes)), sum(sizes) + 3
    members = np.split(rng.permutation(n)[: sum(sizes)], np.cumsum(sizes)[:-1])
    blocks = Blocks(members, n)
    halves = [rng.normal(size=(k, k + 2)) * 10.0 ** rng.integers(-3, 3, (k, 1)) for k in sizes]
    whole = [half @ half.T for half in halves]
    elements, linear = np.concatenate([*map(np.ravel, whole)]), rng.normal(size=n)
    scale = rng.uniform(0.1, 10, n)
    inverse, log_determinant = blocks.inverses(elements)
    expected = sum(np.linalg.slogdet(M)[1] for M in whole)
    np.testing.assert_allclose(log_determinant, expected, rtol=1e-9)
    products, ends = blocks.products(elements, linear), np.cumsum(sizes)
    matrix, scaled = np.ones((n, n)), blocks.scaled(elements, scale)
    blocks.add_to(matrix, elements)
    uneven = np.concatenate([linear, np.ones(3), elements + rng.normal(size=len(elements))])
    even = blocks.matrices(blocks.parts(blocks.symmetric(uneven))[2])
    even = iter([M for alike in even for M in alike])
    found = [M for alike in blocks.matrices(inverse) for M in alike]
    raw = [M for alike in blocks.matrices(blocks.parts(uneven)[2]) for M in alike]
    scaled = [M for alike in blocks.matrices(scaled) for M in alike]
    for k, (own, M) in enumerate(zip(blocks.members, whole, strict=True)):
        np.testing.assert_allclose(found[k] @ M, np.eye(len(M)), atol=1e-6)
        np.testing.assert_allclose(products[ends[k] - len(M) : ends[k]], M @ linear[own])
        np.testing.assert_allclose(matrix[np.ix_(own, own)], M + 1)
        np.testing.assert_allclose(scaled[k], M / np.outer(scale[own], scale[own]))
        np.testing.assert_array_equal(next(even), (raw[k] + raw[k].T) / 2)
    more = elements.copy()
    blocks.add_to_diagonals(linear[blocks.units], more)
    difference = blocks.diagonals(more) - blocks.diagonals(elements)
    np.testing.assert_allclose(difference, linear[blocks.units], rtol=1e-6)
    more[0] = -1
    with pytest.raises(LinAlgError):
        blocks.inverses(more)
    more[:] = 1  # of rank 1
    with pytest.raises(LinAlgError):
        blocks.inverses(more)
