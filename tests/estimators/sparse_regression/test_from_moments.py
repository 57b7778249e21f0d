import warnings

import numpy as np
import pandas as pd
import pytest
from kernel_cases.regression import chain_of_features, problem
from scipy import sparse

import fastmf as mf
from fastmf.estimators.sparse_regression._rows import rows_of_moments

KNOWN = {"noise_variance": 0.3, "slab_variance": 1.0, "inclusion_probability": 0.2}
LEARNED = (
    "coef_", "coef_var_", "inclusion_probability_", "log_evidence_", "noise_variance_",
    "slab_variance_", "prior_inclusion_",
)  # fmt: skip


def same(ours, theirs, atol=1e-6):
    for name in LEARNED:
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=atol)


@pytest.mark.parametrize(
    ("shape", "options"),
    [((40, 12), {}), ((40, 12), {"average_parameters": True}), ((20, 50), KNOWN)],
)
def test_moments_are_as_good_as_rows(shape, options):
    model, _ = problem(*shape)
    X, y = model.X, model.y
    rows = mf.SpikeSlabRegressor(fit_intercept=False, standardize=False, **options).fit(X, y)
    ours = mf.SpikeSlabRegressor(fit_intercept=False, **options)
    ours.fit_moments(X.T @ X, X.T @ y, y @ y, len(y))
    same(ours, rows)
    for mine, theirs in zip(*(m.predict(X, return_std=True) for m in (ours, rows)), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize("options", [KNOWN, {}])
def test_z_scores_are_as_good_as_standardised_rows(options):
    model, _ = problem(60, 12)
    X, y = model.X - model.X.mean(0), model.y - model.y.mean()
    X, y = X / X.std(0), y / y.std()
    r = X.T @ y / 60
    rows = mf.SpikeSlabRegressor(**options).fit(X, y)
    ours = mf.SpikeSlabRegressor(**options)
    ours.fit_summary(r * np.sqrt(58 / (1 - r * r)), X.T @ X / 60, 60)
    same(ours, rows)
    assert ours.mismatch_ == 0


def test_blocks_are_those_of_the_whole(tmp_path, fine):
    """Orthogonal blocks in a list, in a sparse matrix, or in one of which nothing is known."""
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.normal(size=(80, 24)))[0] * np.sqrt(80)
    X = np.concatenate([q[:, k : k + 8] @ (np.eye(8) + 0.4) for k in (0, 8, 16)], axis=1)
    y = X[:, 2] - 0.5 * X[:, 20] + 0.7 * rng.normal(size=80)
    gram, moment = X.T @ X, X.T @ y
    blocks = [gram[k : k + 8, k : k + 8] for k in (0, 8, 16)]
    whole = mf.SpikeSlabRegressor().fit_moments(gram, moment, y @ y, 80)
    for matrix in (blocks, sparse.block_diag(blocks)):
        ours = mf.SpikeSlabRegressor().fit_moments(matrix, moment, y @ y, 80)
        same(ours, whole, atol=1e-3)
        for mine, theirs in zip(
            *(m.predict(X, return_std=True) for m in (ours, whole)), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, atol=1e-3)
    ours.save(tmp_path / "blocks.npz")
    loaded = mf.SpikeSlabRegressor.load(tmp_path / "blocks.npz")
    np.testing.assert_array_equal(loaded.predict(X, True)[1], ours.predict(X, True)[1])


def test_correlations_of_other_features_are_diagnosed_and_not_followed():
    rng = np.random.default_rng(0)
    X = chain_of_features(rng, 500, 60, 0.95, 0.3)
    X = (X - X.mean(0)) / X.std(0)
    y = 0.5 * X[:, 30] + rng.normal(size=500)
    r = X.T @ (y - y.mean()) / y.std() / 500
    z, R = r * np.sqrt(498 / (1 - r * r)), X.T @ X / 500
    right = mf.SpikeSlabRegressor().fit_summary(z, R, 500)
    assert abs(right.inclusion_probability_.sum() - 1) < 0.3
    z[[28, 32]] *= -1
    with pytest.warns(UserWarning, match="R does not fit z.*28, 32 have the wrong sign"):
        wrong = mf.SpikeSlabRegressor().fit_summary(z, R, 500)
    np.testing.assert_allclose(wrong.inclusion_probability_, right.inclusion_probability_, atol=0.2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        other = mf.SpikeSlabRegressor().fit_summary(np.roll(z, 20), R, 500)
    assert "R does not fit z" in str(said[0].message) and other.mismatch_ > 0.02


def copies(seed=0, n=400, p=30, jitter=1e-4):
    """Standardised features, each twice but for a little, a cause, and its z-scores."""
    rng = np.random.default_rng(seed)
    X = chain_of_features(rng, n, p, 0.8)
    X = np.repeat(X, 2, axis=1) + jitter * rng.normal(size=(n, 2 * p))
    X, cause = (X - X.mean(0)) / X.std(0), int(rng.integers(2 * p))
    y = 0.4 * X[:, cause] + rng.normal(size=n)
    r = X.T @ (y - y.mean()) / y.std() / n
    return X, y, cause, r * np.sqrt((n - 2) / (1 - r * r)), X.T @ X / n


def fit_and_warnings(*arguments, **options):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = mf.SpikeSlabRegressor(**options).fit_summary(*arguments)
    return model, " ".join(str(one.message) for one in said)


def test_decimals_of_scores_and_correlations_change_nothing():
    """What the rows say, from two decimals on, and also with fewer effective rows."""
    X, y, cause, z, R = copies()
    rows = mf.SpikeSlabRegressor().fit(X, y)
    pair = [cause - cause % 2, cause - cause % 2 + 1]
    for change in [(z, R.round(3)), (z.round(2), R.round(3))]:
        ours, said = fit_and_warnings(*change, 400)
        assert not said and ours.mismatch_ < 0.01
        np.testing.assert_allclose(
            ours.inclusion_probability_.reshape(-1, 2).sum(1),
            rows.inclusion_probability_.reshape(-1, 2).sum(1),
            atol=0.05,
        )
    fewer = mf.SpikeSlabRegressor().fit_summary(z.round(2), R, 300)
    assert fewer.inclusion_probability_[pair].sum() > 0.95


def test_wrong_signs_of_small_scores_are_turned():
    *_, z, R = copies(jitter=0.02)
    right = mf.SpikeSlabRegressor().fit_summary(z, R, 400)
    flipped = np.flatnonzero((abs(z) < 1) & (abs(z) > 0.3))[[0, -1]]
    z[flipped] *= -1
    wrong, said = fit_and_warnings(z, R, 400)
    assert f"features {flipped[0]}, {flipped[1]} have the wrong sign" in said
    np.testing.assert_allclose(
        wrong.inclusion_probability_, right.inclusion_probability_, atol=0.02
    )


def test_effects_that_cancel_are_said():
    """Opposite effects of correlated features, whose z-scores are those of chance."""
    R = np.eye(60)
    R[3, 4] = R[4, 3] = 0.3
    z = 1.2 * np.linspace(-1.5, 1.5, 60)
    z[3], z[4] = 2.3, -2.3
    options = dict(inclusion_probability=0.9, slab_variance=0.02, noise_variance=1.0)
    model, said = fit_and_warnings(z, R, 1000, **options)
    assert (model.inclusion_probability_[[3, 4]] > 0.95).all()
    assert "features 3, 4 seem to have effects" in said


def test_squared_correlations_are_said():
    *_, z, R = copies(jitter=0.5)
    z[:20], z[40:] = z[:20] + 5 * R[:20, 10], z[40:] - 5 * R[40:, 50]
    assert "r^2" in fit_and_warnings(z, R**2, 400)[1]
    assert "r^2" not in fit_and_warnings(z, R, 400)[1]


def test_names_of_features_are_those_of_pandas():
    """Of z or R; another order would be another problem."""
    names = list("abcdef")
    model, _ = problem(60, 6)
    R = pd.DataFrame(model.X, columns=names).corr()
    z = pd.Series(np.linspace(-2, 6, 6), index=names)
    expected = mf.SpikeSlabRegressor().fit_summary(z.to_numpy(), R.to_numpy(), 60)
    halves = [R.iloc[:3, :3], R.iloc[3:, 3:]]
    n = pd.Series(60, index=names)  # as in a column of a file of summary statistics
    for own, matrix in ((z, R), (z, R.to_numpy()), (z.to_numpy(), R), (z, halves)):
        ours = mf.SpikeSlabRegressor().fit_summary(own, matrix, n)
        assert ours.as_frame().index.tolist() == names
        if matrix is not halves:
            np.testing.assert_array_equal(ours.coef_, expected.coef_)
    for matrix in (R.iloc[::-1, ::-1], halves[::-1], R.iloc[:5, :5]):
        with pytest.raises(ValueError, match="R must name the features in the order of z"):
            mf.SpikeSlabRegressor().fit_summary(z, matrix, 60)
    with pytest.raises(ValueError, match=r"take R\.loc"):
        mf.SpikeSlabRegressor().fit_summary(z.to_numpy(), R.iloc[::-1], 60)
    chosen = mf.SpikeSlabRegressor(unpenalised=["c"]).fit_summary(z, R, 60)
    assert chosen.inclusion_probability_[2] == 1
    moments = 60 * R, 60 * z / 10, 60.0, 60
    ours = mf.SpikeSlabRegressor(**KNOWN).fit_moments(*moments)
    assert ours.as_frame().index.tolist() == names
    with pytest.raises(ValueError, match="gram must name the features in the order of moment"):
        ours.fit_moments(60 * R, 6 * z.iloc[::-1], 60.0, 60)
    assert ours.fit_summary(z.to_numpy(), R.to_numpy(), 60).as_frame().index[0] == "x0"


def test_many_blocks_that_explain_more_than_there_is():
    """More features than rows, in blocks that are not quite uncorrelated."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 400))
    X = (X - X.mean(0)) / X.std(0)
    y = 0.6 * X[:, 7] + rng.normal(size=200)
    y = (y - y.mean()) / y.std()
    r = X.T @ y / 200
    R = [X[:, k : k + 100].T @ X[:, k : k + 100] / 200 for k in range(0, 400, 100)]
    fitted = mf.SpikeSlabRegressor().fit_summary(r * np.sqrt(198 / (1 - r * r)), R, 200)
    np.testing.assert_array_equal(np.flatnonzero(fitted.inclusion_probability_ > 0.5), [7])
    assert 0.5 < fitted.noise_variance_ < 1.2


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((np.eye(2), np.ones(3), 5.0, 10), "moment must have shape"),
        ((np.full((2, 2), np.nan), np.ones(2), 5.0, 10), "gram must be finite"),
        ((np.eye(2), np.ones(2), -1.0, 10), "y_square must be positive"),
        ((np.eye(2), np.ones(2), 5.0, 0), "n must be positive"),
        ((np.ones((2, 3)), np.ones(2), 5.0, 10), "gram must be a square matrix"),
        ((np.array([[1.0, 0.5], [0.1, 1.0]]), np.ones(2), 5.0, 10), "gram must be symmetric"),
        ((np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones(2), 1.0, 10), "gram must be positive semi"),
        ((np.ones((2, 2)), np.array([1.0, -1.0]), 5.0, 10), "moment must be X'y"),
        ((np.eye(2), np.ones(2), 1.0, 10), "y_square must be y'y"),
    ],
)
def test_bad_moments(arguments, message):
    with pytest.raises(ValueError, match=message):
        mf.SpikeSlabRegressor().fit_moments(*arguments)


def test_rows_with_the_same_moments():
    """Evidence and energies agree with the rows of the data."""
    model, _ = problem(30, 8)
    X, y, prior = model.X, model.y, model.prior
    U, target = rows_of_moments(X.T @ X, X.T @ y, y @ y)
    ours = mf.SparseLinearModel(U, target, 0.2, prior, 30.0, y @ y - target @ target)
    rows = mf.SparseLinearModel(X, y, 0.2, prior)
    for schedule in ("parallel", "convergent"):
        found, expected = (
            mf.expectation_propagation(m, schedule=schedule, history=True) for m in (ours, rows)
        )
        assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)
        np.testing.assert_allclose(found.energies[-1], expected.energies[-1], atol=1e-6)
    w = np.random.default_rng(0).normal(size=(3, 8))
    np.testing.assert_allclose(ours.energy(w), rows.energy(w))


@pytest.mark.parametrize(
    "moments, name",
    [
        (([[1e308, 0], [0, 1e308]], [1.0, 1.0], 1.0, 10), "gram"),
        (([[10**400, 0], [0, 1]], [1.0, 1.0], 1.0, 10), "gram"),
        ((np.eye(2), [10**400, 1], 1.0, 10), "moment"),
        ((np.eye(2), [1.0, 1.0], 10**400, 10), "y_square"),
    ],
)
def test_moments_that_overflow_are_refused(moments, name):
    with pytest.raises(ValueError, match=f"{name} must .* 1.8e308"):
        mf.SpikeSlabRegressor().fit_moments(*moments)
    with pytest.raises(ValueError, match="z must be below"):
        mf.SpikeSlabRegressor().fit_summary([10**400, 1], np.eye(2), 100)


def test_a_block_may_have_no_likely_feature():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 12))
    X -= X.mean(0)
    X[:, 6:] = np.linalg.qr(X)[0][:, 6:]
    y = X[:, 0] - X[:, 2] + rng.normal(size=60)
    y -= y.mean() + X[:, 6:] @ (X[:, 6:].T @ y)
    gram = X.T @ X
    gram[:6, 6:] = gram[6:, :6] = 0
    apart, together = (
        mf.SpikeSlabRegressor().fit_moments(matrix, X.T @ y, y @ y, 60).inclusion_probability_
        for matrix in ([gram[:6, :6], gram[6:, 6:]], gram)
    )
    assert (together[[0, 2]] > 0.9).all() and (together[6:] < 0.2).all()
    np.testing.assert_allclose(apart, together, atol=1e-3)
