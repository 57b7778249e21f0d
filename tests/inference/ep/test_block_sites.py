"""Sites of blocks: problems, states and fixed points, against enumeration."""

import itertools
import tracemalloc

import numpy as np
import pytest
from kernel_cases.regression import chain_of_features, exact

import fastmf as mf
from fastmf._common import rows
from fastmf._common.stored_columns import StoredColumns
from fastmf.inference.ep import partition
from fastmf.inference.ep.block_sites import block_problem
from fastmf.inference.ep.partition import (
    MAX_FEATURES,
    correlated_blocks,
    members_with,
    most_included,
    one_block,
)
from fastmf.inference.gaussian.blocks import Blocks

OPTIONS = (-np.inf, 1e-9, 100, None)


def regression(n=40, p=7, noise_variance=0.3):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, p)) + rng.normal(size=(n, 1))
    y = X[:, 1] - X[:, 4] + np.sqrt(noise_variance) * rng.normal(size=n)
    prior = mf.GaussBernoulli(rng.normal(size=p) / 5, rng.gamma(3.0, size=p) / 3, np.full(p, -1.5))
    return mf.SparseLinearModel(X, y, noise_variance, prior)


def test_the_energy_is_stationary_at_a_fixed_point():
    model = regression()
    blocks = Blocks([np.array([0, 1, 2]), np.array([3, 4])], 7)
    problem = block_problem(model, blocks, OPTIONS)
    found = mf.expectation_propagation(model, blocks=[0, 0, 0, 1, 1, 2, 3], tol=1e-11)
    matrices = [T.ravel() for _, T in found.block_sites]
    site = np.concatenate([found.sites[0], found.sites[1, blocks.singles], *matrices])
    state = problem.state_of(site)
    assert state.residual < 1e-9
    rng, h = np.random.default_rng(0), 1e-4
    for _ in range(5):
        change = h * rng.normal(size=len(site))
        for T in blocks.matrices(blocks.parts(change)[2]):
            T[:] = (T + np.swapaxes(T, 1, 2)) / 2
        up, down = (problem.energy(problem.state_of(site + sign * change)) for sign in (1, -1))
        assert abs(up - down) / (2 * h) < 1e-5


def test_priors_without_a_spike_are_refused():
    model = mf.SparseLinearModel(np.ones((3, 2)), np.ones(3), 1.0, mf.Gaussian(np.zeros(2), 1.0))
    with pytest.raises(TypeError, match="blocks needs a GaussBernoulli prior"):
        mf.expectation_propagation(model, blocks=[0, 0])


SCHEDULES = ("parallel", "sequential", "convergent", "auto")


def designs():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(50, 3))
    y = 2 * A[:, 0] - A[:, 1] + 0.1 * rng.normal(size=50)
    A -= A.mean(0)
    near = A[:, :1] + 1e-3 * rng.normal(size=(50, 1))
    return y - y.mean(), {
        "copy": A[:, [0, 0, 1, 2]],
        "flipped and doubled": A[:, [0, 0, 0, 1, 2]] * [1, -1, 2, 1, 1],
        "sum": np.concatenate([A, A[:, :1] + A[:, 1:2]], axis=1),
        "nearly equal": np.concatenate([A, near], axis=1),
        "constant": np.concatenate([A[:, [0, 0, 1]], np.zeros((50, 1))], axis=1),
        "few rows": None,
    }


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", designs()[1])
@pytest.mark.parametrize("noise, slab", [(0.01, 10.0), (0.25, 1.0), (1e-4, 10.0), (1e-6, 10.0)])
def test_dependent_columns_against_enumeration(name, schedule, noise, slab):
    y, found = designs()
    X = found[name]
    if X is None:
        X, y = found["copy"][:3], y[:3]
    p = X.shape[1]
    prior = mf.GaussBernoulli(np.zeros(p), np.full(p, 1 / slab), np.full(p, -3.0))
    model = mf.SparseLinearModel(X, y, noise, prior)
    evidence, _, _, included = exact(model)
    result = mf.expectation_propagation(model, blocks="auto", schedule=schedule, tol=1e-6)
    assert result.converged
    np.testing.assert_allclose(result.inclusion_probability, included, atol=0.03)
    # That of single sites is some nats too high.
    np.testing.assert_allclose(result.log_evidence, evidence, atol=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_effects_that_cancel_are_found(seed):
    """Two columns of correlation 0.995 with effects 2 and -2, neither of which has one alone."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 13))
    X[:, 1] = 0.995 * X[:, 0] + 0.1 * X[:, 1]
    y = 2 * X[:, 0] - 2 * X[:, 1] + X[:, 5] + 0.1 * rng.normal(size=60)
    prior = mf.GaussBernoulli(np.zeros(13), np.ones(13), np.full(13, -4.0))
    model = mf.SparseLinearModel(X, y, 0.01, prior)
    evidence, _, _, included = exact(model)
    result = mf.expectation_propagation(model, blocks="auto")
    assert included[:2].min() > 0.99
    np.testing.assert_allclose(result.inclusion_probability, included, atol=0.01)
    np.testing.assert_allclose(result.log_evidence, evidence, atol=0.05)


@pytest.mark.parametrize("shape", [(60, 20), (25, 40)])
def test_float32_features_give_the_same(shape):
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(size=(shape[0], shape[1] // 2)), 2, axis=1).astype(np.float32)
    y = X[:, 3] - X[:, 8] + 0.3 * rng.normal(size=shape[0])
    p = shape[1]
    prior = mf.GaussBernoulli(np.zeros(p), np.ones(p), np.full(p, -3.0))
    one, other = (
        mf.expectation_propagation(mf.SparseLinearModel(Z, y, 0.1, prior), blocks="auto")
        for Z in (X, X.astype(float))
    )
    assert one.converged and len(one.block_sites) == len(other.block_sites) >= 9
    np.testing.assert_allclose(one.inclusion_probability, other.inclusion_probability, atol=1e-6)
    pairs = one.inclusion_probability.reshape(-1, 2)
    np.testing.assert_allclose(pairs[:, 0], pairs[:, 1], atol=1e-6)


def test_without_correlations_single_sites_are_used():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 30))
    prior = mf.GaussBernoulli(np.zeros(30), np.ones(30), np.full(30, -3.0))
    model = mf.SparseLinearModel(X, X[:, 0] + rng.normal(size=80), 1.0, prior)
    one, other = (mf.expectation_propagation(model, blocks=b) for b in ("auto", None))
    assert one.block_sites is None
    np.testing.assert_array_equal(one.mean, other.mean)


def test_blocks_of_one_feature_are_single_sites():
    """The site of a block of one unit, or of two uncoupled ones, is what single sites are."""
    X = np.eye(4)[:, :3] * [1.0, 2.0, 3.0]
    prior = mf.GaussBernoulli(np.zeros(3), np.ones(3), np.zeros(3))
    model = mf.SparseLinearModel(X, np.array([1.0, 0.5, 2.0, 0.0]), 0.5, prior)
    one = mf.expectation_propagation(model, blocks=[0, 0, 1])
    other = mf.expectation_propagation(model)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-8)
    np.testing.assert_allclose(one.var, other.var, atol=1e-8)
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, rtol=1e-9)


def test_a_result_is_where_to_start():
    y, found = designs()
    prior = mf.GaussBernoulli(np.zeros(4), np.full(4, 0.1), np.full(4, -3.0))
    model = mf.SparseLinearModel(found["copy"], y, 0.01, prior)
    first = mf.expectation_propagation(model, blocks="auto")
    again = mf.expectation_propagation(model, first, blocks="auto")
    assert again.n_iter <= 2
    other = mf.expectation_propagation(model, first.sites, blocks="auto")
    np.testing.assert_allclose(other.mean, first.mean, atol=1e-6)
    with pytest.raises(ValueError, match="init must be finite and have shape"):
        mf.expectation_propagation(model, np.zeros((2, 3)), blocks="auto")


def test_blocks_of_too_many_effects_are_cut():
    """30 features of correlation 0.5, of which ten have strong effects."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 30)) + rng.normal(size=(300, 1))
    X -= X.mean(0)
    y = X[:, :10].sum(1) + rng.normal(size=300)
    prior = mf.GaussBernoulli(np.zeros(30), np.ones(30), np.full(30, -1.0))
    model = mf.SparseLinearModel(X, y - y.mean(), 1.0, prior)
    found = mf.expectation_propagation(model, blocks="auto", schedule="auto", tol=1e-6)
    assert found.converged
    assert max(found.full_probability, default=0) < 0.05
    assert (found.inclusion_probability[:10] > 0.95).all()
    assert found.inclusion_probability[10:].mean() < 0.15


@pytest.mark.parametrize(
    "blocks, message",
    [
        ("all", "blocks must have a label for each feature"),
        ([0, 1], "blocks must have a label for each feature"),
        ([0, np.nan, 1], "blocks must name the block of every feature"),
    ],
)
def test_bad_blocks_are_named(blocks, message):
    with pytest.raises(ValueError, match=message):
        members_with(blocks, 3)


def few_included(model, largest):
    """Inclusion probabilities by enumeration of all sets of up to so many features."""
    G, h = model.X.T @ model.X / model.noise_variance, model.X.T @ model.y / model.noise_variance
    p, precision, odds = len(h), model.prior.precision[0], model.prior.log_odds[0]
    weights, included = [np.zeros(1)], [np.zeros((1, p))]
    for size in range(1, largest + 1):
        S = np.array(list(itertools.combinations(range(p), size)))
        Q = G[S[:, :, None], S[:, None]] + precision * np.eye(size)
        fit = np.einsum("ki,kij,kj->k", h[S], np.linalg.inv(Q), h[S])
        weights.append(
            size * (odds + np.log(precision) / 2) + fit / 2 - np.linalg.slogdet(Q)[1] / 2
        )
        included.append((S[:, :, None] == np.arange(p)).any(1))
    weights = np.concatenate(weights)
    weights = np.exp(weights - weights.max())
    return weights @ np.concatenate(included) / weights.sum()


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 149])
def test_effects_along_a_chain_of_correlated_features(seed):
    """Blocks cut regardless of effects were wrong by 0.3, joined ones moved in circles (149)."""
    rng = np.random.default_rng(seed)
    X = chain_of_features(rng, 250, 36, 0.9)
    X -= X.mean(0)
    first = rng.integers(3, 15)
    y = 0.4 * X[:, first] - 0.35 * X[:, first + 16] + rng.normal(size=250)
    prior = mf.GaussBernoulli(np.zeros(36), np.full(36, 4.0), np.full(36, -4.0))
    model = mf.SparseLinearModel(X, y - y.mean(), 1.0, prior)
    result = mf.expectation_propagation(model, blocks="auto", schedule="auto", tol=1e-6)
    assert result.converged
    np.testing.assert_allclose(result.inclusion_probability, few_included(model, 3), atol=0.03)


@pytest.mark.parametrize("seed", [7, 59, 80, 299])
def test_one_block_of_all_converges(seed):
    """Extrapolation let the asymmetry of sites, which is rounding, grow without end."""
    rng = np.random.default_rng(seed)
    n = rng.integers(2, 11)
    A = rng.normal(size=(n, n))
    covariance = A @ A.T / n * 10 ** rng.uniform(-3, 2) + 1e-3 * np.eye(n)
    effects = rng.normal(size=n) * (rng.random(n) < 0.5) * rng.choice([0.3, 1, 3])
    lower = np.linalg.cholesky(covariance)
    X = np.linalg.inv(lower)
    prior = mf.GaussBernoulli(np.zeros(n), np.ones(n), np.zeros(n))
    model = mf.SparseLinearModel(X, X @ effects + rng.normal(size=n), 1.0, prior)
    tol = 1e-6 / np.sqrt(np.square(X).sum(0).max())
    result = mf.expectation_propagation(model, blocks=np.zeros(n), schedule="parallel", tol=tol)
    assert result.converged
    np.testing.assert_allclose(result.inclusion_probability, exact(model)[3], atol=1e-6)
    ((_, T),) = result.block_sites
    assert (T == T.T).all()


@pytest.mark.parametrize("kind", ["few rows", "strong", "copies"])
def test_a_block_of_all_features_is_found_without_iterations(kind):
    """Without iterations, by enumeration; single sites are wrong, or do not converge."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(6 if kind == "few rows" else 30, 7))
    if kind == "copies":
        X[:, 1], X[:, 2] = X[:, 0], -X[:, 0] / 2
    noise = {"few rows": 0.5, "strong": 1e-4, "copies": 1e-4}[kind]
    y = X[:, 0] - X[:, 3] + 0.4 * rng.normal(size=len(X))  # more noise than the model has
    model = mf.SparseLinearModel(X, y, noise, mf.GaussBernoulli(np.zeros(7), 1.0, -1.0))
    evidence, mean, deviation, included = exact(model)
    found = mf.expectation_propagation(model, blocks="auto")
    assert found.converged and found.n_iter == 1 and found.reliable
    np.testing.assert_allclose(found.inclusion_probability, included, atol=1e-6)
    np.testing.assert_allclose(found.mean, mean, atol=1e-6)
    np.testing.assert_allclose(np.sqrt(found.var), deviation, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(found.log_evidence, evidence, rtol=1e-9)


# --- which features are in a block ----------------------------------------------------------------


def as_sets(blocks):
    return {tuple(sorted(map(int, block))) for block in blocks}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1, 1e-150, 1e150])
def test_copies_flips_multiples_and_sums_share_a_block(dtype, scale):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 9))
    A -= A.mean(0)
    columns = [A[:, 0], A[:, 0], -A[:, 0], 3 * A[:, 0], A[:, 1] + A[:, 2], A[:, 1], A[:, 2]]
    X = np.stack([*columns, 0 * A[:, 0], *A[:, 3:].T], axis=1).astype(dtype)
    if dtype == np.float64:
        X *= scale
    assert as_sets(correlated_blocks(X)) == {(0, 1, 2, 3), (4, 5, 6)}


@pytest.mark.parametrize("shape", [(75, 512), (500, 40), (1000, 12), (30, 50)])
def test_independent_columns_have_no_blocks(shape):
    X = np.random.default_rng(3).normal(size=shape)
    assert sum(map(len, correlated_blocks(X))) <= 4


def test_blocks_are_groups_of_correlated_features_but_not_too_large():
    rng = np.random.default_rng(4)
    common = rng.normal(size=(300, 1))
    groups = [common + 0.7 * rng.normal(size=(300, 1)) for _ in range(3)]
    X = np.concatenate([g + 0.2 * rng.normal(size=(300, 40)) for g in groups], axis=1)
    first = correlated_blocks(X)[0]
    assert first[0] == 0 and set(range(40)) <= set(first)
    assert max(map(len, correlated_blocks(np.repeat(common, 150, axis=1)))) == MAX_FEATURES


def test_constant_columns_are_in_no_block():
    assert correlated_blocks(np.zeros((10, 4))) == []
    assert correlated_blocks(np.zeros((10, 40))) == []


def test_features_of_large_scores_lead():
    """A chain is cut between effects, whose blocks reach equally far on both sides."""
    rng = np.random.default_rng(5)
    X = chain_of_features(rng, 5000, 60, 0.8)
    scores = np.zeros(60)
    scores[[17, 40]] = 2, 3
    blocks = as_sets(correlated_blocks(X, scores))
    # 0.8^4 = 0.41
    assert {tuple(range(13, 22)), tuple(range(36, 45))} <= blocks
    assert sorted(k for block in blocks for k in block) == sorted(set().union(*blocks))


def test_stored_columns_are_converted_some_at_a_time(monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_ENTRIES", 2**16)
    monkeypatch.setattr(partition, "LEADS_AT_A_TIME", 32)
    n, p = 200, 1500
    X = np.random.default_rng(7).integers(0, 3, size=(n, p)).astype(np.int8)
    mean, factors = X.mean(0), np.ones(p)
    columns = StoredColumns(X, np.ones(n), factors, np.ones((n, 1)), mean[None])
    tracemalloc.start()
    blocks = correlated_blocks(columns, np.zeros(p))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert blocks == []
    assert peak < 6 * X.size  # all of them in double precision take 8


def test_few_features_are_one_block():
    X = np.random.default_rng(0).normal(size=(30, 12))
    X[:, 3] = 0
    assert as_sets(one_block(X[:, :11])) == {(0, 1, 2, *range(4, 11))}
    assert one_block(X[:, 2:4]) == [] and one_block(X) is None


def test_patterns_of_blocks_of_any_size_are_few():
    sizes = [most_included(c) for c in (*range(12, 300), 2000)]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] == 3
