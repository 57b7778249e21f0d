"""L-BFGS by inner products."""

import numpy as np
import pytest
import scipy

from fastmf.learning.pseudo_likelihood.lbfgs import minimise


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


def test_many_chunks_and_threads_do_not_matter():
    n = 300_000
    scale = np.linspace(1, 5, n).astype(np.float32)

    def function(z, gradient):
        gradient[:] = scale * (z - 1)
        return float(np.sum((z - 1) * gradient, dtype=float)) / 2

    results = [
        minimise(
            function, np.zeros(n, np.float32), tol=1e-3, max_iter=50, n_threads=n_threads
        ).parameters
        for n_threads in (1, 2)
    ]
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], 1, atol=1e-3)


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
