"""Coordinates of ordinal machines."""

import numpy as np
import ordinal_data
import pytest

from fastmf.learning.pseudo_likelihood.ordinal.objective import OrdinalLikelihood
from fastmf.learning.pseudo_likelihood.ordinal.thresholds import Thresholds

SIZES = [2, 3, 5, 4]


def objective_of(kind, states, **options):
    return OrdinalLikelihood(states, np.ones(len(states)), Thresholds(SIZES, kind), **options)


@pytest.mark.parametrize("kind", ["free", "blume_capel"])
def test_there_and_back_and_the_gradient(kind):
    objective = objective_of(kind, ordinal_data.random_rows(SIZES)[0], l2=0.1, l2_field=0.2)
    coordinates = objective.coordinates(separate=False)
    parameters, gradient, z = np.random.default_rng(0).normal(size=(3, objective.n_parameters))
    there = coordinates.from_parameters(parameters)
    np.testing.assert_allclose(coordinates.to_parameters(there), parameters, atol=1e-12)
    expected = gradient @ coordinates.to_parameters(z)
    assert coordinates.gradient(gradient) @ z == pytest.approx(expected)
