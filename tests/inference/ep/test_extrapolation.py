"""Anderson's extrapolation, of made-up linear iterations."""

import numpy as np
import pytest

from fastmf.inference.ep.parallel import AndersonExtrapolation


@pytest.mark.parametrize("rates", [[0.5], [0.5, -0.7], [0.8, -1.2, 0.3]])
def test_a_linear_iteration_is_solved_in_as_many_steps_as_it_has_dimensions(rates):
    """Also one that diverges by itself."""
    rng = np.random.default_rng(1)
    directions, goal = rng.normal(size=(len(rates), 20)), rng.normal(size=20)
    inverse = np.linalg.pinv(directions)
    site, extrapolation = goal + rng.normal(size=len(rates)) @ directions, AndersonExtrapolation()
    for _ in range(len(rates) + 1):
        step = ((np.array(rates) - 1) * ((site - goal) @ inverse)) @ directions
        extrapolation.remember(site, step, 3 * step)
        site = extrapolation(1.0)
    np.testing.assert_allclose(site, goal, atol=1e-4)


def test_differences_without_a_scale_are_not_extrapolated():
    extrapolation = AndersonExtrapolation()
    for difference in (np.nan, 1.0):
        extrapolation.remember(np.zeros(2), np.ones(2), np.full(2, difference))
    np.testing.assert_array_equal(extrapolation(1.0), 1)
