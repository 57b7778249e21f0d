"""Machines of real-valued units that learn: by enumeration, in any unit of measurement."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import gammaln
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf

IRIS, WINE = load_iris().data, load_wine().data


def standardised(X):
    return (X - X.mean(0)) / X.std(0)


def independent(X):
    """Log-likelihood of independent Gaussian columns."""
    return -np.sum(1 + np.log(2 * np.pi * X.var(0))) / 2


def log_likelihood(machine, X):
    log_z = mf.exact(machine.model_, averages=False).log_partition
    return mf.evaluation.log_likelihood(machine.model_, X, log_z).mean()


def fitted(X, gradient="auto", n_epochs=200, n_components=8, **options):
    options = {"visible": "gaussian", "random_state": 0} | options
    return mf.GeneralizedRBM(n_components, gradient=gradient, n_epochs=n_epochs, **options).fit(X)


# --- learning ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gradient", "fraction"),
    [("auto", 0.9)]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in (("pcd", 0.55), ("tap", 0.45))],
)
@pytest.mark.parametrize(
    ("X", "best"),
    [(IRIS, -2.44), pytest.param(WINE, -13.63, marks=pytest.mark.slow)],
    ids=["iris", "wine"],
)
def test_tables_are_learned_most_of_the_way_to_maximum_likelihood(X, best, gradient, fraction):
    """Maximum likelihood by enumeration and L-BFGS, of 8 hidden units."""
    X = standardised(X)
    found = log_likelihood(fitted(X, gradient, 120 if gradient == "auto" else 200), X)
    assert found > independent(X) + fraction * (best - independent(X))


CLUSTERS = np.random.default_rng(0).integers(0, 2, 400) * 2 - 1
CLUSTERS = CLUSTERS[:, None] + 0.3 * np.random.default_rng(1).normal(size=(400, 3))
P = np.full(3, 1 / 0.09)
TRUTH = mf.RBM((2 * P)[:, None], mf.Gaussian(-P, P), mf.Bernoulli(np.zeros(1)))


@pytest.mark.parametrize(
    "gradient",
    ["pcd", *(pytest.param(g, marks=pytest.mark.slow) for g in ("cd", "tap", "mean_field"))],
)
def test_a_machine_that_is_right_stays_and_two_clusters_are_found(gradient):
    options = {"init": TRUTH, "learning_rate": 1e-6, "n_epochs": 1}
    machine = fitted(CLUSTERS, gradient, **options)
    np.testing.assert_allclose(machine.model_.visible.precision, P, rtol=1e-4)
    truth = mf.evaluation.log_likelihood(TRUTH, CLUSTERS, mf.exact(TRUTH)[0]).mean()
    assert log_likelihood(machine, CLUSTERS) == pytest.approx(truth, abs=1e-4)
    machine = fitted(CLUSTERS, gradient, n_components=2, learning_rate=0.02, n_epochs=100)
    assert log_likelihood(machine, CLUSTERS) > independent(CLUSTERS) + 1.5


def test_factors_are_found_up_to_the_covariance():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 4)) @ np.array(
        [[1, 0.9, 0, 0], [0, 0.4, 0, 0], [0, 0, 1, 0.9], [0, 0, 0, 0.4]]
    )
    X = standardised(X)
    machine = fitted(X, hidden="gaussian", n_components=6, n_epochs=30, l2=0.0)
    assert machine.gradient_ == "exact"
    model = machine.model_
    precision = np.diag(model.visible.precision)
    precision -= model.weights / model.hidden.precision @ model.weights.T
    covariance = np.linalg.inv(precision)
    np.testing.assert_allclose(covariance, X.T @ X / 400, atol=5e-3)
    mean = covariance @ (model.visible.field + model.weights @ machine.transform(0 * X)[0])
    density = multivariate_normal(mean, covariance)
    np.testing.assert_allclose(machine.score_samples(X), density.logpdf(X), rtol=1e-9)


@pytest.mark.slow
def test_two_phases_of_spins_are_learned_by_one_gaussian_unit():
    """The precision of the hidden unit may fall below what bounds every field would ask for."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((400, 6)) < 0.9, 1.0, -1.0) * rng.choice([-1.0, 1.0], (400, 1))
    options = {"visible": "ising", "hidden": "gaussian", "n_components": 1, "n_epochs": 100}
    best = fitted(X, "exact", **options)
    # Persistent chains seldom change from one phase to the other.
    for gradient, tolerance in (("tap", 0.15), ("cd", 0.15), ("pcd", 0.6)):
        found = fitted(X, gradient, **options)
        assert log_likelihood(found, X) > log_likelihood(best, X) - tolerance


# --- units of measurement ---------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["auto", pytest.param("tap", marks=pytest.mark.slow), "pcd"])
def test_columns_learn_alike_in_any_unit_of_measurement(gradient):
    factors = 10.0 ** (np.arange(13) % 7 - 3)
    moved = WINE * factors + 5 * factors
    one = fitted(WINE, gradient, 30)
    other = fitted(moved, gradient, 30)
    found = log_likelihood(other, moved) + np.log(factors).sum()
    assert found == pytest.approx(log_likelihood(one, WINE), abs=1e-6)
    assert found > independent(WINE)
    np.testing.assert_allclose(other.weights_ * factors[:, None], one.weights_, rtol=1e-4)
    ratios = [machine.history_["log_likelihood"] for machine in (one, other)]
    moved = np.array(ratios[1]) + np.log(factors).sum() / 21
    np.testing.assert_allclose(ratios[0], moved, rtol=1e-6)
    np.testing.assert_allclose(
        one.visible_.precision, other.visible_.precision * factors**2, rtol=1e-4
    )


def test_callbacks_and_files_see_the_data_as_they_are(tmp_path):
    seen = []
    machine = fitted(
        WINE, "pcd", 3, callbacks=[lambda state: seen.append(state.model)], early_stopping=True
    )
    assert len(seen) == 3
    mean, _ = seen[0].visible.moments(0.0, 0.0)
    np.testing.assert_allclose(mean, WINE.mean(0), rtol=0.2)
    machine.save(tmp_path / "machine.npz")
    again = mf.GeneralizedRBM.load(tmp_path / "machine.npz")
    np.testing.assert_array_equal(again.weights_, machine.weights_)
    one, other = machine.partial_fit(WINE).weights_, again.set_params(random_state=0)
    np.testing.assert_array_equal(other.partial_fit(WINE).weights_, one)


def test_batches_one_by_one():
    machine = mf.GeneralizedRBM(3, visible="gaussian", random_state=0)
    for _ in range(60):
        machine.partial_fit(WINE)
    assert machine.gradient_ == "exact" and machine.n_iter_ == 60
    assert log_likelihood(machine, WINE) > independent(WINE)


KINDS = ["gaussian", "truncated_gaussian", "gauss_bernoulli", "truncated_gauss_bernoulli"]


QUICK_TABLES = [("wine", "gaussian", "auto"), ("wine", "truncated_gauss_bernoulli", "auto"),
                ("wine", "truncated_gaussian", "pcd")]  # fmt: skip
SLOW_TABLES = [
    ("wine", "truncated_gaussian", "auto"),
    ("wine", "gauss_bernoulli", "auto"),
    ("wine", "truncated_gaussian", "tap"),
    *((table, kind, "auto") for table in ("iris", "large column") for kind in KINDS),
]


@pytest.mark.parametrize(
    "table, visible, gradient",
    [*QUICK_TABLES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_TABLES)],
)
def test_raw_tables_of_every_kind_of_units_are_learned_and_imputed(table, visible, gradient):
    X = {"wine": WINE, "iris": 10 * IRIS}.get(table)
    X = WINE * np.where(np.arange(13) == 3, 1e6, 1.0) if X is None else X
    machine = fitted(X, gradient, 30 if gradient != "auto" else 25, visible=visible)
    alone = machine.pointwise_
    low = (alone.log_prob(X) - alone.log_partition(0.0, 0.0)).sum(1).mean()
    assert log_likelihood(machine, X) > low + 1
    if gradient != "auto":
        return
    assert machine.gradient_ == "exact"
    holes = np.random.default_rng(1).random(X.shape) < 0.2
    filled = machine.impute(np.where(holes, np.nan, X))
    error = ((filled - X) / X.std(0))[holes]
    assert np.sqrt((error**2).mean()) < 0.9


@pytest.mark.parametrize("gradient", [pytest.param("tap", marks=pytest.mark.slow), "pcd"])
def test_sparse_rows_far_from_zero_are_learned_as_dense_ones(gradient):
    one, other = (fitted(rows, gradient, 60) for rows in (IRIS, csr_array(IRIS)))
    found = log_likelihood(one, IRIS), log_likelihood(other, IRIS)
    assert min(found) > independent(IRIS) + 1
    assert found[0] == pytest.approx(found[1], abs=0.6)


@pytest.mark.parametrize("lacking", [0, pytest.param(0.2, marks=pytest.mark.slow)])
def test_many_gaussian_hidden_units_on_raw_columns_begin_with_a_distribution(lacking):
    X = np.where(np.random.default_rng(0).random(WINE.shape) < lacking, np.nan, WINE)
    machine = fitted(X, n_epochs=8, n_components=64, hidden="gaussian")
    assert machine.score(WINE) > independent(WINE) + 1


# --- large fields -----------------------------------------------------------------------------

LARGE_FIELDS = {
    "bernoulli": mf.Bernoulli(np.array([-50.0, 0, 90])),
    "ising": mf.Ising(np.array([-50.0, 0, 90])),
    "binomial": mf.Binomial(np.array([-50.0, 0, 90]), 3),
    "ordinal": mf.Ordinal(np.array([[0.0, -70, -150], [0, 80, 0], [0, 0, 0]])),
    "categorical": mf.Categorical([[-40.0, 0, 40], [60, -60], [0, 0, 0]]),
    "never": mf.Categorical([[-40.0, -np.inf, 40], [60, -60], [0, 0, 0]]),
    "spike": mf.GaussBernoulli(np.zeros(3), np.ones(3), np.array([-80.0, 0, 60])),
}


LARGE_CASES = [
    *((kind, 1, gradient) for kind in LARGE_FIELDS for gradient in ("tap", "pcd")),
    *((kind, 2, "tap") for kind in ("bernoulli", "never", "spike")),
    ("categorical", 2, "pcd"), ("ising", 1, None), ("never", 1, None), ("ordinal", 2, None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "depth", "gradient"), LARGE_CASES)
def test_large_fields_are_left_by_steps_of_no_size(kind, depth, gradient):
    visible = LARGE_FIELDS[kind]
    X = np.tile([2.0, 1.0, 0.0], (60, 1))
    if kind in ("bernoulli", "ising", "spike"):
        X = np.tile([0.0 if kind != "ising" else -1.0, 1, 1], (60, 1))
    n = visible.moments(0.0, 0.0)[0].size
    sizes = [n, *[2] * depth]
    weights = [np.zeros(pair) for pair in pairwise(sizes)]
    hidden = [mf.Bernoulli(np.array([-220.0, 35])) for _ in weights]
    init = mf.RBM(*weights, visible, *hidden) if depth == 1 else mf.DBM(weights, (visible, *hidden))
    options = {"init": init, "learning_rate": 1e-12, "n_epochs": 1, "random_state": 0}
    class_, size = (
        (mf.GeneralizedRBM, 2) if depth == 1 else (mf.DeepBoltzmannMachine, (2, 2))
    )  # fmt: skip
    machine = class_(size, gradient=gradient or "tap", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the units do not fit the data
        machine = machine.fit(X) if gradient else machine.partial_fit(X)
    for new, old in zip(machine.model_.layers, init.layers, strict=True):
        for found, expected in zip(new, old, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-8)


def test_steps_that_are_too_long_are_said():
    X = (np.random.default_rng(0).random((200, 5)) < 0.3).astype(float)
    for dtype in (np.float32, np.float64):
        for visible in ("bernoulli", "binomial"):  # fields that kernels move, and others
            machine = mf.GeneralizedRBM(2, visible=visible, gradient="tap", learning_rate=1e12)
            with pytest.raises(FloatingPointError, match="diverged"):
                machine.fit(X.astype(dtype))
    rbm = mf.GeneralizedRBM(2, gradient="bp", learning_rate=1e10)
    steps, crbm = (rbm.partial_fit(X) for _ in range(3)), mf.ConditionalRBM(3, learning_rate=1e10)
    for learn in (lambda: rbm.fit(X), lambda: list(steps), lambda: crbm.fit(X, X)):
        with pytest.raises(FloatingPointError, match="learning diverged in epoch"):
            learn()


# --- weights of rows --------------------------------------------------------------------------


@pytest.mark.parametrize(("visible", "gradient"), [("bernoulli", "tap"), ("gaussian", "exact")])
def test_likelihoods_of_epochs_are_weighted_averages(visible, gradient):
    """As of repeated rows, all of which are monitored; steps of no size leave a given machine."""
    rng = np.random.default_rng(0)
    X, weights = (rng.random((12, 4)) < 0.4) * 1.0, rng.integers(1, 9, 12)
    X[:, 0] = np.where(weights > 4, 1 - X[:, 0], X[:, 0])
    options = {"gradient": gradient, "learning_rate": 0.0, "n_epochs": 2}
    if visible == "bernoulli":
        layers = mf.Bernoulli(np.array([1.0, -1, 0, 2])), mf.Bernoulli(np.zeros(2))
        options["init"] = mf.RBM(rng.normal(size=(4, 2)), *layers)
    options |= {"visible": visible, "n_components": 2, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one = mf.GeneralizedRBM(**options).fit(X, sample_weight=weights)
        other = mf.GeneralizedRBM(**options).fit(np.repeat(X, weights, axis=0))
    for found, expected in zip(
        one.history_["log_likelihood"], other.history_["log_likelihood"], strict=True
    ):
        assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("name", "n"), [("", 10), ("validation_", 500)])
def test_rows_of_little_weight_hardly_count_among_those_that_are_monitored(name, n):
    X = np.r_[np.zeros((1000 - n, 3)), np.ones((n, 3))]
    weights = np.r_[np.full(1000 - n, 1e-6), np.full(n, 1e6)]
    units = mf.Bernoulli(np.full(3, 2.0)), mf.Bernoulli(np.zeros(1))
    options = {"init": mf.RBM(np.zeros((3, 1)), *units), "learning_rate": 0.0, "n_epochs": 1}
    options |= {"early_stopping": bool(name), "random_state": 0}
    machine = mf.GeneralizedRBM(gradient="tap", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(X, sample_weight=weights)
    expected = -3 * np.log1p(np.exp(-2.0)) / 4  # nats per unit of a row of ones
    assert machine.history_[f"{name}log_likelihood"][0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("estimator", "visible"),
    [
        *((mf.GeneralizedRBM, kind) for kind in ("gaussian", "truncated_gaussian", "bernoulli")),
        *((mf.DeepBoltzmannMachine, kind) for kind in ("gauss_bernoulli", "categorical")),
    ],
)
def test_rows_of_weight_zero_are_absent(visible, estimator):
    rng = np.random.default_rng(0)
    X, others = rng.normal(size=(100, 4)), 30 + 10 * rng.normal(size=(100, 4))
    if visible in ("bernoulli", "categorical"):
        X, others = (X > 0.5) * 1.0, 1.0 + 2 * (visible == "categorical") + 0 * others
    weights = np.r_[np.ones(100), np.zeros(100)]
    options = {"visible": visible, "n_epochs": 2, "random_state": 0}
    one = estimator(3, **options).fit(np.r_[X, others], sample_weight=weights)
    other = estimator(3, **options).fit(X)
    for layer, right in zip(one.model_.layers, other.model_.layers, strict=True):
        for field, expected in zip(layer, right, strict=True):
            np.testing.assert_array_equal(field, expected)
    np.testing.assert_array_equal(one.model_.couplings[0], other.model_.couplings[0])


def test_weights_reach_the_units_that_learning_begins_with():
    rng = np.random.default_rng(0)
    X, weights = (
        rng.normal(rng.integers(0, 2, (300, 1)) * 9.0, 1, (300, 3)),
        rng.integers(1, 9, 300),
    )
    many = np.repeat(X, weights, 0)
    # A model that has not learned explains data worse than independent units where its couplings,
    # drawn at random, are large.
    options = {"learning_rate": 1e-12, "n_epochs": 1, "gradient": "pcd", "weight_scale": 1e-3}
    options |= {"visible": "gaussian", "random_state": 0}
    found = mf.GeneralizedRBM(2, **options).fit(X, sample_weight=weights).visible_
    mean, var = found.moments(0.0, 0.0)
    np.testing.assert_allclose(mean, many.mean(0), rtol=0.02)
    np.testing.assert_allclose(var, many.var(0), rtol=0.02)
    # Bounds are those of all rows of positive weight, however small it is.
    rare = np.r_[np.full(299, 5.0), 1e-6]
    options["visible"] = "truncated_gaussian"
    found = mf.GeneralizedRBM(2, **options).fit(X, sample_weight=rare).visible_
    np.testing.assert_allclose([found.lower.min(), found.upper.max()], [X.min(), X.max()])


# --- warnings and errors ----------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [mf.GeneralizedRBM, mf.DeepBoltzmannMachine])
def test_divergence_of_real_units_is_said(estimator):
    X = standardised(IRIS)
    options = {"visible": "gaussian", "gradient": "pcd", "learning_rate": 1.0, "n_epochs": 20}
    with pytest.warns(ConvergenceWarning, match="below that of the independent units"):
        machine = estimator(8, random_state=0, **options).fit(X)
    assert log_likelihood(machine, X) < independent(X)


def test_gradients_that_cannot_be_taken_are_refused():
    with pytest.raises(ValueError, match=r"'exact' needs .* at most 16384 states"):
        fitted(WINE, "exact", n_components=15)
    with pytest.raises(ValueError, match="gradient of a deep machine must be one of"):
        mf.DeepBoltzmannMachine((3, 2), visible="gaussian", gradient="exact").fit(WINE)
    with pytest.raises(ValueError, match="gradient must be one of"):
        fitted(WINE, "newton")
    weights = 5 * np.eye(4)
    init = mf.RBM(weights, mf.Gaussian(np.zeros(4), 1.0), mf.Gaussian(np.zeros(4), 1.0))
    with pytest.raises(ValueError, match="has no distribution"):
        fitted(IRIS, init=init)


def test_which_gradient_is_taken():
    assert fitted(IRIS, n_epochs=1).gradient_ == "exact"
    assert fitted(IRIS, n_epochs=1, n_components=20).gradient_ == "pcd"
    binary = (IRIS > IRIS.mean(0)) * 1.0
    assert mf.GeneralizedRBM(3, n_epochs=1).fit(binary).gradient_ == "exact"
    assert mf.GeneralizedRBM(3, n_epochs=1, l2=0.0).fit(binary).gradient_ == "tap"
    # Decay towards zero has no gradient there: the usual steps, along exact gradients.
    sparse = fitted(standardised(IRIS), "exact", 40, l1=0.1, learning_rate=0.1)
    assert (sparse.weights_ == 0).any()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_noise_of_steps_does_not_move_modes_of_columns_that_go_together(seed):
    """With steps of 20 rows 0.6 and 0.4 of the attainable gain are reached."""
    rng = np.random.default_rng(seed)
    p = 0.5 + 0.4 * rng.choice([-1, 1], 100) * np.array([[1], [-1]])
    X = (rng.random((1000, 100)) < p[rng.integers(2, size=1000)]).astype(float)
    modes = [(X * np.log(q) + (1 - X) * np.log(1 - q)).sum(1) for q in p]
    attainable = np.logaddexp.reduce(modes).mean() - np.log(2)
    f = X.mean(0)
    alone = (f * np.log(f) + (1 - f) * np.log(1 - f)).sum()
    machine = mf.GeneralizedRBM(13, visible="ising", hidden="ising", random_state=0).fit(2 * X - 1)
    gain = log_likelihood(machine, 2 * X - 1) - alone
    assert machine.gradient_ == "tap"
    assert gain > 0.75 * (attainable - alone)


@pytest.mark.parametrize("lacking", [0.0, 0.2])
def test_likelihoods_of_epochs_are_of_the_data_in_their_own_units(lacking):
    rng = np.random.default_rng(0)
    X = rng.normal([0, 5, -3e3], [1, 100, 0.01], size=(100, 3))
    X[rng.random(X.shape) < lacking] = np.nan
    X[np.isnan(X).all(1)] = [0, 5, -3e3]
    options = {"weight_scale": 0.0, "learning_rate": 0.0, "n_epochs": 1}
    rbm = mf.GeneralizedRBM(2, visible="gaussian", gradient="pcd", random_state=0, **options)
    rbm.fit(X)
    alone = rbm.pointwise_  # the hidden units do nothing
    densities = norm.logpdf(X, alone.field / alone.precision, alone.precision**-0.5)
    assert rbm.history_["log_likelihood"][0] == pytest.approx(np.nansum(densities) / len(X) / 5)


def test_likelihoods_of_early_stopping_are_annealed():
    """Mean field is nats too high for machines that were trained by it."""
    rng = np.random.default_rng(0)
    patterns = rng.random((10, 40)) < 0.5
    X = (patterns[rng.integers(10, size=600)] ^ (rng.random((600, 40)) < 0.1)).astype(float)
    models = []
    options = {"gradient": "tap", "n_epochs": 40, "learning_rate": 0.1, "random_state": 0}
    options["callbacks"] = [lambda state: models.append(state.model)]
    rbm = mf.GeneralizedRBM(10, **options).fit(X[:400], validation_data=X[400:])
    log_z = mf.exact(rbm.model_).log_partition
    right = mf.evaluation.log_likelihood(rbm.model_, X[400:], log_z).mean()
    with pytest.warns(ConvergenceWarning, match="nats too low"):
        mean_field = rbm.score_samples(X[400:], "log_sum_exp").mean()
    assert abs(mean_field - right) > 0.3
    found = np.array(rbm.history_["validation_log_likelihood"]) * 50
    assert found[-1] == pytest.approx(right, abs=0.15)
    # While couplings are small, early stopping has to see small differences.
    for model, value in zip(models[:2], found[:2], strict=True):
        log_z = mf.exact(model).log_partition
        right = mf.evaluation.log_likelihood(model, X[400:], log_z).mean()
        assert value == pytest.approx(right, abs=3e-3)


def test_likelihoods_that_decide_on_a_warning_are_not_from_a_log_partition_that_is_too_low():
    """Of two phases the data are in the one without weight, to which all solutions lead."""
    n, w = 30, 0.4
    field = np.full(n, 0.2 - w * n / 2)
    X = np.zeros((4, n))
    machine = mf.GeneralizedRBM(n, n_epochs=0, random_state=0).fit(np.eye(n))
    machine.model_ = mf.RBM(np.full((n, n), w), mf.Bernoulli(field), mf.Bernoulli(field))
    machine.starts_ = X
    k = np.arange(n + 1)
    by_number = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + field[0] * k
    hidden = n * np.logaddexp(0, field[0] + w * k)
    truth = hidden[0] - np.logaddexp.reduce(by_number + hidden)
    assert truth < -10
    assert machine._score_of(X, None) == pytest.approx(truth, abs=0.05)


# --- the steps of the paper ---------------------------------------------------------------------


def slab_sums(field, precision, lower, upper):
    """Integrals of 1, x, x^2 under exp(field x - precision x^2 / 2), by Gauss-Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(100)
    x = (lower + upper) / 2 + (upper - lower) / 2 * nodes
    density = weights * np.exp(field[..., None] * x - precision[..., None] * x**2 / 2)
    return [(density * x**k).sum(-1) * (upper - lower) / 2 for k in range(3)]


def test_uncentred_steps_are_those_of_algorithm_2_for_real_units():
    """Tramel et al. (2018), Algorithm 2, of a spike at zero and a slab on [-1, 40]."""
    rng, n_v, n_h, rate, l2 = np.random.default_rng(0), 5, 3, 0.01, 0.1
    W, U, V = rng.normal(size=(n_v, n_h)) / 20, rng.normal(size=n_v) / 20, np.full(n_v, 0.01)
    odds, c, bounds = rng.normal(size=n_v), rng.normal(size=n_h), (-1.0, 40.0)
    visible = mf.TruncatedGaussBernoulli(U, V, odds, *bounds)
    X = rng.uniform(0, 40, (6, n_v)) * rng.integers(0, 2, (6, n_v))
    options = {"gradient": "tap", "momentum": 0, "centred": False, "learning_rate": rate, "l2": l2}
    machine = mf.GeneralizedRBM(init=mf.RBM(W, visible, mf.Bernoulli(c)), **options)
    machine.partial_fit(X)

    alone = slab_sums(U, V, *bounds)

    def spiked(b, a):
        """Probability of the slab, mean and second moment under a tilt."""
        sums = np.exp(odds) * np.array(slab_sums(U + b, V + a, *bounds)) / alone[0]
        return sums / (1 + sums[0])

    def hidden(mean, var, old):
        A = -(var @ W**2)
        new = 1 / (1 + np.exp(-(c + mean @ W + A * old - A / 2)))
        return new, new * (1 - new)

    given = hidden(X, 0 * X, 0)[0]
    v, v_var, h = X, 0 * X, np.zeros((6, n_h))
    for _ in range(3):
        h, h_var = hidden(v, v_var, h)
        A = -(h_var @ W.T**2)
        p, v, square = spiked(h @ W.T + A * v, A)
        v_var = square - v**2
    # The slab's integral of 1 gives the fields and precisions their derivatives without a tilt.
    first, second = (part / alone[0] for part in alone[1:])
    seen = X != 0
    slopes = [
        X.T @ given - v.T @ h - W * (v_var.T @ h_var) - len(X) * l2 * W,
        (X - seen * first - v + p * first).sum(0),
        -(X**2 - seen * second - square + p * second).sum(0) / 2,
        (seen - p).sum(0),
        (given - h).sum(0),
    ]
    learned = machine.model_
    new = learned.weights, *learned.visible[:3], learned.hidden.field
    for value, old, slope in zip(new, (W, U, V, odds, c), slopes, strict=True):
        np.testing.assert_allclose(value - old, rate * slope / len(X), rtol=1e-8, atol=1e-12)
