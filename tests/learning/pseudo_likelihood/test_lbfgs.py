"""L-BFGS by inner products."""

import numpy as np
import ordinal_data
import pytest
import scipy
from populations import population
from potts_data import random_rows

from fastmf.learning.pseudo_likelihood.binary import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.fit import minimise, newton
from fastmf.learning.pseudo_likelihood.ordinal import KINDS, OrdinalLikelihood, Thresholds
from fastmf.learning.pseudo_likelihood.potts.dense import DenseObjective


def quadratic(n, condition, seed=0):
    """A convex quadratic function, its minimum there and its value at it."""
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.normal(size=(n, n)))[0]
    matrix = (vectors * np.geomspace(1, condition, n)) @ vectors.T
    best = rng.normal(size=n)

    def function(z, gradient):
        gradient[:] = matrix @ (z - best)
        return float((z - best) @ gradient) / 2 + 1

    return function, best


@pytest.mark.parametrize("condition", [1, 30, 1e4])
def test_minimum_of_a_quadratic_function(condition):
    function, best = quadratic(40, condition)
    found = minimise(function, np.zeros(40), tol=1e-14, max_iter=3000)
    assert found.stopped
    np.testing.assert_allclose(found.parameters, best, atol=1e-5)
    assert (np.diff(found.history) <= 0).all()


def test_gains_below_rounding_are_taken_in_the_first_steps():
    matrix = np.diag(np.linspace(0.5, 2, 10))

    def function(z, gradient):
        gradient[:] = matrix @ (z - 1e-10)
        return 1e6 + float((z - 1e-10) @ gradient) / 2

    found = minimise(function, np.zeros(10), tol=1e-3, max_iter=100)
    assert found.stopped and len(found.history) <= 6
    np.testing.assert_allclose(found.parameters, 1e-10, rtol=0.05)


def test_far_start_of_a_function_that_is_not_quadratic():
    def function(z, gradient):
        gradient[:] = np.tanh(z - 1) + 0.01 * z
        return float(np.log(np.cosh(z - 1)).sum() + 0.005 * z @ z)

    z = np.full(100, 30.0)
    found = minimise(function, z, tol=1e-14, max_iter=200)
    root = scipy.optimize.brentq(lambda z: np.tanh(z - 1) + 0.01 * z, 0, 1)
    assert found.stopped and found.parameters is z
    np.testing.assert_allclose(z, root, atol=1e-6)


def test_many_variables_in_single_precision():
    n = 300_000
    scale = np.linspace(1, 5, n).astype(np.float32)

    def function(z, gradient):
        gradient[:] = scale * (z - 1)
        return float(np.sum((z - 1) * gradient, dtype=float)) / 2

    result = minimise(function, np.zeros(n, np.float32), tol=1e-3, max_iter=50).parameters
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, 1, atol=1e-3)


def test_it_stops_at_rounding_errors_and_at_the_limit():
    function, _ = quadratic(30, 100)
    assert minimise(function, np.zeros(30), tol=0, max_iter=3000).stopped
    found = minimise(function, np.zeros(30), tol=0, max_iter=3)
    assert not found.stopped and len(found.history) == 3


@pytest.mark.parametrize("condition", [1, 100, 1e4])
def test_lasso_of_a_quadratic_function(condition):
    """Optimality conditions, with variables that have no penalty, from both sides of zero."""
    function, _ = quadratic(40, condition)
    size, gradient = np.sqrt(condition), np.empty(40)
    l1 = np.where(np.arange(40) < 5, 0.0, 0.6 * size)
    results = []
    for start in (np.zeros(40), np.full(40, -3.0)):
        found = minimise(function, start, tol=1e-13, max_iter=3000, l1=l1)
        assert found.stopped and (np.diff(found.history) <= 0).all()
        value = function(found.parameters, gradient)
        assert found.history[-1] == pytest.approx(value + l1 @ abs(found.parameters))
        zero = found.parameters == 0
        assert 2 < zero.sum() < 35 and not zero[:5].any()
        assert (abs(gradient[zero]) <= l1[zero] + 1e-5 * size).all()
        np.testing.assert_allclose(
            gradient[~zero], -(l1 * np.sign(found.parameters))[~zero], atol=1e-5 * size
        )
        results.append(found.parameters)
    np.testing.assert_allclose(*results, atol=1e-5)


# --- newton ---------------------------------------------------------------------------------------


def test_newton_from_a_saturated_start():
    objective, truth = population(d=4)
    fit = newton(objective, truth + 30)
    assert fit.stopped
    np.testing.assert_allclose(fit.parameters, truth, atol=1e-10)


def test_steps_towards_saturation_are_doubled():
    """Newton's own steps each take about one off |2 eta|, of which there are eighteen."""
    objective = PseudoLikelihood(np.array([[1.0], [-1.0]]), np.array([1e8, 1.0]))
    fit = newton(objective, np.zeros(1), tol=1e-8)
    assert fit.stopped and len(fit.history) < 18
    assert fit.parameters[0] == pytest.approx(np.log(1e8) / 2)


@pytest.mark.parametrize("l2", [0.1, 0.0])
def test_the_gradient_vanishes_where_the_hessian_is_singular(l2):
    """Changes of gauge leave the value as it is; the ridge along them does not move the maximum."""
    sizes = np.array([3, 4, 2])
    objective = DenseObjective(*random_rows(sizes, 400), sizes, l2, l2)
    fit = newton(objective, objective.independent(), tol=1e-8)
    assert fit.stopped and len(fit.history) < 20
    assert abs(objective.value_and_gradient(fit.parameters)[1]).max() < 1e-9


# --- coordinates of binary and ordinal machines ---------------------------------------------------


SIZES = [2, 3, 5, 4]


def chain(agreement=0.9, d=7, n=500):
    """Rows in which neighbours agree often."""
    rng = np.random.default_rng(0)
    same = np.hstack([rng.random((n, 1)) < 0.6, rng.random((n, d - 1)) < agreement])
    return PseudoLikelihood(np.cumprod(np.where(same, 1.0, -1.0), axis=1), l2=0.05)


def items(kind):
    states = ordinal_data.random_rows(SIZES)[0]
    return OrdinalLikelihood(
        states, np.ones(len(states)), Thresholds(SIZES, kind), l2=0.1, l2_field=0.2
    )


@pytest.mark.parametrize("kind", ["spins", *KINDS])
@pytest.mark.parametrize("separate", [False, True])
def test_there_and_back_and_the_gradient(kind, separate):
    objective = chain() if kind == "spins" else items(kind)
    coordinates = objective.coordinates(separate)
    rng = np.random.default_rng(1)
    parameters, gradient = rng.normal(size=(2, objective.n_parameters))
    x = coordinates.from_parameters(parameters)
    np.testing.assert_allclose(coordinates.to_parameters(x), parameters, atol=1e-12)
    direction = rng.normal(size=len(x))
    assert coordinates.gradient(gradient) @ direction == pytest.approx(
        gradient @ coordinates.to_parameters(direction), rel=1e-12
    )
