import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

from fastmf.learning.quasi_newton import minimise

BOX = np.full(4, -5.0), np.full(4, 5.0)


def test_a_curved_valley_is_followed_to_its_end():
    found = minimise(lambda x: (rosen(x), rosen_der(x)), np.array([-1.2, 1, -1, 2]), *BOX,
                     tol=1e-14, max_iter=300)  # fmt: skip
    np.testing.assert_allclose(found, 1, atol=1e-5)


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

    found = minimise(objective, np.zeros(4), low, high, tol=1e-14 * scale, max_iter=200)
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

        found = minimise(objective, start, low, high, tol=1e-12, max_iter=200)
        expected = minimize(objective, start, jac=True, bounds=np.transpose([low, high]), tol=1e-14)
        assert objective(found)[0] == pytest.approx(expected.fun, abs=1e-8)


def test_steps_are_short_and_what_has_no_value_is_avoided():
    tried = []

    def objective(x):
        tried.append(x)
        if x[0] < 0.5:
            return np.inf, np.full(1, np.nan)
        return float((x**2).sum()), 2 * x

    found = minimise(objective, np.array([8.0]), np.array([-9.0]), np.array([9.0]), max_iter=60)
    assert 0.5 <= found[0] < 0.51
    assert max(abs(np.diff(np.ravel(tried)))) <= 1 + 1e-12


def test_curvatures_that_are_given_shorten_the_steps():
    """Of n x / 2 + r exp(-x) / 2, from above: differences of gradients alone lead beyond 0."""
    tried = []

    def objective(x):
        tried.append(x[0])
        return float(x[0] + np.exp(-x[0])), 1 - np.exp(-x)

    def mean_curvature(gradient):  # exact: a Newton step leads to 0
        return -gradient / np.log1p(-gradient) if gradient != 0 else np.ones(1)

    options = dict(first=lambda: np.full(1, 0.3), tol=1e-8)
    for curvature in (None, mean_curvature):
        tried.clear()
        x = minimise(objective, np.full(1, 5.5), *np.array([[-9.0], [9.0]]), curvature=curvature,
                     **options)  # fmt: skip
        assert x[0] == pytest.approx(0, abs=1e-4)
        assert (min(tried) < -1e-3) == (curvature is None)
    assert len(tried) <= 8


@pytest.mark.parametrize("start", [0.0, 1e-12, -5.0])
def test_a_start_at_the_minimum_is_the_result(start):
    """Inside, there up to rounding, or on the side of the box towards which the function falls."""
    evaluated = []

    def objective(x):
        evaluated.append(x)
        slope = 1.0 if start == -5 else 0.0
        return float((x**2).sum() * (1 - slope) + slope * x.sum()), 2 * x * (1 - slope) + slope

    found = minimise(objective, np.full(4, start), *BOX, max_iter=1)
    np.testing.assert_array_equal(found, start)
    assert len(evaluated) == 1


def test_another_objective_is_followed_from_where_it_is_told():
    """From the second trial on another quadratic, whose values are all larger."""
    centres, tried = np.array([[3.0, 1.0], [-2.0, 0.5]]), []

    def objective(x):
        tried.append(x)
        late = int(len(tried) > 2)
        change = x - centres[late]
        return float(change @ change / 2) + 100 * late, change, len(tried) == 3

    box = np.full(2, -9.0), np.full(2, 9.0)
    found = minimise(objective, np.zeros(2), *box, tol=1e-12, max_iter=60)
    np.testing.assert_allclose(found, centres[1], atol=1e-5)
