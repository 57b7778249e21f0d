"""Columns of flat prior, and prior inclusion probabilities of each feature, against enumeration."""

import itertools

import numpy as np
import pytest
from scipy import linalg

import fastmf as mf

KNOWN = {"noise_variance": 0.5, "slab_variance": 1.0, "inclusion_probability": 0.3}
pytestmark = pytest.mark.usefixtures("fine")


def data(n=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)) + 3
    X[:, 2] += X[:, 0]  # age and what depends on it
    return X, X[:, 1] * 5 + X[:, 2] - X[:, 4] + 0.7 * rng.normal(size=n)


def exact(X, y, flat, inclusion, slab=1.0, noise=0.5, weights=1.0, standardize=True):
    """Means, variances and inclusion probabilities; `flat` columns, and 1, have no prior."""
    n, p = X.shape
    scale = X.std(0) if standardize else np.ones(p)
    rows = np.sqrt(weights * np.ones(n))[:, None]
    design = np.concatenate([rows * X / scale, rows], axis=1)
    free = [k for k in range(p) if k not in flat and 0 < inclusion[k] < 1]
    always = [*flat, *(k for k in range(p) if k not in flat and inclusion[k] == 1), p]
    log_weights, means, squares, patterns = [], [], [], []
    for pattern in itertools.product([False, True], repeat=len(free)):
        own = sorted([*np.array(free)[list(pattern)], *always])
        precision = [0.0 if k in flat or k == p else 1 / slab for k in own]
        D = design[:, own]
        A = D.T @ D / noise + np.diag(precision)
        h = D.T @ (rows[:, 0] * y) / noise
        covariance = np.linalg.inv(A)
        odds = np.log(inclusion[free] / (1 - inclusion[free]))[list(pattern)]
        log_weight = h @ covariance @ h / 2 - np.linalg.slogdet(A)[1] / 2
        log_weights.append(log_weight + odds.sum() - sum(pattern) * np.log(slab) / 2)
        mean, square, included = np.zeros((3, p + 1))
        mean[own] = covariance @ h
        square[own], included[own] = covariance.diagonal() + mean[own] ** 2, 1
        means.append(mean), squares.append(square), patterns.append(included)
    weight = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    mean, square, included = (weight @ np.array(m) for m in (means, squares, patterns))
    return mean[:p] / scale, (square - mean**2)[:p] / scale**2, included[:p]


def check(fitted, expected, atol=2e-3):
    mean, variance, included = expected
    np.testing.assert_allclose(fitted.coef_, mean, atol=atol)
    np.testing.assert_allclose(np.sqrt(fitted.coef_var_), np.sqrt(variance), rtol=0.02, atol=atol)
    np.testing.assert_allclose(fitted.inclusion_probability_, included, atol=5 * atol)


@pytest.mark.parametrize("flat", [[1], [0, 3]])
def test_flat_columns_against_enumeration(flat):
    X, y = data()
    fitted = mf.SpikeSlabRegressor(unpenalised=flat, **KNOWN).fit(X, y)
    check(fitted, exact(X, y, flat, np.full(6, 0.3)))
    np.testing.assert_array_equal(fitted.inclusion_probability_[flat], 1)


def test_predictive_deviation_is_that_of_regression_if_all_is_certain():
    X, y = data()
    options = KNOWN | {"inclusion_probability": 1 - 1e-12, "standardize": False}
    fitted = mf.SpikeSlabRegressor(unpenalised=[0, 3], **options).fit(X, y)
    rows = np.random.default_rng(1).normal(size=(5, 6))
    D = np.concatenate([X, np.ones((30, 1))], axis=1)
    A = D.T @ D / 0.5 + np.diag([0.0, 1, 1, 0, 1, 1, 0])
    rows_of_all = np.concatenate([rows, np.ones((5, 1))], axis=1)
    mean, deviation = fitted.predict(rows, return_std=True)
    np.testing.assert_allclose(mean, rows_of_all @ np.linalg.solve(A, D.T @ y / 0.5), rtol=1e-5)
    variance = 0.5 + np.einsum("ij,ji->i", rows_of_all, np.linalg.solve(A, rows_of_all.T))
    np.testing.assert_allclose(deviation**2, variance, rtol=1e-6)


def test_names_masks_and_numbers_are_the_same():
    pandas = pytest.importorskip("pandas")
    X, y = data()
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    by_name = mf.SpikeSlabRegressor(unpenalised=["d", "a"], **KNOWN).fit(frame, y)
    mask = np.isin(np.arange(6), [0, 3])
    for other in (mask, [3, 0], np.array([-6, 3])):
        ours = mf.SpikeSlabRegressor(unpenalised=other, **KNOWN).fit(X, y)
        np.testing.assert_allclose(ours.coef_, by_name.coef_, atol=1e-12)
    # A column of another table, whose lines have names of their own.
    listed = pandas.Series(["d", "a"], index=["age", "sex"])
    ours = mf.SpikeSlabRegressor(unpenalised=listed, **KNOWN).fit(frame, y)
    np.testing.assert_array_equal(ours.coef_, by_name.coef_)
    assert by_name.as_frame().inclusion_probability[["a", "d"]].tolist() == [1, 1]


@pytest.mark.parametrize("options", [KNOWN, {}])
@pytest.mark.parametrize("blocks", [False, True])
def test_moments_are_as_good_as_rows(options, blocks):
    X, y = data()
    X, y = X - X.mean(0), y - y.mean()
    if blocks:  # two parts that are orthogonal
        X[:, 3:] -= X[:, :3] @ np.linalg.lstsq(X[:, :3], X[:, 3:], rcond=None)[0]
    # Blocks are joined in each part: with them those of the rows may be others.
    options = {"unpenalised": [1, 4], "standardize": False, "blocks": None} | options
    rows = mf.SpikeSlabRegressor(**options).fit(X, y)
    gram = X.T @ X
    if blocks:
        gram = [gram[:3, :3], gram[3:, 3:]]
    ours = mf.SpikeSlabRegressor(**options).fit_moments(gram, X.T @ y, y @ y, len(y))
    for name in ("coef_", "coef_var_", "inclusion_probability_", "noise_variance_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(rows, name), rtol=2e-3, atol=1e-5)
    assert ours.log_evidence_ == pytest.approx(rows.log_evidence_, rel=1e-3)
    for mine, theirs in zip(*(m.predict(X, return_std=True) for m in (ours, rows)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3)


def test_weights_averages_and_files(tmp_path):
    X, y = data()
    counts = np.random.default_rng(0).integers(1, 4, 30)
    check(
        mf.SpikeSlabRegressor(unpenalised=[1], standardize=False, **KNOWN).fit(X, y, counts),
        exact(X, y, [1], np.full(6, 0.3), weights=counts, standardize=False),
    )
    fitted = mf.SpikeSlabRegressor(unpenalised=[1], average_parameters=True).fit(X, y)
    fitted.save(tmp_path / "fit.npz")
    loaded = mf.SpikeSlabRegressor.load(tmp_path / "fit.npz")
    for a, b in zip(*(m.predict(X, return_std=True) for m in (fitted, loaded)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_units_of_flat_columns_do_not_matter(unit):
    X, y = data()
    units = np.array([1, unit, 1, 1, 1, 1])
    plain = mf.SpikeSlabRegressor(unpenalised=[1], standardize=False, **KNOWN).fit(X, y)
    ours = mf.SpikeSlabRegressor(unpenalised=[1], standardize=False, **KNOWN).fit(X * units, y)
    np.testing.assert_allclose(ours.coef_ * units, plain.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.coef_var_ * units**2, plain.coef_var_, rtol=1e-6)


def test_dependent_and_too_many_columns():
    X, y = data()
    twice = np.concatenate([X, X[:, :1] * 2 + 1, np.ones((30, 1))], axis=1)
    with pytest.warns(UserWarning, match="2 of the 3 unpenalised columns are constant"):
        fitted = mf.SpikeSlabRegressor(unpenalised=[0, 6, 7], **KNOWN).fit(twice, y)
    one = mf.SpikeSlabRegressor(unpenalised=[0], **KNOWN).fit(X, y)
    np.testing.assert_allclose(fitted.coef_[1:6], one.coef_[1:], atol=1e-9)
    np.testing.assert_allclose(fitted.predict(twice), one.predict(X), atol=1e-8)
    with pytest.raises(ValueError, match="5 rows are explained by 4 unpenalised columns alone"):
        mf.SpikeSlabRegressor(unpenalised=[0, 1, 2, 3], **KNOWN).fit(X[:5], y[:5])
    # A feature that is a combination of unpenalised ones says nothing more.
    with_copy = np.concatenate([X, X[:, :1] + X[:, 1:2]], axis=1)
    fitted = mf.SpikeSlabRegressor(unpenalised=[0, 1], **KNOWN).fit(with_copy, y)
    assert fitted.coef_[6] == fitted.inclusion_probability_[6] == 0


@pytest.mark.parametrize("estimator", [mf.SpikeSlabRegressor, mf.SpikeSlabClassifier])
@pytest.mark.parametrize(
    "columns, message",
    [
        (["a"], "their names in a data"),
        ([6], "numbers of columns below 6"),
        ([0.5], "numbers of columns below 6"),
        (3, "not a list"),
        ([True, False], "or a mask, got"),
        (list(range(6)), "must leave a feature"),
    ],
)
def test_bad_columns(estimator, columns, message):
    X, y = data()
    y = y if estimator is mf.SpikeSlabRegressor else y > y.mean()
    with pytest.raises(ValueError, match=message):
        estimator(unpenalised=columns).fit(X, y)


# --- prior inclusion probabilities --------------------------------------------------------------

EACH = np.array([0.0, 1.0, 0.9, 0.5, 0.02, 0.1])


def test_inclusion_of_each_feature_against_enumeration():
    X, y = data()
    fitted = mf.SpikeSlabRegressor(**KNOWN | {"inclusion_probability": EACH}).fit(X, y)
    check(fitted, exact(X, y, [], EACH))
    assert fitted.inclusion_probability_[0] == 0 and fitted.coef_[0] == 0
    assert fitted.inclusion_probability_[1] == 1
    np.testing.assert_allclose(fitted.prior_inclusion_, EACH, atol=1e-12)
    equal = mf.SpikeSlabRegressor(**KNOWN | {"inclusion_probability": np.full(6, 0.3)}).fit(X, y)
    plain = mf.SpikeSlabRegressor(**KNOWN).fit(X, y)
    np.testing.assert_allclose(equal.coef_, plain.coef_, atol=1e-9)
    assert equal.log_evidence_ == pytest.approx(plain.log_evidence_)
    both = mf.SpikeSlabRegressor(
        unpenalised=[0], **KNOWN | {"inclusion_probability": EACH}
    ).fit(X, y)  # fmt: skip
    check(both, exact(X, y, [0], EACH))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"inclusion_probability": [0.1, 0.2]}, "must be a number or have shape"),
        ({"inclusion_probability": EACH + 0.1}, "between 0 and 1"),
        ({"inclusion_probability": EACH * np.nan}, "between 0 and 1"),
        ({"inclusion_probability": 0 * EACH}, "above 0 for some feature"),
        ({"inclusion_probability": EACH, "groups": [0] * 6}, "groups are for"),
    ],
)
def test_bad_inclusions(options, message):
    X, y = data()
    with pytest.raises(ValueError, match=message):
        mf.SpikeSlabRegressor(**options).fit(X, y)


# --- classes ------------------------------------------------------------------------------------


def posterior_of_probit(X, y, flat, inclusion, precision=1e-4, n_draws=400_000):
    """Moments by importance sampling from the Gaussian about the mode of each pattern."""
    from scipy.optimize import minimize
    from scipy.special import log_ndtr

    n, p = X.shape
    Z = (X - X.mean(0)) / X.std(0)
    D = np.concatenate([Z, np.ones((n, 1))], axis=1) * np.where(y, 1, -1)[:, None]
    free, rng = [k for k in range(p) if k not in flat], np.random.default_rng(0)
    totals, log_weights = [], []
    for pattern in itertools.product([False, True], repeat=len(free)):
        own = sorted([*np.array(free)[list(pattern)], *flat, p])
        prior = np.array([precision if k in flat else 0.01 if k == p else 1.0 for k in own])

        def minus(w, own=own, prior=prior):
            return (w * w * prior).sum() / 2 - log_ndtr(D[:, own] @ w).sum()

        mode = minimize(minus, np.zeros(len(own))).x
        t = D[:, own] @ mode
        ratio = np.exp(-t * t / 2 - log_ndtr(t)) / np.sqrt(2 * np.pi)
        A = (D[:, own].T * (ratio * (ratio + t))) @ D[:, own] + np.diag(prior)
        L = linalg.cholesky(A, lower=True)
        e = rng.standard_t(8, size=(n_draws // 32, len(own)))
        w = mode + linalg.solve_triangular(L, e.T, trans=1, lower=True).T
        values = log_ndtr(w @ D[:, own].T).sum(1) - (w * w * prior).sum(1) / 2
        from scipy.stats import t as student

        values -= student.logpdf(e, 8).sum(1) + np.log(L.diagonal()).sum()
        values += np.log(prior).sum() / 2 - len(own) * np.log(2 * np.pi) / 2
        odds = np.log(inclusion / (1 - inclusion)) * sum(pattern)
        top = values.max()
        weight = np.exp(values - top)
        log_weights.append(top + np.log(weight.mean()) + odds)
        moments = np.zeros((3, p))
        inner = [k for k in own if k < p]
        m = weight @ w / weight.sum()
        s = weight @ w**2 / weight.sum()
        moments[:, inner] = [
            m[: len(inner)], s[: len(inner)], np.ones(len(inner))
        ]  # fmt: skip
        totals.append(moments)
    probability = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    mean, square, included = np.tensordot(probability, np.array(totals), 1)
    return mean / X.std(0), np.sqrt(square - mean**2) / X.std(0), included


def test_flat_columns_of_classes():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 4)) * [1, 3, 1, 1]
    y = X[:, 0] + 0.3 * X[:, 1] + rng.normal(size=80) > 0
    fitted = mf.SpikeSlabClassifier(
        slab_variance=1.0, inclusion_probability=0.2, unpenalised=[1]
    ).fit(X, y)  # fmt: skip
    mean, deviation, included = posterior_of_probit(X, y, [1], 0.2)
    np.testing.assert_allclose(fitted.coef_[0], mean, atol=0.03)
    np.testing.assert_allclose(np.sqrt(fitted.coef_var_[0]), deviation, rtol=0.1, atol=0.01)
    np.testing.assert_allclose(fitted.inclusion_probability_, included, atol=0.03)
    assert fitted.inclusion_probability_[1] == 1
    probability = fitted.predict_proba(X)[:, 1]
    assert ((probability > 0.5) == y).mean() > 0.8


def test_flat_columns_that_correlate_with_others_are_in_no_block():
    rng = np.random.default_rng(9)
    X = rng.normal(size=(80, 5))
    X[:, 1] = 0.7 * X[:, 0] + 0.7 * X[:, 1]
    X[:, 3] = 0.8 * X[:, 2] + 0.6 * X[:, 3]
    y = X[:, 0] + 0.5 * X[:, 1] + 0.8 * X[:, 2] + rng.normal(size=80) > 0
    fitted = mf.SpikeSlabClassifier(
        slab_variance=1.0, inclusion_probability=0.2, unpenalised=[0]
    ).fit(X, y)  # fmt: skip
    included = posterior_of_probit(X, y, [0], 0.2)[2]
    assert 0.1 < included[1] < 0.9
    np.testing.assert_allclose(fitted.inclusion_probability_, included, atol=0.03)
    assert fitted.blocks_[2] == fitted.blocks_[3]
    assert list(fitted.blocks_).count(fitted.blocks_[0]) == 1


def test_a_flat_column_that_separates_the_classes():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 4))
    fitted = mf.SpikeSlabClassifier(
        slab_variance=1.0, inclusion_probability=0.2, unpenalised=[1]
    ).fit(X, X[:, 1] > 0)  # fmt: skip
    assert np.isfinite(fitted.coef_).all() and fitted.coef_[0, 1] > 1
    each = mf.SpikeSlabClassifier(
        slab_variance=1.0, inclusion_probability=[0.0, 1.0, 0.1, 0.1]
    ).fit(X, X[:, 1] > 0)  # fmt: skip
    np.testing.assert_array_equal(each.inclusion_probability_[:2].round(9), [0, 1])
    assert each.coef_[0, 0] == 0
