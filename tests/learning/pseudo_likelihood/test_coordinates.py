"""Coordinates of binary and ordinal machines."""

import numpy as np
import ordinal_data
import pytest

from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.ordinal.objective import OrdinalLikelihood
from fastmf.learning.pseudo_likelihood.ordinal.thresholds import KINDS, Thresholds

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


def test_products_with_the_hessian_without_its_matrix():
    objective = chain()
    parameters, vector = 0.2 * np.random.default_rng(2).normal(size=(2, objective.n_parameters))
    found = objective.hessian_product(parameters, vector)
    np.testing.assert_allclose(found, objective.hessian(parameters) @ vector, atol=1e-10)
