import itertools
import tracemalloc

import numpy as np
import pytest
from scipy.special import expit, ndtr
from sklearn.base import clone

import fastmf as mf


def data(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 2 * X[:, 0] - X[:, 1] + rng.normal(size=n) > 0, rng


# Likelihoods, and slab variances of equal effects.
LINKS = pytest.mark.parametrize(
    "likelihood, link, slab", [("probit", ndtr, 2.0), ("logit", expit, 6.0)]
)


def exact(X, signs, slab, inclusion, rows, link):
    """Evidence, means, inclusion and predictive probabilities: patterns times quadrature."""
    d = X.shape[1]
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    total, mean, included, ahead = 0.0, np.zeros(d), np.zeros(d), np.zeros(len(rows))
    for pattern in itertools.product([0, 1], repeat=d):
        z = np.array(pattern, bool)
        k = z.sum()
        grid = np.zeros((len(nodes) ** k, d))
        grid[:, z] = np.sqrt(slab) * np.array(list(itertools.product(nodes, repeat=k)))
        weight = np.array(list(itertools.product(weights / weights.sum(), repeat=k))).prod(1)
        weight = (
            weight * inclusion**k * (1 - inclusion) ** (d - k) * link(grid @ X.T * signs).prod(1)
        )
        total += weight.sum()
        mean += weight @ grid
        included += weight.sum() * z
        ahead += weight @ link(grid @ rows.T)
    return np.log(total), mean / total, included / total, ahead / total


# What expectation propagation itself is off: little without spikes, more with two kinds of factors
# that are not Gaussian. Deviations of the coefficients are about 0.7 (probit) and 1.2 (logit).
@LINKS
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("inclusion, close", [(1 - 1e-9, 0.01), (0.4, 0.04)])
def test_known_hyperparameters_against_enumeration(inclusion, close, seed, likelihood, link, slab):
    X, y, rng = data(12, 3, seed)
    rows = rng.normal(size=(5, 3))
    fitted = mf.SpikeSlabClassifier(
        likelihood=likelihood, slab_variance=slab, inclusion_probability=inclusion,
        fit_intercept=False, standardize=False,
    ).fit(X, y)  # fmt: skip
    signs = np.where(y, 1.0, -1.0)
    evidence, mean, included, ahead = exact(X, signs, slab, inclusion, rows, link)
    np.testing.assert_allclose(fitted.log_evidence_, evidence, atol=0.07)
    np.testing.assert_allclose(fitted.coef_[0], mean, atol=np.sqrt(2 * slab) * close)
    np.testing.assert_allclose(fitted.inclusion_probability_, included, atol=close)
    np.testing.assert_allclose(fitted.predict_proba(rows)[:, 1], ahead, atol=0.01 + close)


def test_draws_with_a_logit_likelihood_against_enumeration():
    X, y, rng = data(12, 3, 1)
    rows = rng.normal(size=(5, 3))
    fitted = mf.SpikeSlabClassifier(
        likelihood="logit", slab_variance=6.0, inclusion_probability=0.4, fit_intercept=False,
        standardize=False,
    ).fit(X, y)  # fmt: skip
    draws = fitted.sample_coefficients(2000, 0, n_sweeps=60)
    _, mean, included, ahead = exact(X, np.where(y, 1.0, -1.0), 6.0, 0.4, rows, expit)
    error = draws.std(0) / np.sqrt(len(draws))
    assert (abs(draws.mean(0) - mean) < 4 * error).all()
    np.testing.assert_allclose((draws != 0).mean(0), included, atol=0.045)
    np.testing.assert_allclose(expit(draws @ rows.T).mean(0), ahead, atol=0.02)


@pytest.mark.parametrize("n, d", [(80, 6), (60, 90)])
def test_a_logit_likelihood_of_two_schedules_and_scales(n, d, fine):
    X, y, _ = data(n, d)
    options = dict(likelihood="logit", slab_variance=6.0, inclusion_probability=0.2, blocks=None)
    one, other = (mf.SpikeSlabClassifier(solver=s, **options) for s in ("parallel", "sequential"))
    one.fit(X, y), other.fit(X * np.logspace(-3, 3, d), ~y)
    np.testing.assert_allclose(one.log_evidence_, other.log_evidence_, atol=1e-4)
    logit = one.decision_function(X)
    np.testing.assert_allclose(
        other.decision_function(X * np.logspace(-3, 3, d)), -logit, atol=1e-4
    )
    np.testing.assert_allclose(one.predict_proba(X)[:, 1], expit(logit))
    # Far from the data the scores depend on the direction alone.
    far, farther = (one.decision_function(scale * X[:5]) for scale in (1e6, 1e9))
    np.testing.assert_allclose(far, farther, rtol=1e-4)


@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_separable_classes_have_finite_coefficients(likelihood, tmp_path):
    X, _, _ = data(40, 5)
    y = X[:, 0] > 0
    options = dict(slab_variance=100.0, inclusion_probability=0.2)
    fitted = mf.SpikeSlabClassifier(likelihood=likelihood, **options).fit(X, y)
    assert np.isfinite(fitted.coef_).all() and fitted.inclusion_probability_[0] > 0.95
    assert (fitted.predict(X) == y).mean() > 0.9
    fitted.save(tmp_path / "fitted.npz")
    loaded = mf.SpikeSlabClassifier.load(tmp_path / "fitted.npz").set_params(likelihood="probit")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))


def test_an_unknown_likelihood_is_refused():
    with pytest.raises(ValueError, match="likelihood must be one of 'probit', 'logit'"):
        mf.SpikeSlabClassifier(likelihood="cauchit").fit(*data(20, 3)[:2])


def test_without_spikes_it_is_the_textbooks_probit_regression(fine):
    """Rasmussen & Williams (2006), Algorithm 3.5, for a linear kernel, by plain inverses."""
    X, y, _ = data(12, 3)
    rows = X * np.where(y, 1.0, -1.0)[:, None]
    prior = np.linalg.inv(2 * rows @ rows.T + 1e-9 * np.eye(12))
    precision, field = np.full(12, 1e-9), np.zeros(12)
    for _ in range(100):
        for i in range(12):
            covariance = np.linalg.inv(prior + np.diag(precision))
            v, m = covariance[i, i], covariance[i] @ field
            c, b = 1 / v - precision[i], m / v - field[i]
            m, v = b / c, 1 / c
            z = m / np.sqrt(1 + v)
            hazard = np.exp(-z * z / 2) / np.sqrt(2 * np.pi) / ndtr(z)
            mean = m + v * hazard / np.sqrt(1 + v)
            var = v - v * v * hazard / (1 + v) * (z + hazard)
            precision[i], field[i] = 1 / var - c, mean / var - b
    expected = (
        2 * rows.T @ np.linalg.solve(2 * rows @ rows.T + np.diag(1 / precision), field / precision)
    )
    fitted = mf.SpikeSlabClassifier(
        slab_variance=2.0, inclusion_probability=1 - 1e-12, fit_intercept=False, standardize=False,
    ).fit(X, y)  # fmt: skip
    np.testing.assert_allclose(fitted.coef_[0], expected, atol=1e-5)


def test_learning_finds_the_features_and_good_probabilities():
    X, y, _ = data(400, 60)
    names = np.where(y, "yes", "no")
    fitted = mf.SpikeSlabClassifier().fit(X[:150].astype(np.float32), names[:150])
    np.testing.assert_array_equal(np.flatnonzero(fitted.inclusion_probability_ > 0.5), [0, 1])
    np.testing.assert_allclose(fitted.coef_[0, :2] / fitted.coef_[0, 0], [1, -0.5], atol=0.2)
    assert list(fitted.classes_) == ["no", "yes"]
    p = fitted.predict_proba(X[150:])
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_array_equal(fitted.classes_[p.argmax(1)], fitted.predict(X[150:]))
    # The coefficients that made the data say this at best.
    best = ndtr(2 * X[150:, 0] - X[150:, 1])
    loss, least = (-np.log(np.where(y[150:], q, 1 - q)).mean() for q in (p[:, 1], best))
    assert least - 0.03 < loss < least + 0.05


def test_three_classes_are_refused():
    X, _, rng = data(30, 3)
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        mf.SpikeSlabClassifier().fit(X, rng.integers(3, size=30))


@pytest.mark.parametrize("intercept", [True, False])
def test_predictions_are_of_the_fit(intercept):
    """A parameter that is set afterwards waits for the next one."""
    X, y, _ = data(30, 3)
    options = dict(slab_variance=2.0, inclusion_probability=0.3)
    fitted = mf.SpikeSlabClassifier(fit_intercept=intercept, **options).fit(X, y)
    before = fitted.predict_proba(X)
    after = fitted.set_params(fit_intercept=not intercept).predict_proba(X)
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    "weights, message",
    [
        (np.full(30, -1.0), "at least 0"),
        (np.zeros(30), "positive for some row|non-zero"),
        (np.ones(29), "sample_weight.shape"),
        (np.full(30, 1e18), "must add up to between"),
    ],
)
def test_weights_that_are_no_numbers_of_rows(weights, message):
    X, y, _ = data(30, 6)
    with pytest.raises(ValueError, match=message):
        mf.SpikeSlabClassifier(solver="sequential").fit(X, y, sample_weight=weights)


def test_memory_does_not_grow_with_the_square_of_the_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 5))
    y = X[:, 0] + rng.normal(size=4000) > 0
    mf.SpikeSlabClassifier().fit(X[:200], y[:200]).predict_proba(X[:5])  # compiles
    tracemalloc.start()
    try:
        mf.SpikeSlabClassifier().fit(X, y).predict_proba(X)
        # A matrix of rows takes eight times as much.
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("n, d, blocks", [(30, 6, "auto"), (12, 30, None), (80, 4, None)])
@pytest.mark.parametrize("whole", [True, False])
@LINKS
def test_weights_are_numbers_of_equal_rows(n, d, blocks, whole, fine, likelihood, link, slab):
    # Two equal rows of weights 0.3 and 0.7 are one row, and of 2.3 and 1.7 are four.
    X, y, rng = data(n, d)
    X[:, 1] = X[:, 0] + 0.2 * X[:, 1]
    copies = np.where(rng.random(n) < 0.5, 1, 4)
    split = copies - 1 if whole else np.where(copies == 1, 0.3, 2.3)
    weights = np.concatenate([split, copies - split, np.zeros(3)])
    options = dict(likelihood=likelihood, slab_variance=slab / 2, inclusion_probability=0.3)
    options |= dict(blocks=blocks)
    repeated = np.repeat(X, copies, 0), np.repeat(y, copies)
    repeated = mf.SpikeSlabClassifier(**options).fit(*repeated)
    rows = np.concatenate([X, X, 9 * X[:3]]), np.concatenate([y, y, y[:3]])
    weighted = mf.SpikeSlabClassifier(**options).fit(*rows, sample_weight=weights)
    for name in ("coef_", "coef_var_", "intercept_", "inclusion_probability_", "log_evidence_"):
        found, expected = getattr(weighted, name), getattr(repeated, name)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7, err_msg=name)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-7)


def test_learned_parameters_with_fractional_weights():
    X, y, _ = data(100, 5)
    weights = np.concatenate([np.full(100, 0.25), np.full(100, 0.75)])
    model = mf.SpikeSlabClassifier(inclusion_probability=0.2)
    once = clone(model).fit(X, y)
    twice = model.fit(np.concatenate([X, X]), np.concatenate([y, y]), sample_weight=weights)
    np.testing.assert_allclose(twice.slab_variance_, once.slab_variance_, rtol=0.02)
    np.testing.assert_allclose(twice.log_evidence_, once.log_evidence_, atol=2e-3)
    np.testing.assert_allclose(twice.predict_proba(X), once.predict_proba(X), atol=2e-3)


def test_blocks_of_weighted_rows_are_those_of_repeated_rows():
    """Extrapolated steps count a row as often as it is there, so that fits take the same way."""
    rng = np.random.default_rng([5, 3])
    X = rng.normal(size=(25, 40))
    X[:, 1] = 0.9 * X[:, 0] + 0.4 * X[:, 1]
    y = X[:, 0] + 0.7 * X[:, 2] + rng.normal(size=25) > 0
    weights = rng.integers(1, 3, 25)
    repeated = mf.SpikeSlabClassifier().fit(np.repeat(X, weights, 0), np.repeat(y, weights))
    weighted = mf.SpikeSlabClassifier().fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(weighted.blocks_, repeated.blocks_)
    np.testing.assert_allclose(weighted.slab_variance_, repeated.slab_variance_, rtol=0.02)
    np.testing.assert_allclose(weighted.log_evidence_, repeated.log_evidence_, atol=2e-3)
    found, expected = weighted.inclusion_probability_, repeated.inclusion_probability_
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_rows_of_large_weights_are_not_repeated():
    """A million times 25 rows would not fit into memory."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(25, 4)), rng.random(25) < 0.5
    model = mf.SpikeSlabClassifier(slab_variance=1.0, inclusion_probability=0.3)
    model.fit(X, y, sample_weight=np.full(25, 10**6))
    assert np.isfinite(model.coef_).all() and len(model._rows) == 25


def test_draws_of_weighted_rows_are_those_of_repeated_rows():
    X, y, rng = data(30, 3)
    weights, model = rng.integers(1, 4, 30), mf.SpikeSlabClassifier(slab_variance=1.0)
    draws = model.fit(X, y, sample_weight=weights).sample_coefficients(300, 0)
    model.fit(np.repeat(X, weights, 0), np.repeat(y, weights))
    expected = model.sample_coefficients(300, 1)
    error = np.sqrt((draws.var(0) + expected.var(0)) / 300)
    assert (abs(draws.mean(0) - expected.mean(0)) < 4 * error).all()


def test_a_state_without_an_evidence_is_not_returned():
    rng = np.random.default_rng(103)
    X = rng.normal(size=(40, 60))
    for j in range(1, 60):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    w = np.zeros(60)
    w[rng.choice(60, 4, False)] = rng.normal(size=4) * 2
    y = X @ w + 0.5 * rng.normal(size=40) > 0
    model = mf.SpikeSlabClassifier(slab_variance=10.0, inclusion_probability=0.05).fit(X, y)
    drawn = (model.sample_coefficients(40, rng=0) != 0).reshape(-1, 60).mean(0)
    # With blocks, no step leaves a proper state, and inclusions are off by 0.96.
    assert np.isfinite(model.log_evidence_)
    assert abs(model.inclusion_probability_ - drawn).max() < 0.3


def test_class_weights_are_weights_of_rows():
    X, y, _ = data(60, 5)
    y = y & (X[:, 0] > 0.5)
    options = dict(slab_variance=1.0, inclusion_probability=0.3)
    balanced = mf.SpikeSlabClassifier(class_weight="balanced", **options).fit(X, y)
    weights = np.where(y, 30 / y.sum(), 30 / (~y).sum())
    rows = mf.SpikeSlabClassifier(**options).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(balanced.coef_, rows.coef_)
    plain = mf.SpikeSlabClassifier(**options).fit(X, y)
    assert balanced.intercept_ > plain.intercept_
    by_class = mf.SpikeSlabClassifier(class_weight={True: 2}, **options).fit(X, y)
    rows = mf.SpikeSlabClassifier(**options).fit(X, y, sample_weight=1 + y)
    np.testing.assert_array_equal(by_class.coef_, rows.coef_)


def test_limits_of_weights(tmp_path):
    X, y, rng = data(30, 6)
    options = dict(slab_variance=1.0, inclusion_probability=0.3)
    for solver in ("sequential", "convergent"):
        with pytest.raises(ValueError, match="solver must be"):
            mf.SpikeSlabClassifier(solver=solver).fit(X, y, sample_weight=2)
    model = mf.SpikeSlabClassifier(**options).fit(X, y, sample_weight=0.5)
    with pytest.raises(ValueError, match="whole numbers"):
        model.sample_coefficients(2, rng)
    model.save(tmp_path / "model.npz")
    loaded = mf.SpikeSlabClassifier.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.credible_sets() is not None
    with pytest.raises(ValueError, match="whole numbers"):
        loaded.sample_coefficients(2, rng)


def test_drawing_from_rows_beyond_the_memory_is_refused():
    model = mf.SpikeSlabClassifier(slab_variance=1.0)
    model.fit(np.arange(4.0)[:, None], [0, 1, 0, 1], [1e13, 1e13, 2e13, 1e13])
    with pytest.raises(MemoryError, match="divide the weights"):
        model.sample_coefficients(2, rng=0)
