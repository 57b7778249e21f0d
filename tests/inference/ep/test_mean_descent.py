"""Descent by the means of binary units: its derivatives, and strong couplings."""

import numpy as np
import pytest
from scipy.special import expit

import fastmf as mf
from fastmf.inference.ep import mean_descent
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.sites import problem_of


def machine(prior, shape=(12, 8), strength=3.0, seed=0):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=shape) * strength
    return mf.RBM(weights, *(prior(rng.normal(size=n)) for n in shape))


def wide():
    """A linear model of more units than rows, and more than are few."""
    rng, zero = np.random.default_rng(0), np.zeros(90)
    prior, X = mf.Bernoulli(zero - 1), rng.normal(size=(40, 90))
    y = X @ prior.sample(zero, zero, rng) + rng.normal(size=40)
    return mf.SparseLinearModel(X, y, 1.0, prior)


def somewhere(model):
    """A point that is no fixed point."""
    task = problem_of(model)
    return task, mean_descent.first_point(task, start_of(task))


@pytest.mark.parametrize(
    "model", [machine(mf.Bernoulli, strength=0.5), machine(mf.Ising, strength=0.5), wide()]
)
def test_the_derivative_of_a_step_is_that_of_the_energy(model):
    _, point = somewhere(model)
    step = mean_descent.MeanStep(point, 0.5)
    up, down = (step.at(s * 1e-5).value for s in (1, -1))
    assert step.derivative < -1e-3
    np.testing.assert_allclose((up - down) / 2e-5, step.derivative, rtol=1e-5)


def test_the_model_of_a_step_is_the_hessian():
    """The derivatives of the gradient by the means, the sites following them."""
    task, point = somewhere(machine(mf.Bernoulli, (3, 2), 0.5))
    right, h = np.arange(5) - 1.7, 5e-3
    by_mean = point.log_variance_gradient()
    precision = np.diag(point.sites.precision) + point.units.form.precision
    covariance = np.linalg.inv(precision)
    squares = covariance**2 / np.outer(point.var, point.var)
    hessian = precision + by_mean[:, None] * (np.linalg.inv(squares) - np.eye(5)) * by_mean / 2
    ends = []
    for sign in (1, -1):
        mean = point.mean + sign * h * right
        fields = np.log(mean / (1 - mean)) - task.prior.field
        ends.append(mean_descent.evaluate(point.units, fields, point.sites).gradient())
    np.testing.assert_allclose((ends[0] - ends[1]) / (2 * h), hessian @ right, rtol=1e-3)


@pytest.mark.parametrize("prior", [mf.Bernoulli, mf.Ising])
def test_strong_couplings_where_the_parallel_schedule_does_not_converge(prior):
    model = machine(prior, (30, 20), 4.0)
    starts = np.random.default_rng(1).integers(0, 2, (2, 30)).astype(float)
    assert not mf.adaptive_tap(model, starts, schedule="parallel", max_iter=300).converged.all()
    for schedule in ("auto", "convergent"):
        result = mf.adaptive_tap(model, starts, schedule=schedule)
        assert result.converged.all() and (result.residual <= 1e-8).all()
        # Fields by the identity of Opper and Winther: B1 = A1 a + J a.
        mean = np.concatenate(result.mean, axis=1)
        b, a = (np.concatenate(parts, axis=1) for parts in (result.b, result.a))
        coupled = np.concatenate(
            [result.mean[1] @ model.weights.T, result.mean[0] @ model.weights], axis=1
        )
        moves = mean * (1 - mean) if prior is mf.Bernoulli else 1 - mean**2
        np.testing.assert_allclose(moves * (b - a * mean), moves * coupled, atol=1e-5)


def test_linear_models_of_more_units_than_rows():
    """Where the parallel schedule does not converge: a fixed point, by plain inverses."""
    model = wide()
    assert not mf.expectation_propagation(model, max_iter=300).converged
    for schedule in ("auto", "convergent"):
        result = mf.expectation_propagation(model, schedule=schedule)
        assert result.converged
        linear, precision = result.sites
        covariance = np.linalg.inv(model.X.T @ model.X + np.diag(precision))
        mean, var = covariance @ (model.X.T @ model.y + linear), covariance.diagonal()
        tilted = expit(-1 + mean / var - linear - (1 / var - precision) / 2)
        np.testing.assert_allclose(tilted, mean, atol=1e-7)
        np.testing.assert_allclose(tilted * (1 - tilted), var, atol=1e-7)
        np.testing.assert_allclose(result.mean, mean, atol=1e-7)


def test_energy_falls_to_that_of_the_fixed_point():
    model = machine(mf.Ising)
    result = mf.adaptive_tap(model, schedule="convergent", init=None, history=True)
    assert result.converged and len(result.energies) > 3
    assert (np.diff(result.energies) <= 1e-8).all()
    np.testing.assert_allclose(-result.log_partition, result.energies[-1], atol=1e-4)


def test_units_without_variance():
    """Fields at which the variance vanishes in rounding."""
    rng = np.random.default_rng(0)
    weights, field = rng.normal(size=(10, 6)) * 3, np.r_[-400.0, 90.0, np.zeros(8)]
    model = mf.RBM(weights, mf.Bernoulli(field), mf.Bernoulli(np.zeros(6)))
    result = mf.adaptive_tap(model, schedule="convergent")
    assert result.converged
    hidden = mf.Bernoulli(weights[1])  # the field of the unit that is 1
    rest = mf.adaptive_tap(
        mf.RBM(weights[2:], mf.Bernoulli(field[2:]), hidden), schedule="convergent"
    )
    np.testing.assert_allclose(result.mean[0][2:], rest.mean[0], atol=1e-6)
    np.testing.assert_allclose(result.log_partition, rest.log_partition + 90, atol=1e-4)


@pytest.mark.parametrize("first_failure", [0, 1, 2])
def test_correlations_lost_in_rounding_are_no_error(monkeypatch, first_failure):
    """The descent ends where it is, or is left to the parallel schedule; nothing is raised."""
    correlations, calls = mean_descent._correlations, []

    def failing(inverse):
        calls.append(None)
        if len(calls) > first_failure:
            raise np.linalg.LinAlgError("not positive definite.")
        return correlations(inverse)

    monkeypatch.setattr(mean_descent, "_correlations", failing)
    result = mf.adaptive_tap(machine(mf.Bernoulli), schedule="convergent", max_iter=20)
    assert len(calls) > first_failure
    assert np.isfinite(result.mean[0]).all() and np.isfinite(result.residual)
    assert result.converged == (result.residual <= 1e-8)
