import itertools
import math
from functools import cache
from typing import NamedTuple

import numba
import numpy as np
import pytest
from kernel_cases.regression import exact, inclusion, problem
from own_priors import Levels

import fastmf as mf
from fastmf._outcomes import CONVERGED, LOST, MESSAGES
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.inclusion_patterns import summed_patterns
from fastmf.inference.ep.result import result_of, stacked_rows
from fastmf.inference.ep.sites import EPTrace, problem_of
from fastmf.inference.gaussian import low_rank

SCHEDULES = ("parallel", "sequential", "convergent", "auto")


@cache
def enumerated_problem(seed):
    model, _ = problem(20, 10, seed)
    return model, exact(model)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(4))
def test_small_problems_against_enumeration(schedule, seed):
    model, (evidence, mean, deviation, included) = enumerated_problem(seed)
    result = mf.expectation_propagation(model, schedule=schedule)
    assert result.converged
    assert (abs(result.mean - mean) < 0.02 * np.maximum(deviation, 0.05)).all()
    np.testing.assert_allclose(np.sqrt(result.var), deviation, atol=0.02)
    np.testing.assert_allclose(inclusion(model, result), included, atol=0.02)
    np.testing.assert_allclose(result.log_evidence, evidence, rtol=0.01)
    np.testing.assert_allclose(result.log_partition - result.log_evidence, 10 * np.log(1 / 0.7))


def test_a_gaussian_prior_is_solved_exactly():
    """With Gaussian units there is nothing to approximate."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(15, 80)), rng.normal(size=15)
    precision = rng.gamma(2.0, size=80)
    model = mf.SparseLinearModel(X, y, 0.5, mf.Gaussian(np.zeros(80), precision))
    A = X.T @ X / 0.5 + np.diag(precision)
    B = 0.5 * np.eye(15) + (X / precision) @ X.T
    expected = -(y @ np.linalg.solve(B, y) + np.linalg.slogdet(2 * np.pi * B)[1]) / 2
    for schedule in SCHEDULES:
        result = mf.expectation_propagation(model, schedule=schedule)
        assert result.converged
        np.testing.assert_allclose(result.mean, np.linalg.solve(A, X.T @ y / 0.5), atol=1e-9)
        np.testing.assert_allclose(result.var, np.linalg.inv(A).diagonal(), atol=1e-9)
        np.testing.assert_allclose(result.log_evidence, expected, rtol=1e-9)


def test_float32_features_are_not_copied():
    model, _ = problem(30, 90, dtype=np.float32)
    assert model.X.dtype == np.float32
    wide = mf.SparseLinearModel(model.X.astype(float), model.y, model.noise_variance, model.prior)
    one, other = mf.expectation_propagation(model), mf.expectation_propagation(wide)
    np.testing.assert_array_equal(one.mean, other.mean)
    X = np.ones((3, 2), np.float32)
    model = mf.SparseLinearModel(X, np.ones(3), 1.0, mf.Gaussian(np.zeros(2), 1.0))
    assert np.shares_memory(
        mf.SparseLinearModel(X, np.ones(3), 1.0, mf.Gaussian(np.zeros(2), 1)).X, X
    )


def test_a_prior_of_the_users_own():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(40, 6)), np.array([1.0, 0, 0, -1, 0, 1])
    y = X @ w + 2.0 * rng.normal(size=40)
    model = mf.SparseLinearModel(X, y, 4.0, Levels(np.zeros(6)))
    states = np.array(list(itertools.product([-1.0, 0, 1], repeat=6)))
    log_weight = -((y - states @ X.T) ** 2).sum(1) / 8
    p = np.exp(log_weight - np.logaddexp.reduce(log_weight))
    for schedule in SCHEDULES:
        result = mf.expectation_propagation(model, schedule=schedule)
        assert result.converged
        np.testing.assert_allclose(result.mean, p @ states, atol=0.02)
        evidence = np.logaddexp.reduce(log_weight) - 20 * np.log(4.0 * 2 * np.pi)
        np.testing.assert_allclose(result.log_partition, evidence, rtol=0.01)


def test_number_of_threads_does_not_matter(monkeypatch):
    model, _ = problem(40, 22000, inclusion_probability=1e-3)
    crews, run = [], low_rank.for_each
    monkeypatch.setattr(low_rank, "for_each", lambda *a: crews.append(a[-1]) or run(*a))
    one = mf.expectation_propagation(model, max_iter=3, n_threads=1)
    two = mf.expectation_propagation(model, max_iter=3, n_threads=2)
    np.testing.assert_array_equal(one.sites, two.sites)
    assert set(crews) == {1, 2}


def test_history_and_restart():
    model, _ = problem(20, 10)
    result = mf.expectation_propagation(model, history=True)
    assert len(result.history) == len(result.energies) == result.n_iter
    np.testing.assert_allclose(result.energies[-1], -result.log_partition, rtol=1e-6)
    again = mf.expectation_propagation(model, result)
    assert again.n_iter == 1
    again = mf.expectation_propagation(model, result.sites, schedule="sequential")
    assert again.n_iter == 1


def test_what_does_not_converge_says_so():
    model, _ = problem(20, 10)
    result = mf.expectation_propagation(model, max_iter=2)
    assert not result.converged and "not converged" in result.message
    assert np.isfinite(result.mean).all() and result.residual > 1e-8
    assert "raise max_iter" in result.message


@pytest.mark.parametrize("options, message", [
    ({"schedule": "serial"}, "schedule must be one of"), ({"damping": 1.0}, "damping must be in"),
    ({"tol": -1}, "tol must be in"), ({"max_iter": 0}, "max_iter must be at least 1"),
    ({"site_precision_min": np.nan}, "site_precision_min"),
    ({"site_precision_min": np.inf}, "site_precision_min"),
    ({"init": np.zeros(3)}, r"init must have shape \(2, 10\)"),
    ({"init": np.zeros((10, 2))}, r"init must have shape \(2, 10\)"),
    ({"init": -np.ones((2, 10)) * 1e9}, "init must leave a proper Gaussian"),
])  # fmt: skip
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        mf.expectation_propagation(problem(20, 10)[0], **options)


def test_bad_models():
    prior = mf.Gaussian(np.zeros(3), 1.0)
    X, y = np.ones((4, 3)), np.ones(4)
    with pytest.raises(TypeError, match="model must be a SparseLinearModel"):
        mf.expectation_propagation(X)
    for arguments, message in (
        ((X, y[:3], 1.0, prior), "y must have shape"),
        ((X, y, 0.0, prior), "noise_variance must be positive"),
        ((X, y * np.nan, 1.0, prior), "y must be finite"),
        ((X[:, :2], y, 1.0, prior), "prior must have 2 units"),
    ):
        with pytest.raises(ValueError, match=message):
            mf.SparseLinearModel(*arguments)
    with pytest.raises(TypeError, match="noise_variance must be a number"):
        mf.SparseLinearModel(X, y, "much", prior)


def test_files(tmp_path):
    model, _ = problem(8, 5, dtype=np.float32)
    model.save(tmp_path / "model.npz")
    back = mf.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(back.X, model.X, strict=True)
    np.testing.assert_array_equal(back.y, model.y, strict=True)
    assert back.noise_variance == model.noise_variance
    np.testing.assert_array_equal(back.prior.log_odds, model.prior.log_odds)


def test_energy_is_the_joint_density():
    model, w = problem(8, 5)
    rest = model.y - model.X @ w
    density = -(rest @ rest / 0.09 + 8 * np.log(2 * np.pi * 0.09)) / 2
    np.testing.assert_allclose(-model.energy(w), density + model.prior.log_prob(w).sum())


@pytest.mark.parametrize("schedule", ["parallel", "sequential", "convergent", "auto"])
@pytest.mark.parametrize("scale", [1e-7, 1e7])
def test_the_scale_of_coefficients_does_not_matter(schedule, scale):
    """With coefficients far below 1 all means and variances agree to `tol` from the start."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 12))
    y = X[:, 3] - 2 * X[:, 5] + 0.3 * rng.normal(size=40)

    def solve(scale):
        prior = mf.GaussBernoulli(np.zeros(12), np.full(12, scale**-2.0), np.full(12, -1.0))
        model = mf.SparseLinearModel(X / scale, y, 0.09, prior)
        return mf.expectation_propagation(model, schedule=schedule)

    expected, found = solve(1.0), solve(scale)
    assert found.converged
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-5)
    np.testing.assert_allclose(found.mean / scale, expected.mean, atol=1e-3)


@pytest.mark.parametrize("seed", [18, 33])
def test_blocks_that_share_an_effect_are_joined_at_the_end(seed):
    """Within 0.002 of enumeration; apart they are 0.08 and 0.07 away from it."""
    rng = np.random.default_rng(seed)
    X = np.cumsum(0.6 * rng.normal(size=(40, 12)), axis=1)
    X = (X - X.mean(0)) / X.std(0)
    y = 0.6 * X[:, 3] - 0.5 * X[:, 6] + 0.7 * rng.normal(size=40)
    prior = mf.GaussBernoulli(np.zeros(12), 1.0, np.full(12, -2.0))
    model = mf.SparseLinearModel(X, y - y.mean(), 0.5, prior)
    found = mf.expectation_propagation(model, blocks="auto")
    patterns, probability, _ = summed_patterns(model, np.zeros(12, bool))
    inclusion = probability @ patterns  # tested by enumeration itself
    np.testing.assert_allclose(found.inclusion_probability, inclusion, atol=0.01)


# --- how results are made of states, and of rows --------------------------------------------------


@pytest.fixture
def task():
    return problem_of(problem(15, 6)[0])


def trace_of(residuals):
    trace = EPTrace()
    for residual in residuals:
        trace.add(residual, lambda e=-residual: e)
    return trace


def test_rows_that_ended_earlier_repeat_their_last_value(task):
    end = start_of(task), CONVERGED, "parallel"
    rows = [result_of(task, end, trace_of(values)) for values in ([3.0, 1.0], [2.0])]
    result = stacked_rows(rows)
    assert result.mean.shape == (2, 6) and result.sites.shape == (2, 2, 6)
    assert result.history.tolist() == [[3, 1], [2, 2]]
    assert result.energies.tolist() == [[-3, -1], [-2, -2]]
    assert result.n_iter.tolist() == [2, 1]
    rows = [result_of(task, end, EPTrace(False)) for _ in range(2)]
    assert stacked_rows(rows).history is None


def test_cavities_that_are_lost_in_rounding_are_no_fixed_point(task):
    """A site so precise that the cavity, a difference of naturals, is nothing but rounding."""
    state = start_of(task)
    assert result_of(task, (state, CONVERGED, "auto"), trace_of([3.0])).converged
    site = state.site.copy()
    site[:, 2] = 1e25
    result = result_of(task, (state._replace(site=site), CONVERGED, "auto"), trace_of([0.0]))
    assert not result.converged and result.message == MESSAGES[LOST]


def test_an_infinite_log_partition_is_no_fixed_point(task):
    state = start_of(task)._replace(log_partition=np.inf)
    result = result_of(task, (state, CONVERGED, "auto"), trace_of([0.0]))
    assert not result.converged and result.message == MESSAGES[LOST]


# --- A prior of the user's own with a density: the Bayesian lasso, by expectation propagation -----


@numba.vectorize
def log_erfcx(z):
    """Log of exp(z^2) erfc(z), for compiled code and arrays alike."""
    if z < 20:
        return z * z + math.log(math.erfc(z))
    w = 1 / (2 * z * z)
    return math.log1p(-w * (1 - 3 * w * (1 - 5 * w))) - math.log(z * math.sqrt(math.pi))


class Laplace(NamedTuple):
    """Weight exp(-rate |x|): under a tilt, a Gaussian cut in two at zero.

    Tilts flatter than any data would make them count as a little less flat, to save digits.
    """

    rate: np.ndarray

    def log_partition(self, b, a):
        a = np.maximum(a, 1e-4 * self.rate**2)
        up, down = (self.rate - b) / np.sqrt(2 * a), (self.rate + b) / np.sqrt(2 * a)
        return np.logaddexp(log_erfcx(up), log_erfcx(down)) + np.log(np.pi / (2 * a)) / 2

    def moments(self, b, a):
        a = np.maximum(a, 1e-4 * self.rate**2)
        up, down = (self.rate - b) / np.sqrt(2 * a), (self.rate + b) / np.sqrt(2 * a)
        p = 1 / (1 + np.exp(log_erfcx(down) - log_erfcx(up)))
        above = (b - self.rate) / a + np.sqrt(2 / (np.pi * a)) * np.exp(-log_erfcx(up))
        below = (b + self.rate) / a - np.sqrt(2 / (np.pi * a)) * np.exp(-log_erfcx(down))
        mean = p * above + (1 - p) * below
        slope = p * (b - self.rate) / a * above + (1 - p) * (b + self.rate) / a * below
        return mean, 1 / a + slope - mean * mean


@pytest.mark.parametrize("d, close", [(1, 1e-6), (2, 0.02)])
@pytest.mark.parametrize("schedule", ["parallel", "sequential", "convergent"])
def test_posterior_against_quadrature(d, close, schedule):
    """With one coefficient there is nothing to approximate."""
    rng = np.random.default_rng(d)
    X = rng.normal(size=(6, d))
    y = X @ np.array([0.7, 0.1])[:d] + rng.normal(size=6)
    result = mf.expectation_propagation(
        mf.SparseLinearModel(X, y, 1.0, Laplace(np.full(d, 2.0))), schedule=schedule
    )
    axis = np.linspace(-6, 6, 24001 if d == 1 else 601)
    w = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), -1).reshape(-1, d)
    log_weight = -2 * abs(w).sum(1) - ((y - w @ X.T) ** 2).sum(1) / 2 - 3 * np.log(2 * np.pi)
    weight = np.exp(log_weight)
    mean = weight @ w / weight.sum()
    var = weight @ (w - mean) ** 2 / weight.sum()
    evidence = np.log(weight.sum() * (axis[1] - axis[0]) ** d)
    assert result.converged
    np.testing.assert_allclose(result.mean, mean, atol=close * np.sqrt(var.max()))
    np.testing.assert_allclose(result.var, var, rtol=5 * close)
    np.testing.assert_allclose(result.log_partition, evidence, atol=5 * close)
