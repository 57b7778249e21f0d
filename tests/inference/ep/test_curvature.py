"""Curvatures of units and of the most correlated units together."""

import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf
from fastmf.inference.ep import curvature, inner_loop, moment_descent
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.sites import problem_of
from fastmf.learning.evidence import Classification, Hyperparameters


def somewhere(model):
    """A point that is no fixed point."""
    task = problem_of(model)
    state = start_of(task)
    site = state.site * np.random.default_rng(1).uniform(0.7, 1.3, state.site.shape)
    return task, moment_descent.evaluate(task, site, state.cavity)


@pytest.mark.parametrize(
    "width, precision",
    [
        *((1e-3, 1e-10), (1.0, 1e-10), (10.0, 1e-10), (72.0, 1e-10)),
        *((1e-5, 1e-4), (1e-3, 1e-4), (1e-2, 1e-4), (1.0, 1e-4)),
    ],
)
def test_curvature_of_units_far_from_their_cavity(width, precision):
    """On a half-line, with so little precision that they follow an exponential distribution."""
    prior = mf.TruncatedGaussian(np.zeros(2), precision, 0.0, np.inf)
    task = problem_of(mf.SparseLinearModel(np.eye(2), np.zeros(2), 1.0, prior))
    cavity = np.array([[-1 / width] * 2, [1e-7 / width**2] * 2])
    tilted = np.stack(prior.moments(*cavity))
    shift = np.array([0.0, 0.3 * width])
    point = inner_loop.InnerPoint(cavity, cavity, tilted - [shift, [0, 0]], tilted, 0.0)
    # Cumulants of an exponential distribution are width^n (n - 1)!
    second, third, fourth = width**2, 2 * width**3, 6 * width**4
    expected = (
        second + 0 * shift,
        -(third / 2 + shift * second),
        (fourth + 2 * second**2) / 4 + shift * third + shift**2 * second,
    )
    np.testing.assert_allclose(curvature.unit_curvature(task, point), expected, rtol=0.02)


def test_active_units_are_those_most_correlated_with_all_others(monkeypatch):
    """Also where a site of negative precision and the data cancel in a unit's own precision."""
    monkeypatch.setattr(curvature, "MAX_JOINT_UNITS", 20)
    task, point = somewhere(problem(20, 90, inclusion_probability=0.2)[0])
    site = point.site.copy()
    site[1, :5] *= -0.1
    point = moment_descent.evaluate(task, site, point.cavity)
    covariance = task.side.covariance(site, np.arange(90))
    var = covariance.diagonal()
    coupling = (covariance**2 / (var[:, None] * var)).sum(1)
    active = curvature.active_units(task, point)
    np.testing.assert_array_equal(active, np.sort(np.argsort(coupling)[-20:]))


def test_active_units_are_all_that_are_correlated_and_no_others():
    rng, n_free, n_tied = np.random.default_rng(0), 300, 250
    X = rng.normal(size=(n_tied // 2, n_tied))
    X = np.concatenate([np.zeros((len(X), n_free)), X], axis=1)
    prior = mf.GaussBernoulli(np.zeros(n_free + n_tied), np.ones(n_free + n_tied), 0.0)
    model = mf.SparseLinearModel(X, rng.normal(size=len(X)), 0.1, prior)
    task, point = somewhere(model)
    active = curvature.active_units(task, point)
    np.testing.assert_array_equal(active, n_free + np.arange(n_tied))


def test_classes_that_are_nearly_separable_converge_in_few_steps():
    """More units are correlated than the 200 that were once taken together: it took hundreds."""
    rng, n, d = np.random.default_rng(1), 150, 225
    X, w = rng.normal(size=(n, d)), np.zeros(d)
    w[:10] = 3 * rng.normal(size=10)
    classes = Classification.of(X, np.sign(X @ w), np.zeros(d, int))
    slabs = (
        classes.model(Hyperparameters(1.0, variance, np.array([-3.6]))) for variance in (25.0, 65.0)
    )
    first = mf.expectation_propagation(next(slabs), schedule="auto", tol=1e-4)
    result = mf.expectation_propagation(next(slabs), first, schedule="auto", tol=1e-8, max_iter=60)
    assert result.converged and result.schedule == "convergent"


def test_active_units_are_there_where_rounding_decides_on_the_gaussian(monkeypatch):
    monkeypatch.setattr(curvature, "MAX_JOINT_UNITS", 20)
    task, point = somewhere(problem(20, 90, inclusion_probability=0.2)[0])
    monkeypatch.setattr(type(task.side), "moments", lambda side, sites: None)
    active = curvature.active_units(task, point)
    assert len(np.unique(active)) == 20


@pytest.mark.parametrize("max_joint, close", [(200, 1e-5), (3, None)])
def test_the_inverse_curvature_is_that_of_the_inner_gradient(monkeypatch, max_joint, close):
    """By differences of the gradient; with fewer active units, in the blocks that are kept."""
    monkeypatch.setattr(curvature, "MAX_JOINT_UNITS", max_joint)
    monkeypatch.setattr(curvature, "MAX_NEWTON_UNITS", 0)
    task = problem_of(problem(12, 6)[0])
    state = start_of(task)
    marginal = inner_loop.natural(state.gaussian)
    point = inner_loop.evaluate(task, marginal, state.site)
    inverse = curvature.InverseCurvature.at(task, point)
    hessian, h = np.empty((12, 12)), 1e-4
    for k in range(12):
        shift = np.zeros(12)
        shift[k] = h
        ends = [
            inner_loop.evaluate(task, marginal, state.site + s * shift.reshape(2, 6)).gradient()
            for s in (1, -1)
        ]
        hessian[k] = -np.ravel(ends[0] - ends[1]) / (2 * h)
    if close is not None:
        product = np.stack([inverse(row.reshape(2, 6)).ravel() for row in hessian])
        np.testing.assert_allclose(product, np.eye(12), atol=close)
    mean = point.gaussian[0]
    centre = np.eye(12)
    centre[:6, 6:] = np.diag(mean)
    hessian = centre.T @ hessian @ centre
    np.testing.assert_allclose(inverse.first, hessian.diagonal()[:6], rtol=1e-4)
    np.testing.assert_allclose(inverse.second, hessian.diagonal()[6:], rtol=1e-4)
    np.testing.assert_allclose(inverse.mixed, hessian[:6, 6:].diagonal(), rtol=1e-4)
    assert len(inverse.active) == min(max_joint, 6)
