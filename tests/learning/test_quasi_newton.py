from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der, rosen_hess

from fastmf.learning.quasi_newton import SearchPoint, minimise

BOX = np.full(4, -5.0), np.full(4, 5.0)


def of_slope(function):
    """The objective of a function that returns a value and a gradient, of unknown curvature.

    That of the first point stands for it, with which the first step is as long as the gradient.
    """
    scale = []

    def objective(x):
        value, gradient = function(x)
        scale.append(max(abs(gradient).max(), 1e-300))
        return SearchPoint(value, gradient, scale[0] * np.eye(len(x)))

    return objective


@pytest.mark.parametrize("start", [(-1.2, 1, -1, 2), (1.2, 1, -1, 2), (-3, -4, 3, 3)])
def test_a_curved_valley_is_followed_to_its_end(start):
    """With the matrix of second derivatives, that made positive definite."""

    def objective(x):
        values, vectors = np.linalg.eigh(rosen_hess(x))
        return SearchPoint(rosen(x), rosen_der(x), vectors * np.maximum(values, 0.1) @ vectors.T)

    found = minimise(objective, np.array(start, float), *BOX, tol=1e-14, max_iter=100)
    # The function of four variables has a second minimum near (-0.776, 0.613, 0.382, 0.146).
    minimum = np.ones(4) if found[0] > 0 else minimize(rosen, found, jac=rosen_der, tol=1e-12).x
    np.testing.assert_allclose(found, minimum, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-2, 1, 1e4])
def test_bounds_hold_and_the_minimum_on_them_is_found(scale):
    """The minimum of a quadratic in a box, against its own optimality conditions."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 4))
    hessian, centre = scale * A.T @ A, 3 * rng.normal(size=4)
    low, high = -np.ones(4), np.ones(4)

    def objective(x):
        assert (low <= x).all() and (x <= high).all()
        return (x - centre) @ hessian @ (x - centre) / 2, hessian @ (x - centre)

    found = minimise(of_slope(objective), np.zeros(4), low, high, tol=1e-14 * scale, max_iter=200)
    gradient = objective(found)[1] / scale
    inside = (low < found) & (found < high)
    assert not inside.all()
    np.testing.assert_allclose(gradient[inside], 0, atol=1e-4)
    assert (gradient[found == low] >= 0).all() and (gradient[found == high] <= 0).all()


@pytest.mark.parametrize("seed", range(0, 60, 4))
def test_sides_of_the_box_are_left_again_where_that_leads_down(seed):
    """Against SciPy's L-BFGS-B, from starts on some of the sides, whose steps others cut off."""
    rng = np.random.default_rng(seed)
    for n in (2, 3, 4):
        A, centre = rng.normal(size=(n, n)), 3 * rng.normal(size=n)
        hessian = A @ A.T + 0.1 * np.eye(n)
        low, high = -2 * rng.random(n), 2 * rng.random(n)
        start = np.where(rng.random(n) < 0.5, low, rng.uniform(low, high))

        def objective(x, hessian=hessian, centre=centre):
            value = x @ hessian @ x / 2 - centre @ x + 0.1 * np.cosh(x).sum()
            return value, hessian @ x - centre + 0.1 * np.sinh(x)

        found = minimise(of_slope(objective), start, low, high, tol=1e-12, max_iter=200)
        expected = minimize(objective, start, jac=True, bounds=np.transpose([low, high]), tol=1e-14)
        assert objective(found)[0] == pytest.approx(expected.fun, abs=1e-8)


def test_steps_grow_slowly_and_points_without_a_value_end_the_search():
    """Three of them, although each is followed by a step that goes well."""
    tried = []

    def objective(x):
        tried.append(x)
        if x[0] < 0.5:
            return np.inf, np.full(1, np.nan)
        return float((x**2).sum()), 2 * x

    box = np.array([-9.0]), np.array([9.0])
    found = minimise(of_slope(objective), np.array([8.0]), *box, max_iter=60)
    assert 0.5 <= found[0] < 0.7
    assert np.ravel(tried)[:3].tolist() == [8, 7, 5]
    assert (np.ravel(tried) < 0.5).sum() == 3


def test_smallest_curvatures_shorten_the_steps():
    """Of x + exp(-x), from above: the curvature here, of points far away, leads beyond 0."""
    tried = []

    def objective(x, known):
        tried.append(x[0])
        slope = 1 - np.exp(-x)
        # Exact, so that a Newton step leads to 0.
        mean_curvature = -slope / np.log1p(-slope) if slope != 0 else np.ones(1)
        value = float(x[0] + np.exp(-x[0]))
        return SearchPoint(value, slope, np.full((1, 1), 0.3), mean_curvature if known else 0.0)

    for known in (False, True):
        tried.clear()
        x = minimise(partial(objective, known=known), np.full(1, 5.5),
                     *np.array([[-9.0], [9.0]]), tol=1e-8)  # fmt: skip
        assert x[0] == pytest.approx(0, abs=1e-4)
        assert (min(tried) < -1e-3) == (not known)
    assert len(tried) <= 8


def test_the_last_step_is_made_without_an_evaluation():
    """To the minimum of a quadratic of known curvature, which is nowhere evaluated."""
    tried, hessian = [], np.array([[2.0, 0.5], [0.5, 1.0]])

    def objective(x):
        tried.append(x)
        change = x - 0.1
        return SearchPoint(float(change @ hessian @ change / 2), hessian @ change, hessian)

    found = minimise(objective, np.zeros(2), np.full(2, -9.0), np.full(2, 9.0), tol=1.0)
    np.testing.assert_allclose(found, 0.1, rtol=1e-12)
    assert len(tried) == 1


@pytest.mark.parametrize("start", [0.0, 1e-12, -5.0])
def test_a_start_at_the_minimum_is_the_result(start):
    """Inside, there up to rounding, or on the side of the box towards which the function falls."""
    evaluated = []

    def objective(x):
        evaluated.append(x)
        slope = 1.0 if start == -5 else 0.0
        value = float((x**2).sum() * (1 - slope) + slope * x.sum())
        return SearchPoint(value, 2 * x * (1 - slope) + slope, 2 * np.eye(4))

    found = minimise(objective, np.full(4, start), *BOX, max_iter=1)
    np.testing.assert_allclose(found, start, atol=2e-12)
    assert len(evaluated) == 1


def test_another_objective_is_followed_from_where_it_is_told():
    """From the second trial on another quadratic, whose values are all larger."""
    centres, tried = np.array([[3.0, 1.0], [-2.0, 0.5]]), []

    def objective(x):
        tried.append(x)
        late = int(len(tried) > 2)
        change = x - centres[late]
        changed = len(tried) == 3
        return SearchPoint(
            float(change @ change / 2) + 100 * late, change, 2 * np.eye(2), changed=changed
        )

    box = np.full(2, -9.0), np.full(2, 9.0)
    found = minimise(objective, np.zeros(2), *box, tol=1e-12, max_iter=60)
    np.testing.assert_allclose(found, centres[1], atol=1e-5)
