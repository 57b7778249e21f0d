import numpy as np
import pytest
from kernel_cases.gaussian_sides import agree, linear, sites
from numpy.linalg import LinAlgError
from scipy.sparse import csc_array

import fastmf as mf
from fastmf._common.stored_columns import StoredColumns
from fastmf.inference.gaussian import Dense, gaussian_side, order_of
from fastmf.inference.gaussian import low_rank as module
from fastmf.inference.gaussian.bipartite import Bipartite, RepeatedRows, with_latent_columns
from fastmf.inference.gaussian.blocks import Blocks, block_side, inverse_with, labels_of
from fastmf.inference.gaussian.low_rank import LowRank

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
    difference = np.concatenate([*map(np.diag, blocks.each(more - elements))])
    np.testing.assert_allclose(difference, linear[blocks.units], rtol=1e-6)
    more[0] = -1
    with pytest.raises(LinAlgError):
        blocks.inverses(more)
    more[:] = 1  # of rank 1
    with pytest.raises(LinAlgError):
        blocks.inverses(more)


# --- the Gaussian side by the Woodbury identity, against that with a full matrix ------------------


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


# --- all kinds of Gaussian sides are the same Gaussian, and the factory chooses the kind ----------


def test_no_gaussian_is_said():
    low_rank, dense = linear(20, 90)
    bipartite = Bipartite(np.full((4, 3), 2.0))
    for side, unit in ((low_rank, 3), (dense, 3), (low_rank, 7), (dense, 7)):
        assert side.moments(sites(90, ((unit, -1e4),))) is None
    assert bipartite.moments(np.ones((2, 7))) is None
    assert bipartite.moments(-np.ones((2, 7))) is None


# --- rows of a weight against rows that are repeated ----------------------------------------------


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
    model = mf.SparseLinearModel(X * root[:, None], y * root, NOISE, mf.Gaussian(np.zeros(7), 1.0))
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


# --- the Gaussian side of converted columns is that of the array of them --------------------------


def sides(monkeypatch, kind=np.asarray):
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", 400)
    rng = np.random.default_rng(0)
    stored = rng.integers(0, 3, (12, 80)).astype(np.int8)
    mean = stored.mean(0)[None]
    columns = StoredColumns(kind(stored), np.ones(12), np.full(80, 2.0), np.ones((12, 1)), 2 * mean)
    X, y = 2 * (stored - mean), rng.normal(size=12)
    prior = mf.GaussBernoulli(np.zeros(80), np.ones(80), np.zeros(80))
    models = [mf.SparseLinearModel(rows, y, 0.7, prior) for rows in (columns, X)]
    site = rng.normal(size=(2, 80))
    site[1] = abs(site[1]) + 0.1
    return models, site, rng


@pytest.mark.parametrize("kind", [np.asarray, csc_array])
@pytest.mark.parametrize("low", [False, True])
def test_moments_and_covariances(monkeypatch, low, kind):
    models, site, rng = sides(monkeypatch, kind)
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
    predictions = [model.prediction(rows) for model in models]
    np.testing.assert_allclose(*predictions, atol=1e-10)


@pytest.mark.parametrize("kind", [np.asarray, csc_array])
def test_blocks(monkeypatch, kind):
    models, site, rng = sides(monkeypatch, kind)
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
