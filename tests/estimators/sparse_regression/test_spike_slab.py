import re
import tracemalloc

import numpy as np
import pytest
import scipy.stats
from kernel_cases.regression import exact, problem
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge

import fastmf as mf

KNOWN = {"noise_variance": 0.09, "slab_variance": 1.0, "inclusion_probability": 0.3}


def test_known_hyperparameters_against_enumeration(fine):
    model, _ = problem(20, 8)
    fitted = mf.SpikeSlabRegressor(fit_intercept=False, standardize=False, **KNOWN)
    fitted.fit(model.X, model.y)
    evidence, mean, deviation, included = exact(model)
    np.testing.assert_allclose(fitted.coef_, mean, atol=0.01)
    np.testing.assert_allclose(np.sqrt(fitted.coef_var_), deviation, atol=0.02)
    np.testing.assert_allclose(fitted.inclusion_probability_, included, atol=0.02)
    np.testing.assert_allclose(fitted.log_evidence_, evidence, rtol=0.01)
    assert fitted.intercept_ == 0


def test_units_of_features_and_targets_do_not_matter():
    model, _ = problem(40, 15)
    plain = mf.SpikeSlabRegressor().fit(model.X, model.y)
    shift, scale = np.arange(15.0), np.exp(np.arange(15.0) / 3)
    other = mf.SpikeSlabRegressor().fit(model.X * scale + shift, 100 * model.y - 7)
    np.testing.assert_allclose(other.coef_ * scale / 100, plain.coef_, atol=1e-4)
    np.testing.assert_allclose(
        other.inclusion_probability_, plain.inclusion_probability_, atol=1e-4
    )
    predicted = other.predict(model.X * scale + shift)
    np.testing.assert_allclose(predicted, 100 * plain.predict(model.X) - 7, atol=0.02)
    np.testing.assert_allclose(
        other.log_evidence_ + 40 * np.log(100), plain.log_evidence_, rtol=1e-4
    )
    np.testing.assert_allclose(other.noise_variance_, 1e4 * plain.noise_variance_, rtol=1e-2)


@pytest.mark.parametrize("estimator", [mf.SpikeSlabRegressor, mf.SpikeSlabClassifier])
def test_units_without_an_intercept_are_root_mean_squares(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) + [1e5, 0, 2]
    y = 3e-5 * X[:, 0] + X[:, 1] + rng.normal(size=60) / 10
    y, scale = y if estimator is mf.SpikeSlabRegressor else y > 3, np.sqrt(np.square(X).mean(0))
    fitted = estimator(fit_intercept=False).fit(X, y)
    scaled = estimator(fit_intercept=False, standardize=False).fit(X / scale, y)
    np.testing.assert_allclose(np.ravel(fitted.coef_) * scale, np.ravel(scaled.coef_), rtol=1e-6)
    assert fitted.inclusion_probability_[1] > 0.99


@pytest.mark.parametrize("shape", [(30, 5), (15, 80)])
def test_predictive_deviation_is_that_of_ridge_for_certain_slabs(shape, fine):
    """With all coefficients in the slab the posterior is Gaussian, and known in closed form."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=shape) + 3, rng.normal(size=shape[0]) + 5
    rows = rng.normal(size=(4, shape[1])) + 3
    fitted = mf.SpikeSlabRegressor(
        noise_variance=0.5, slab_variance=2.0, inclusion_probability=1 - 1e-12, standardize=False,
    ).fit(X, y)  # fmt: skip
    mean, deviation = fitted.predict(rows, return_std=True)
    ridge = Ridge(alpha=0.25).fit(X, y)
    np.testing.assert_allclose(mean, ridge.predict(rows), rtol=1e-6)
    centred, rest = X - X.mean(0), rows - X.mean(0)
    covariance = np.linalg.inv(centred.T @ centred / 0.5 + np.eye(shape[1]) / 2)
    var = 0.5 * (1 + 1 / shape[0]) + np.einsum("ij,jk,ik->i", rest, covariance, rest)
    np.testing.assert_allclose(deviation, np.sqrt(var), rtol=1e-6)


def test_groups_learn_their_own_inclusion_probabilities():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 60))
    w = np.where(np.arange(60) < 20, rng.normal(size=60), 0) * (rng.random(60) < 0.8)
    y = X @ w + 0.3 * rng.normal(size=150)
    labels = np.where(np.arange(60) < 20, "likely", "never")
    fitted = mf.SpikeSlabRegressor(groups=labels).fit(X, y)
    likely, never = fitted.prior_inclusion_
    assert likely > 0.5 and never < 0.05


def test_learning_finds_the_sparse_solution():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 100)).astype(np.float32)
    y = 2 * X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=40)
    fitted = mf.SpikeSlabRegressor().fit(X, y)
    np.testing.assert_array_equal(np.flatnonzero(fitted.inclusion_probability_ > 0.5), [3, 7])
    np.testing.assert_allclose(fitted.coef_[[3, 7]], [2, -1], atol=0.05)
    assert 0.005 < fitted.noise_variance_ < 0.02
    # Three hyper-parameters off their maximum cost evidence.
    worse = mf.SpikeSlabRegressor(
        noise_variance=0.05, slab_variance=0.3, inclusion_probability=0.2
    ).fit(X, y)
    assert fitted.log_evidence_ > worse.log_evidence_ + 1


@pytest.mark.parametrize("seed", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_little_noise_is_found(seed):
    # A state of the search must not pass for the fixed point of any smaller noise, too.
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(60, 1000)), np.zeros(1000)
    w[rng.choice(1000, 5, replace=False)] = rng.normal(size=5)
    fitted = mf.SpikeSlabRegressor().fit(X, X @ w + 0.01 * rng.normal(size=60))
    assert 0.5e-4 < fitted.noise_variance_ < 2e-4
    np.testing.assert_array_equal(fitted.inclusion_probability_ > 0.5, w != 0)
    deviations = np.sqrt(fitted.coef_var_[w != 0])
    assert (abs(fitted.coef_ - w)[w != 0] < 4 * deviations).all()


def test_features_that_are_all_constant_say_nothing():
    y = np.random.default_rng(0).normal(size=10)
    fitted = mf.SpikeSlabRegressor().fit(np.ones((10, 2)), y)
    np.testing.assert_array_equal(fitted.coef_, 0)
    np.testing.assert_allclose(fitted.predict(np.ones((3, 2))), y.mean())


def test_what_does_not_converge_warns(one_iteration):
    model, _ = problem(20, 12)  # of up to 11 features the posterior is exact
    with pytest.warns(ConvergenceWarning, match="not converged"):
        mf.SpikeSlabRegressor(solver="parallel", **KNOWN).fit(model.X, model.y)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"noise_variance": 0.0}, ValueError, "noise_variance must be positive"),
        ({"inclusion_probability": 1.0}, ValueError, "inclusion_probability must be positive"),
        ({"slab_variance": "wide"}, TypeError, "slab_variance must be a number"),
        ({"groups": [0, 1]}, ValueError, "groups must have shape"),
        ({"groups": [0.0, np.nan]}, ValueError, "groups must name"),
        ({"groups": [None, "a"] * 4}, TypeError, "groups must be labels of one kind"),
        ({"fit_intercept": "no"}, ValueError, "fit_intercept must be one of True, False"),
        ({"solver": "fast"}, ValueError, "solver must be one of"),
        ({"parameter_prior": "flat"}, ValueError, "parameter_prior must be one of"),
        ({"average_parameters": 2}, ValueError, "average_parameters must be one of"),
    ],
)
def test_bad_options(options, error, message, monkeypatch):
    # They are met before anything is learned.
    monkeypatch.setattr("fastmf.estimators.sparse_regression._spike_slab.maximise_evidence", None)
    model, _ = problem(20, 8)
    with pytest.raises(error, match=message):
        mf.SpikeSlabRegressor(**options).fit(model.X, model.y)


@pytest.mark.parametrize("scale", [(1e200, 1), (1, 1e200)])
def test_values_whose_squares_overflow_are_refused(scale):
    model, _ = problem(20, 8)
    with pytest.raises(ValueError, match="squares are finite"):
        mf.SpikeSlabRegressor().fit(model.X * scale[0], model.y * scale[1])


@pytest.mark.parametrize("value", [3.0, 0.1, 1e6 + 0.1, -1 / 3])
def test_a_constant_target_is_explained_by_the_intercept(value, fine):
    """Also where the mean of equal numbers is another number."""
    model, _ = problem(20, 8)
    fitted = mf.SpikeSlabRegressor().fit(model.X, np.full(20, value))
    mean, deviation = fitted.predict(model.X, return_std=True)
    np.testing.assert_allclose(mean, value, rtol=1e-6)
    assert (fitted.inclusion_probability_ < 0.5).all()
    # Whatever the value, the same noise.
    zero = mf.SpikeSlabRegressor().fit(model.X, np.zeros(20)).predict(model.X, return_std=True)
    np.testing.assert_allclose(deviation, zero[1], rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_constant_feature_is_as_if_it_were_zero(dtype, fine):
    """A sum of many equal numbers has errors that are no spread of the feature."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(2000, 2)), np.full(2000, 0.1)]).astype(dtype)
    y = X[:, 0] + rng.normal(size=2000)
    fitted = mf.SpikeSlabRegressor(**KNOWN).fit(X, y)
    zero = mf.SpikeSlabRegressor(**KNOWN).fit(X * dtype([1, 1, 0]), y)
    np.testing.assert_allclose(fitted.coef_, zero.coef_, atol=1e-9)
    assert fitted.inclusion_probability_[2] == zero.inclusion_probability_[2] == 0
    rows = np.array([[0, 0, 0.1], [1, 1, 1.1]], dtype)
    other = np.array([[0, 0, 0], [1, 1, 1]], dtype)
    for ours, theirs in zip(*(m.predict(r, return_std=True) for m, r in
                              ((fitted, rows), (zero, other))), strict=True):  # fmt: skip
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def weighted_and_repeated(**options):
    """A fit to rows of weights 0 to 3, and one to the rows that these stand for."""
    model, _ = problem(30, 12)
    counts = np.random.default_rng(0).integers(0, 4, 30)
    X, y = model.X + 0.3, model.y.copy()
    y[counts == 0] += 100  # must not be seen
    weighted = mf.SpikeSlabRegressor(**options).fit(X, y, sample_weight=counts)
    rows = np.repeat(np.arange(30), counts)
    return weighted, mf.SpikeSlabRegressor(**options).fit(X[rows], y[rows]), X


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("fixed", [KNOWN, {}])
def test_a_weight_is_a_number_of_equal_rows(fixed, fit_intercept, fine):
    weighted, repeated, X = weighted_and_repeated(fit_intercept=fit_intercept, **fixed)
    rtol = 1e-6 if fixed else 1e-2  # where the search for hyper-parameters stops
    for name in ("coef_", "coef_var_", "intercept_", "inclusion_probability_", "noise_variance_"):
        expected = getattr(repeated, name)
        np.testing.assert_allclose(getattr(weighted, name), expected, rtol=rtol, atol=1e-8)
    assert weighted.log_evidence_ == pytest.approx(repeated.log_evidence_, rel=1e-6)
    for ours, theirs in zip(
        *(m.predict(X, return_std=True) for m in (weighted, repeated)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=rtol)


def test_weights_that_are_all_zero_are_refused():
    model, _ = problem(20, 8)
    with pytest.raises(ValueError, match=r"non-zero|positive"):
        mf.SpikeSlabRegressor(**KNOWN).fit(model.X, model.y, np.zeros(20))


@pytest.mark.parametrize("groups", [None, np.arange(8) // 4])
def test_a_given_inclusion_probability_stays(groups):
    model, _ = problem(20, 8)
    options = {"noise_variance": 0.09, "groups": groups, "inclusion_probability": 0.25}
    fitted = mf.SpikeSlabRegressor(**options).fit(model.X, model.y)
    np.testing.assert_allclose(fitted.prior_inclusion_, 0.25)


# --- units, memory and few rows -----------------------------------------------------------------


@pytest.mark.parametrize("unit", [1e-140, 1e140])
@pytest.mark.parametrize("what", ["X", "y"])
def test_units_of_any_size_do_not_matter(unit, what, fine):
    model, _ = problem(40, 15)
    plain = mf.SpikeSlabRegressor().fit(model.X, model.y)
    units = {"X": 1.0, "y": 1.0} | {what: unit}
    other = mf.SpikeSlabRegressor().fit(model.X * units["X"], model.y * units["y"])
    np.testing.assert_allclose(other.coef_ * units["X"] / units["y"], plain.coef_, rtol=1e-9)
    np.testing.assert_allclose(other.inclusion_probability_, plain.inclusion_probability_)


@pytest.mark.parametrize("unit, remedy", [(1e-170, "multiply"), (1e-310, "multiply"),
                                          (1e160, "divide")])  # fmt: skip
@pytest.mark.parametrize("what", ["X", "y"])
def test_units_whose_squares_are_no_numbers_are_refused(unit, remedy, what):
    model, _ = problem(20, 5)
    units = {"X": 1.0, "y": 1.0} | {what: unit}
    X, y = model.X * units["X"], model.y * units["y"]
    with pytest.raises(ValueError, match=rf"^{what} must have .* in column 0: {remedy} by a const"):
        mf.SpikeSlabRegressor().fit(X, y)
    if what == "X":
        with pytest.raises(ValueError, match=f"{remedy} by a constant"):
            mf.SpikeSlabClassifier().fit(X, model.y > 0)
    with pytest.raises(ValueError, match="y over X"):
        mf.SpikeSlabRegressor().fit(model.X * 1e-100, model.y * 1e100)


def test_predictions_take_rows_by_blocks(monkeypatch):
    model, _ = problem(20, 400)
    fitted = mf.SpikeSlabRegressor().fit(model.X, model.y)
    classes = mf.SpikeSlabClassifier().fit(model.X, model.y > 0)
    rows = np.random.default_rng(1).normal(size=(2000, 400)).astype(np.float32)
    whole = *fitted.predict(rows, return_std=True), classes.decision_function(rows)
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", 40_000)
    tracemalloc.start()
    parts = *fitted.predict(rows, return_std=True), classes.decision_function(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < rows.nbytes  # a copy in double precision takes twice as much
    for found, expected in zip(parts, whole, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_the_noise_of_two_rows_is_not_known():
    X, y = np.random.default_rng(41).normal(size=(2, 5)), np.array([-2.7, -0.8])
    with pytest.warns(UserWarning, match="noise of 2 rows cannot be told .* noise_variance"):
        mf.SpikeSlabRegressor().fit(X, y)
    mf.SpikeSlabRegressor(noise_variance=1.0).fit(X, y)


@pytest.mark.parametrize("estimator", [mf.SpikeSlabRegressor, mf.SpikeSlabClassifier])
def test_advice_is_of_arguments_that_exist(estimator, one_iteration):
    model, _ = problem(30, 20)
    y = model.y + 3 * np.random.default_rng(1).normal(size=30)
    with pytest.warns(ConvergenceWarning, match="Expectation propagation has not conv") as caught:
        estimator(solver="parallel").fit(model.X, y if "R" in
                  estimator.__name__ else y > 0)  # fmt: skip
    advice = str(caught[0].message).partition("): ")[2]
    named = set(re.findall(r"\b[a-z]+_[a-z_]+\b", advice)) | {"solver"}
    assert named >= {"slab_variance", "inclusion_probability"}
    assert named <= set(estimator().get_params())


# --- priors on parameters -----------------------------------------------------------------------


def test_features_of_pure_noise_are_not_called_in():
    """Where the evidence alone has all of them in."""
    for seed in range(3):
        rng = np.random.default_rng([9, seed])
        X, y = rng.normal(size=(60, 100)), rng.normal(size=60)
        assert (mf.SpikeSlabRegressor().fit(X, y).inclusion_probability_ > 0.5).sum() <= 10
    rng = np.random.default_rng([9, 11])
    X, y = rng.normal(size=(60, 100)), rng.normal(size=60)
    assert (mf.SpikeSlabRegressor().fit(X, y).inclusion_probability_ < 0.2).all()
    dense = mf.SpikeSlabRegressor(parameter_prior=None).fit(X, y)
    assert dense.inclusion_probability_.min() > 0.3  # the evidence is flat beyond


@pytest.mark.parametrize("deviation", [1e-2, 1e-4, 1e-5])
def test_noise_of_any_size_is_learned(deviation):
    rng = np.random.default_rng(5)
    X, noise = rng.normal(size=(60, 20)), deviation * rng.normal(size=60)
    fitted = mf.SpikeSlabRegressor().fit(X, X[:, 0] + noise)
    assert fitted.noise_variance_ == pytest.approx(noise.var(), rel=0.1)
    error = abs(fitted.predict(X) - X[:, 0])
    assert error.max() < deviation


def test_no_noise_is_reported():
    X = np.random.default_rng(5).normal(size=(60, 20))
    with pytest.warns(ConvergenceWarning, match="noise variance is on the lower bound.*give noise"):
        mf.SpikeSlabRegressor().fit(X, X[:, 0])


@pytest.mark.slow
def test_noise_of_few_rows_is_not_explained_away():
    learned, drawn = [], []
    for seed in range(12):
        rng = np.random.default_rng([4, seed])
        X, noise = rng.normal(size=(20, 200)), rng.normal(size=20)
        learned.append(mf.SpikeSlabRegressor().fit(X, X[:, 0] + noise).noise_variance_)
        drawn.append(noise.var())
    assert np.median(learned) == pytest.approx(np.median(drawn), rel=0.15)


def test_averages_over_parameters():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 40))
    for y in (X[:, 0] + 2 * rng.normal(size=60), rng.normal(size=60)):
        plain = mf.SpikeSlabRegressor().fit(X, y)
        averaged = mf.SpikeSlabRegressor(average_parameters=True).fit(X, y)
        assert averaged.noise_variance_ == plain.noise_variance_
        assert 0 < abs(averaged.inclusion_probability_ - plain.inclusion_probability_).max() < 0.3
        mean, deviation = averaged.predict(X, return_std=True)
        np.testing.assert_allclose(mean, X @ averaged.coef_ + averaged.intercept_)
        assert (deviation**2 > averaged.noise_variance_).all()
    # Given values have nothing to be averaged.
    given = mf.SpikeSlabRegressor(average_parameters=True, **KNOWN).fit(X, y)
    np.testing.assert_array_equal(given.coef_, mf.SpikeSlabRegressor(**KNOWN).fit(X, y).coef_)
    with pytest.raises(ValueError, match="average_parameters needs a parameter_prior"):
        mf.SpikeSlabRegressor(average_parameters=True, parameter_prior=None).fit(X, y)


@pytest.mark.parametrize(
    "estimator, n_effects, names",
    [
        (mf.SpikeSlabRegressor(), 3, ["noise_variance", "slab_variance", "inclusion_probability"]),
        pytest.param(
            mf.SpikeSlabRegressor(groups=np.arange(90) // 30), 3,
            ["noise_variance", "slab_variance"], marks=pytest.mark.slow,
        ),
        (mf.SpikeSlabClassifier(), 2, ["slab_variance", "inclusion_probability"]),
    ],
    ids=["effects", "groups", "classes"],
)  # fmt: skip
def test_features_that_a_search_begins_without_are_not_missed(estimator, n_effects, names):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 90))
    X[:, 1:] += 0.7 * X[:, :-1]
    y = X[:, ::30][:, :n_effects].sum(1) + 0.7 * rng.normal(size=150)
    y = y if hasattr(estimator, "noise_variance") else (y > 0).astype(int)
    estimator.set_params(parameter_prior=None)
    best = estimator.fit(X, y).log_evidence_
    given = {"inclusion_probability": estimator.prior_inclusion_[0]}
    if estimator.groups is not None:
        given = {"inclusion_probability": estimator.prior_inclusion_[estimator.groups]}
    given |= {name: getattr(estimator, f"{name}_") for name in names if name not in given}
    estimator.set_params(groups=None, **given)
    assert estimator.fit(X, y).log_evidence_ == pytest.approx(best, abs=0.03)  # by blocks
    for name in names:
        for factor in (0.4, 2.5):
            estimator.set_params(**given | {name: factor * given[name]})
            assert estimator.fit(X, y).log_evidence_ < best


@pytest.mark.parametrize("average", [False, True])
def test_progress_of_the_search_is_shown_if_asked_for(average, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 10))
    y = 2 * X[:, 3] + rng.normal(size=40)
    monkeypatch.setattr("fastmf._common.progress.SECONDS", 0.0)
    model = mf.SpikeSlabRegressor(average_parameters=average)
    quiet = model.fit(X, y).coef_
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(model.set_params(verbose=True).fit(X, y).coef_, quiet)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert all("log-evidence with priors" in line for line in lines)
    with pytest.raises(ValueError, match="verbose must be"):
        model.set_params(verbose="yes").fit(X, y)


@pytest.mark.parametrize("missing", [np.nan, None, np.ma.masked])
def test_rows_with_a_missing_target_are_left_out(missing):
    rng = np.random.default_rng(0)
    X, present = rng.normal(size=(60, 20)), rng.random(60) < 0.8
    y, weights = X[:, 3] + 0.2 * rng.normal(size=60), rng.integers(1, 3, 60)
    incomplete = np.ma.masked_array(np.where(present, y, 9.0), ~present)
    incomplete[~present & (y > 0)] = np.nan  # masked or not
    if missing is not np.ma.masked:
        incomplete = np.where(present, y, missing)
    model = mf.SpikeSlabRegressor().fit(X, incomplete, weights)
    expected = mf.SpikeSlabRegressor().fit(X[present], y[present], weights[present])
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-10, atol=1e-14)
    with pytest.raises(ValueError, match="missing values"):
        mf.SpikeSlabRegressor().fit(X, np.full(60, np.nan))


@pytest.mark.parametrize("known", [False, True])
def test_the_evidence_exceeds_the_evidence_of_the_true_effects_alone(known):
    # Features with common factors: fixed points are lost between large and small noise.
    rng = np.random.default_rng(31)
    factors = rng.normal(size=(80, 5)) @ rng.normal(size=(5, 80))
    X = np.sqrt(0.95 / 5) * factors + np.sqrt(0.05) * rng.normal(size=(80, 80))
    y = X[:, ::16] @ rng.normal(size=5) + 0.1 * rng.normal(size=80)
    true = {"noise_variance": 0.01, "slab_variance": 1.0, "inclusion_probability": 5 / 80}
    model = mf.SpikeSlabRegressor(fit_intercept=False, standardize=False, **true if known else {})
    covariance = 0.01 * np.eye(80) + X[:, ::16] @ X[:, ::16].T
    prior = 5 * np.log(5 / 80) + 75 * np.log1p(-5 / 80)
    expected = scipy.stats.multivariate_normal(np.zeros(80), covariance).logpdf(y) + prior
    assert model.fit(X, y).log_evidence_ > expected


@pytest.mark.filterwarnings("ignore::UserWarning")  # most are far from convergence
@pytest.mark.parametrize("seed, noise", [(6, 0.01), (3, 1e-4), (0, 1e-6)])
def test_with_a_given_noise_far_too_small_the_evidence_is_possible(seed, noise):
    rng = np.random.default_rng(seed)
    X = 0.02 * rng.normal(size=(10, 60)) + rng.normal(size=(10, 3)) @ rng.normal(size=(3, 60))
    y = X[:, :3] @ rng.normal(size=3) + rng.normal(size=10)
    evidence = mf.SpikeSlabRegressor(noise_variance=noise).fit(X, y).log_evidence_
    assert -np.inf < evidence < -5 * np.log(2 * np.pi * noise)
