"""Sites along a search for hyper-parameters: they are predicted where they are nearly linear."""

from dataclasses import replace

import numpy as np
import pytest

from fastmf.learning.evidence import Hyperparameters, Regression, fixed_points
from fastmf.learning.evidence.site_path import MAX_DISTANCE, SitePath

CENTER = np.array([np.log(0.2), np.log(0.5), -2.0])


def task():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 20))
    y = X[:, :3] @ [1.0, -0.7, 0.3] + 0.5 * rng.normal(size=60)
    return Regression(X, y, np.zeros(20, int))


def solved(x):
    here = Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:])
    return fixed_points(task(), here, looseness=1e-6).results


@pytest.mark.parametrize("direction", [np.array([0.04, -0.03, 0.05]), np.array([0.0, 0.06, 0.0])])
def test_a_further_step_along_the_last_one_is_predicted(direction):
    first, second, third = (CENTER + k * direction for k in range(3))
    path, best = SitePath(), solved(second)
    path.add(first, solved(first))
    path.add(second, best)
    (start,), (expected,) = path.start(third, best), solved(third)
    without = abs(best[0].sites - expected.sites).max()
    assert abs(start.sites - expected.sites).max() < 0.2 * without


def test_two_steps_tell_of_a_plane():
    points = [CENTER + np.array(s) for s in ([0.04, 0, 0], [0, 0, 0.05], [0.0, 0.0, 0.0])]
    path = SitePath()
    for x in points:
        best = solved(x)
        path.add(x, best)
    x = CENTER + [-0.03, 0, 0.04]
    (start,), (expected,) = path.start(x, best), solved(x)
    assert abs(start.sites - expected.sites).max() < 0.2 * abs(best[0].sites - expected.sites).max()


def test_steps_that_are_too_long_or_of_other_units_tell_nothing():
    path, best, far = SitePath(), solved(CENTER), CENTER + [0, 2 * MAX_DISTANCE, 0]
    assert path.start(CENTER, None) is None
    path.add(far, solved(far))
    assert path.start(far, best) is best
    path.add(CENTER, best)
    assert path.start(CENTER + 0.01, best) is best
    others = SitePath()
    fewer = tuple(replace(own, sites=own.sites[:, :-1]) for own in best)
    others.add(CENTER + 0.02, fewer)
    others.add(CENTER, best)
    assert others.start(CENTER + 0.01, best) is best


def test_precisions_stay_positive():
    (last,) = best = solved(CENTER)
    raised = replace(last, sites=last.sites * [[1.0], [3.0]])
    path = SitePath()
    path.add(CENTER - 0.01, (raised,))
    path.add(CENTER, best)
    (start,) = path.start(CENTER + 0.0125, best)
    positive = last.sites[1] > 0
    assert 0 < positive.sum() < len(positive)
    np.testing.assert_array_equal(start.sites[:, positive], last.sites[:, positive])
    assert (start.sites[1, ~positive] != last.sites[1, ~positive]).all()
