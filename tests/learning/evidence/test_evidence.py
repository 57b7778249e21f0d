import numpy as np
import pytest
from differences import differences
from kernel_cases.regression import chain_of_features, problem
from scipy import optimize
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from scipy.stats import beta, cauchy, lognorm

import fastmf as mf
from fastmf.inference.ep import schedules
from fastmf.learning.evidence import (
    Classification,
    Hyperparameters,
    Regression,
    Task,
    evidence_gradient,
)
from fastmf.learning.evidence.blocks import labels_of_task, with_blocks
from fastmf.learning.evidence.edges import EffectSets
from fastmf.learning.evidence.parameter_priors import ParameterPriors
from fastmf.learning.evidence.search import (
    EVIDENCE_TOL,
    averaged_points,
    curvature_by_noise,
    maximise_evidence,
    on_bounds,
)
from tests.learning.evidence.test_edges import enumerated, estimates


def regression(shape, groups):
    model, _ = problem(*shape, seed=1, noise=0.3, inclusion_probability=3 / shape[1])
    return Regression(model.X, model.y, groups)


def classification(shape, groups):
    """Two classes, and a constant without a spike."""
    model = problem(*shape, seed=1, inclusion_probability=3 / shape[1])[0]
    X = np.concatenate([model.X, np.ones((len(model.X), 1))], axis=1)
    return Classification.of(X, np.where(model.y > 0.3, 1.0, -1.0), groups, [0.01])


@pytest.mark.parametrize(
    "make, shape", [(regression, (30, 12)), (regression, (25, 90)), (classification, (40, 30))]
)
def test_gradient_against_finite_differences(make, shape):
    groups = np.arange(shape[1]) % 2
    task = make(shape, groups)
    centre = np.array([np.log(0.1 if make is regression else 1.0), np.log(0.8), -2.0, -3.0])

    def solve(x):
        found = task.model(Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:]))
        result = mf.expectation_propagation(found, tol=1e-11, damping=0.2)
        assert result.converged
        return found, result

    by_noise, by_slab, by_odds = evidence_gradient(*solve(centre), groups, 2)
    expected = differences(lambda x: solve(x)[1].log_evidence, centre, 1e-4)
    np.testing.assert_allclose([by_noise, by_slab, *by_odds], expected, rtol=1e-5, atol=1e-6)


# --- blocks of correlated features in tasks -------------------------------------------------------


def columns(seed=0):
    X = np.random.default_rng(seed).normal(size=(600, 15))
    X[:, 4] = -2 * X[:, 1]
    return X


def test_columns_without_a_spike_are_in_no_block():
    X = np.append(columns(), columns()[:, :1], axis=1)
    task = Task.of(Classification.of(X, np.ones(600), np.zeros(15, int), [0.01]))
    task, _ = with_blocks(task, "auto", Hyperparameters(1.0, 1.0, np.array([-3.0])))
    assert task.parts[0].blocks.labels.tolist() == [0, 1, 2, 3, 1, *range(4, 15)]
    assert labels_of_task(task).tolist() == [0, 1, 2, 3, 1, *range(4, 14)]


def test_blocks_have_effects_in_their_middle():
    rng = np.random.default_rng(1)
    X = chain_of_features(rng, 2000, 40, 0.8)
    y = X[:, 23] + rng.normal(size=2000)
    start = Hyperparameters(1.0, 1.0, np.array([-3.0]))
    task, _ = with_blocks(Task.of(Regression(X, y, np.zeros(40, int))), "auto", start)
    # 0.8^4 = 0.41
    assert np.flatnonzero(labels_of_task(task) == labels_of_task(task)[23]).tolist() == [
        *range(19, 28)
    ]


# --- averaging ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task():
    model, _ = problem(40, 20, noise=1.0, inclusion_probability=0.1)
    return Task.of(Regression(model.X, model.y, np.zeros(20, int)))


def averages(task, fixed, start):
    priors = ParameterPriors.of(task)
    best = maximise_evidence(task, start, fixed, priors=priors)
    return averaged_points(task, best, fixed, priors=priors)


def test_against_a_fine_grid_of_all_parameters(task):
    """Means over a regular grid in three dimensions, the noise among them."""
    start, fixed = Hyperparameters(0.5, 0.5, np.array([-2.0])), Hyperparameters(False, False, False)
    points, weights = averages(task, fixed, start)
    assert weights.sum() == pytest.approx(1) and 5 < len(points) < 100
    priors, best, densities, means = ParameterPriors.of(task), points[0].hyperparameters, [], []
    for odds in best.log_odds + np.linspace(-4, 4, 7):
        for slab in np.exp(np.linspace(-4, 4, 7)):
            for noise in np.exp(np.linspace(-0.8, 0.8, 5)):
                here = Hyperparameters(
                    best.noise_variance * noise, best.slab_variance * slab, np.array([odds])
                )
                found = mf.expectation_propagation(
                    task.parts[0].model(here), schedule="auto", tol=1e-4
                )
                prior, _ = priors.log_density(here, np.ones(3, bool))
                densities.append(found.log_evidence + prior)
                means.append(found.mean)
    fine = np.exp(np.array(densities) - logsumexp(densities)) @ np.array(means)
    ours = weights @ np.array([point.results[0].mean for point in points])
    np.testing.assert_allclose(ours, fine, atol=0.01)
    # At the maximum alone they are further away.
    assert abs(points[0].results[0].mean - fine).max() > 2 * abs(ours - fine).max()


def test_what_is_given_does_not_vary(task):
    start = Hyperparameters(0.5, 0.5, np.array([-2.0]))
    points, _ = averages(task, Hyperparameters(True, False, True), start)
    assert {p.hyperparameters.noise_variance for p in points} == {0.5}
    assert {float(p.hyperparameters.log_odds[0]) for p in points} == {-2.0}
    assert len({p.hyperparameters.slab_variance for p in points}) == len(points) > 2


# --- parameter priors -----------------------------------------------------------------------------


FREE = np.ones(5, bool)


def priors():
    """Of three groups of 4, 1 and 30 features; y has variance 4 and the features 9."""
    rng = np.random.default_rng(0)
    X = 3 * rng.choice([-1.0, 1.0], (20, 35))
    groups = np.repeat([0, 1, 2], [4, 1, 30])
    return ParameterPriors.of(Task.of(Regression(X, 2 * rng.choice([-1.0, 1.0], 20), groups)))


def test_densities_are_those_of_the_distributions():
    ours = priors()
    here = Hyperparameters(0.3, 0.7, np.array([-1.0, 0.5, -4.0]))
    noise = cauchy.logpdf(np.log(0.3), np.log(0.6 * 4), 0.5)
    slab = lognorm.logpdf(0.7, 2.0, scale=0.5 * 4 / 9) + np.log(0.7)  # by its logarithm
    p = expit(here.log_odds)
    odds = beta.logpdf(p, 0.5, [2, 0.5, 15]) + np.log(p * (1 - p))  # by the log-odds
    assert ours.log_density(here, FREE)[0] == pytest.approx(noise + slab + odds.sum(), rel=1e-12)
    fixed = np.array([False, True, False, False, True])
    value, gradient = ours.log_density(here, fixed)
    assert value == pytest.approx(slab + odds[2])
    np.testing.assert_array_equal(gradient[~fixed], 0)


@pytest.mark.parametrize("n_lost", [0, 1])
def test_gradient_and_information_against_differences(n_lost):
    ours = priors()._replace(n_lost=n_lost)
    centre = np.array([-3.0, 1.0, -1.0, 0.5, -4.0])

    def at(x):
        return ours.log_density(Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:]), FREE)

    value = differences(lambda x: at(x)[0], centre, 1e-4)
    np.testing.assert_allclose(at(centre)[1], value, rtol=1e-6, atol=1e-8)
    here = Hyperparameters(np.exp(centre[0]), np.exp(centre[1]), centre[2:])
    slopes = -differences(lambda x: at(x)[1], centre, 1e-4).diagonal()
    np.testing.assert_allclose(ours.information(here)[1:], slopes[1:], rtol=1e-6)


def test_a_constant_of_flat_prior_is_integrated():
    """Over it, rows of noise s2 have a density of which a factor is the deviation of the noise."""
    y = np.random.default_rng(0).normal(size=6)

    def ratio(s2):
        def density(c):
            return np.exp(-((y - c) ** 2).sum() / (2 * s2)) / (2 * np.pi * s2) ** 3

        centred = np.exp(-((y - y.mean()) ** 2).sum() / (2 * s2)) / (2 * np.pi * s2) ** 3
        return np.log(quad(density, -20, 20, points=[y.mean()])[0] / centred)

    ours = priors()
    lost = [
        ours._replace(n_lost=1).log_density(Hyperparameters(s2, 1.0, np.zeros(3)), FREE)[0]
        - ours.log_density(Hyperparameters(s2, 1.0, np.zeros(3)), FREE)[0]
        for s2 in (0.2, 1.5)
    ]
    assert lost[1] - lost[0] == pytest.approx(ratio(1.5) - ratio(0.2), rel=1e-6)


def test_classes_have_a_prior_on_the_slab_over_the_noise():
    X = 2.0 * np.random.default_rng(0).choice([-1.0, 1.0], (10, 3))
    task = Task.of(Classification.of(X, np.ones(10), np.zeros(3, int)))
    assert ParameterPriors.of(task).slab == pytest.approx(0.5 / 4)


# --- search ---------------------------------------------------------------------------------------


def test_learned_values_are_a_maximum_and_near_the_truth():
    model, _ = problem(200, 60, noise=0.5, inclusion_probability=0.3, slab=2.0)
    groups = np.zeros(60, int)
    start = Hyperparameters(1.0, 1.0, np.zeros(1))
    fixed = Hyperparameters(False, False, False)
    task = Task.of(Regression(model.X, model.y, groups))
    best = maximise_evidence(task, start, fixed).hyperparameters

    def negative_log_evidence(x):
        model = task.parts[0].model(Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:]))
        result = mf.expectation_propagation(model, tol=1e-9)
        gradient = np.hstack(evidence_gradient(model, result, groups, 1))
        return -result.log_evidence, -gradient

    found = np.concatenate([np.log(best[:2]), best.log_odds])
    polished = minimize(
        negative_log_evidence, found, jac=True, method="BFGS", options={"gtol": 1e-4}
    )
    assert polished.success and negative_log_evidence(found)[0] - polished.fun < EVIDENCE_TOL
    assert abs(np.log(best.noise_variance / 0.25)) < 0.3
    assert abs(np.log(best.slab_variance / 2)) < 0.8
    assert abs(1 / (1 + np.exp(-best.log_odds[0])) - 0.3) < 0.15


def test_trials_too_far_away_take_no_descent(monkeypatch):
    monkeypatch.setattr(schedules, "descend", lambda *arguments: pytest.fail("a slow descent"))
    rng = np.random.default_rng(6)
    X = rng.normal(size=(30, 200))
    y = 3 * X[:, 0] - 2 * X[:, 1] + X[:, 2] + 0.1 * rng.normal(size=30)
    np.testing.assert_allclose(mf.SpikeSlabRegressor().fit(X, y).coef_[:3], [3, -2, 1], atol=0.1)


@pytest.mark.parametrize("n_free", [30, 200])
def test_the_curvature_by_noise_leads_to_the_minimum_of_fixed_residuals(n_free):
    """A Newton step with it, of n ln(s2) / 2 + R / (2 s2) by ln s2, from either side."""
    log_minimum = np.log(5.0 / n_free)  # of squares R = 5
    for start in log_minimum + np.array([-1.0, -1e-3, 0.0, 1e-12, 0.5, 3.0]):
        derivative = n_free / 2 - 5.0 / (2 * np.exp(start))
        step = -derivative / curvature_by_noise(derivative, n_free)
        assert start + step == pytest.approx(log_minimum, abs=1e-9)


def test_the_search_with_weighted_rows_is_that_with_repeated_ones():
    """Rows that stand for several have the normaliser of all, whose derivative is by the noise."""
    model, _ = problem(20, 6)
    weights = np.random.default_rng(1).integers(1, 4, 20)
    root = np.sqrt(weights)
    groups = np.zeros(6, int)
    task = Task.of(
        Regression(model.X * root[:, None], model.y * root, groups, float(weights.sum()))
    )
    rows = np.repeat(np.arange(20), weights)
    repeated = Task.of(Regression(model.X[rows], model.y[rows], groups))
    assert task.scale == pytest.approx(repeated.scale)
    start = Hyperparameters(0.3, 0.5, np.array([-1.0]))
    fixed = Hyperparameters(False, False, False)
    found, expected = (maximise_evidence(t, start, fixed).hyperparameters for t in (task, repeated))
    np.testing.assert_allclose(np.hstack(found), np.hstack(expected), rtol=1e-4)


def test_with_priors_the_density_has_its_maximum():
    model, _ = problem(60, 20, noise=0.5, inclusion_probability=0.2)
    task = Task.of(Regression(model.X, model.y, np.zeros(20, int)))
    start, fixed = Hyperparameters(1.0, 1.0, np.zeros(1)), Hyperparameters(False, False, False)
    priors = ParameterPriors.of(task)
    point = maximise_evidence(task, start, fixed, priors=priors)
    best = point.hyperparameters

    def density(x):
        here = Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:])
        result = mf.expectation_propagation(task.parts[0].model(here), tol=1e-9)
        return result.log_evidence + priors.log_density(here, np.ones(3, bool))[0]

    centre = np.concatenate([np.log(best[:2]), best.log_odds])
    value = density(centre)
    around = [density(centre + step) for step in 0.3 * np.vstack([np.eye(3), -np.eye(3)])]
    assert max(around) < value + EVIDENCE_TOL
    assert on_bounds(task, best, fixed) == []


def test_optima_on_bounds_are_named():
    model, _ = problem(20, 8)
    task = Task.of(Regression(model.X, model.y, np.zeros(8, int)))
    here = Hyperparameters(2 * task.scale, 1e-6 * task.slab_scale, np.array([-np.log(80.0)]))
    free = Hyperparameters(False, False, False)
    assert on_bounds(task, here, free) == [
        ("noise variance", "upper bound"),
        ("slab variance", "lower bound"),
        ("prior inclusion", "lower bound"),
    ]
    some = Hyperparameters(True, False, True)
    assert on_bounds(task, here, some) == [("slab variance", "lower bound")]


# --- sets of effects that are zero or not, against the enumeration of all patterns ----------------


SETS = [np.array([0, 1]), np.array([2]), np.array([3, 4, 5]), np.array([6, 7])]


@pytest.mark.parametrize("seed, rho, close", [*((s, 0.3, 0.02) for s in range(6)), (1, 0.0, 1e-7)])
def test_posterior_of_all_patterns(seed, rho, close):
    """Independent groups have closed forms."""
    estimate, C = estimates(8, rho, seed)
    sets = SETS if seed < 5 else list(np.arange(8)[:, None])
    found = EffectSets(estimate, C, sets).posterior(-0.5, 0.8)
    evidence, inclusion, mean, variance = enumerated(estimate, C, -0.5, 0.8, sets)
    assert found.converged
    np.testing.assert_allclose(found.probability, inclusion, atol=close)
    np.testing.assert_allclose(found.mean, mean, atol=close)
    np.testing.assert_allclose(found.std, np.sqrt(variance), atol=close)
    assert abs(found.log_evidence - evidence) < 2.5 * close


def test_units_of_measurement_make_no_difference():
    estimate, C = estimates(8, 0.3, 2)
    found = EffectSets(estimate, C, SETS).posterior(0.0, 1.0)
    small = EffectSets(1e-5 * estimate, 1e-10 * C, SETS).posterior(0.0, 1e-5)
    np.testing.assert_allclose(small.log_odds, found.log_odds, atol=1e-6)


def test_learned_parameters_maximise_the_evidence_times_their_prior():
    estimate, C = estimates(8, 0.0, 4)
    found = EffectSets(estimate, C, SETS).posterior(None, None)

    def loss(values):
        value = enumerated(estimate, C, values[0], np.exp(values[1]), SETS)[0]
        value -= np.logaddexp(0, values[0]) + np.logaddexp(0, -values[0])
        return (values[1]) ** 2 / 2 - value

    best = optimize.minimize(loss, np.zeros(2), method="Nelder-Mead").x
    assert abs(found.prior_log_odds - best[0]) < 0.02
    assert abs(np.log(found.scale) - best[1]) < 0.02


def test_certain_and_absent_groups():
    """Sites of sets that are surely zero, or surely not, are sharp."""
    estimate = np.array([40.0, -40.0, 0.0, 0.0, 0.0, 0.0, 1e-3, 0.0])
    found = EffectSets(estimate, 1e-4 * np.eye(8), SETS).posterior(0.0, 1.0)
    assert found.converged and np.isfinite(found.log_evidence)
    assert found.probability[0] == 1 and (found.probability[1:] < 0.02).all()


def test_what_is_no_covariance_is_refused():
    for C in (np.ones((8, 8)), np.zeros((8, 8)), np.full((8, 8), np.nan)):
        with pytest.raises(ValueError, match="covariance"):
            EffectSets(np.ones(8), C, SETS)


def test_sites_without_a_proper_gaussian_are_halved():
    """Estimates that hang together so much that full steps leave the proper Gaussians."""
    rng, n = np.random.default_rng(1), 18
    A, errors = rng.normal(size=(n, 3)), rng.uniform(0.1, 0.6, n)
    C = (0.95 * A @ A.T / 3 + 0.05 * np.eye(n)) * np.outer(errors, errors)
    truth = [rng.normal(size=1)[0] if rng.random() < 0.5 else 0.0 for _ in range(n)]
    found = EffectSets(rng.multivariate_normal(truth, C), C, list(np.arange(n)[:, None]))
    result = found.posterior(-0.5, 0.8)
    assert np.isfinite(result.mean).all() and ((result.std > 0) & (result.std < 3)).all()
