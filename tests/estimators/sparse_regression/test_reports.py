"""Intervals, joint inclusion and draws, against enumeration."""

import numpy as np
import pytest
from kernel_cases import regression
from scipy.stats import norm

import fastmf as mf

KNOWN = {"noise_variance": 0.5, "slab_variance": 1.0, "inclusion_probability": 0.2}
pytestmark = pytest.mark.usefixtures("fine")


def data(kind="copies", n=40):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 7))
    if kind == "copies":
        X[:, 1], X[:, 3] = X[:, 0], -X[:, 2]
    if kind == "correlated":
        X[:, 1:4] = 0.9 * X[:, :1] + 0.45 * X[:, 1:4]
    return X, X[:, 0] + 0.35 * X[:, 4] + 0.7 * rng.normal(size=n)


def enumerated(X, y):
    """Patterns, their probabilities, means and second moments of standardised features."""
    Z, prior = (X - X.mean(0)) / X.std(0), mf.GaussBernoulli(np.zeros(7), 1.0, np.log(0.2 / 0.8))
    model = mf.SparseLinearModel(Z, y - y.mean(), 0.5, prior)
    patterns, weights, means, seconds = regression.enumerated(model)
    return patterns > 0, np.exp(weights - np.logaddexp.reduce(weights)), means, seconds


@pytest.mark.parametrize(
    ("kind", "moments"),
    [("independent", False), ("copies", False), ("correlated", False), ("copies", True)],
)
def test_draws_against_enumeration(kind, moments):
    X, y = data(kind)
    patterns, probability, means, seconds = enumerated(X, y)
    model, scale = mf.SpikeSlabRegressor(**KNOWN), X.std(0)
    if moments:
        X, y, scale = (X - X.mean(0)) / X.std(0), y - y.mean(), 1.0
        model.fit_moments(X.T @ X, X.T @ y, y @ y, 40)
    else:
        model.fit(X, y)
    draws = model.sample_coefficients(2500, np.random.default_rng(0)) * scale
    np.testing.assert_allclose(draws.mean(0), probability @ means, atol=0.04)
    second = np.tensordot(probability, seconds, 1)
    np.testing.assert_allclose(draws.T @ draws / 2500, second, atol=0.06)
    z = (draws != 0).astype(float)
    np.testing.assert_allclose(z.T @ z / 2500, (patterns.T * probability) @ patterns, atol=0.035)


@pytest.mark.parametrize("kind", ["independent", "copies", "correlated"])
def test_joint_inclusion_against_enumeration(kind):
    X, y = data(kind)
    patterns, probability, *_ = enumerated(X, y)
    model = mf.SpikeSlabRegressor(**KNOWN).fit(X, y)
    for features in ([0], [0, 1], [1, 2, 3], [4, 5], list(range(7)), [5, 6]):
        exact = probability @ patterns[:, features].any(1)
        assert model.group_inclusion_probability(features) == pytest.approx(exact, abs=0.02)
    # Blocks that separate what is correlated: patterns are joint all the same.
    for blocks in (None, [0, 1, 0, 1, 2, 3, 4]) if kind == "correlated" else ():
        exact, other = probability @ patterns[:, :2].any(1), mf.SpikeSlabRegressor(blocks=blocks)
        other.set_params(**KNOWN).fit(X, y)
        assert other.group_inclusion_probability([0, 1]) == pytest.approx(exact, abs=0.03)
    mask = np.isin(np.arange(7), [0, 1])
    assert model.group_inclusion_probability(mask) == model.group_inclusion_probability([1, 0])
    with pytest.raises(ValueError, match="at least one feature"):
        model.group_inclusion_probability([])
    with pytest.raises(ValueError, match="features must be numbers of columns below 7"):
        model.group_inclusion_probability([7])


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_intervals_are_quantiles_of_the_mixture(coverage):
    X, y = data("independent")
    patterns, probability, means, seconds = enumerated(X, y)
    model = mf.SpikeSlabRegressor(**KNOWN).fit(X, y)
    low, high = model.coefficient_interval(coverage)

    def distribution(j, x):
        z = patterns[:, j]
        deviation = np.sqrt(seconds[z, j, j] - means[z, j] ** 2)
        slab = norm.cdf((x * X[:, j].std() - means[z, j]) / deviation)
        return probability[z] @ slab + probability[~z].sum() * (x >= 0)

    for j in range(7):
        for tail, x in (((1 - coverage) / 2, low[j]), ((1 + coverage) / 2, high[j])):
            # The distribution function jumps at 0.
            assert distribution(j, x - 1e-9) <= tail + 0.01
            assert distribution(j, x) >= tail - 0.01
    assert (low <= high).all()


def test_intervals_at_extremes():
    X, y = data("independent")
    options = KNOWN | {"inclusion_probability": [0.0, 1.0, 0.2, 0.2, 0.2, 0.2, 0.2]}
    model = mf.SpikeSlabRegressor(unpenalised=[2], **options).fit(X, y)
    low, high = model.coefficient_interval()
    assert low[0] == high[0] == 0
    half = 1.959964 * np.sqrt(model.coef_var_[1:3])
    np.testing.assert_allclose(high[1:3] - model.coef_[1:3], half, rtol=1e-5)
    np.testing.assert_allclose(model.coef_[1:3] - low[1:3], half, rtol=1e-5)
    for coverage in (0, 1, 1.5, -1):
        with pytest.raises(ValueError, match="coverage must be"):
            model.coefficient_interval(coverage)


def test_draws_of_flat_columns():
    X, y = data("independent")
    model = mf.SpikeSlabRegressor(unpenalised=[0, 5], **KNOWN).fit(X * 3, y)
    draws = model.sample_coefficients(4000, 1)
    np.testing.assert_allclose(draws.mean(0), model.coef_, atol=0.015)
    np.testing.assert_allclose(draws.std(0), np.sqrt(model.coef_var_), rtol=0.1, atol=0.005)
    assert (draws[:, [0, 5]] != 0).all()
    # Predictions of draws have the predictive deviation, but for that of the noise and constant.
    spread = ((X * 3 - (X * 3).mean(0)) @ draws.T).std(1)
    deviation = model.predict(X * 3, return_std=True)[1]
    np.testing.assert_allclose(spread**2 + 0.5 * (1 + 1 / 40), deviation**2, rtol=0.1)


def test_draws_of_classes():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 5))
    y = X[:, 0] + 0.7 * rng.normal(size=60) > 0
    model = mf.SpikeSlabClassifier(
        slab_variance=1.0, inclusion_probability=0.2, unpenalised=[4]
    ).fit(X, y)  # fmt: skip
    draws = model.sample_coefficients(600, 3)
    np.testing.assert_allclose(draws.mean(0), model.coef_[0], atol=0.06)
    np.testing.assert_allclose((draws != 0).mean(0), model.inclusion_probability_, atol=0.05)
    assert model.group_inclusion_probability([0, 1]) > 0.99
    low, _ = model.coefficient_interval()
    assert low.shape == (1, 5) and low[0, 0] > 0
    assert [list(found.features) for found in model.credible_sets()] == [[0]]


def test_averages_and_files(tmp_path):
    X, y = data("copies")
    model = mf.SpikeSlabRegressor(average_parameters=True).fit(X, y)
    draws = model.sample_coefficients(200, 0)
    assert draws.shape == (200, 7)
    deviations = np.sqrt(model.coef_var_)
    assert (abs(draws.mean(0) - model.coef_) < 0.3 * deviations + 0.01).all()
    joint = model.group_inclusion_probability([0, 1])
    assert model.inclusion_probability_[:2].max() <= joint <= 1
    assert [list(np.sort(each.features)) for each in model.credible_sets(0.9)] == [[0, 1]]
    model.save(tmp_path / "fit.npz")
    loaded = mf.SpikeSlabRegressor.load(tmp_path / "fit.npz")
    np.testing.assert_array_equal(
        loaded.sample_coefficients(20, 0), model.sample_coefficients(20, 0)
    )
    assert loaded.group_inclusion_probability([0, 1]) == joint


def test_a_fixed_seed_gives_the_same_draws():
    X, y = data()
    model = mf.SpikeSlabRegressor(**KNOWN).fit(X, y)
    first, second = (model.sample_coefficients(50, 7, n_sweeps=3) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    for n, error in ((0, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match="n must be"):
            model.sample_coefficients(n, 0)


@pytest.mark.parametrize("kind", [mf.SpikeSlabRegressor, mf.SpikeSlabClassifier])
def test_constant_columns_have_no_effect(kind):
    X, y = data()
    X[:, 2] = 3.0
    model = kind(unpenalised=[6]).fit(X, y if kind is mf.SpikeSlabRegressor else y > 0)
    coef, var = np.ravel(model.coef_), np.ravel(model.coef_var_)
    assert model.inclusion_probability_[2] == coef[2] == var[2] == 0
    assert model.inclusion_probability_[6] == 1 and coef[6] != 0
    assert not model.sample_coefficients(50, 0)[:, 2].any()
    assert model.group_inclusion_probability([2]) == 0
