import numpy as np
import pytest

from fastmf.learning.pseudo_likelihood.binary.coordinates import (
    Coordinates,
    SeparateCoordinates,
)
from fastmf.learning.pseudo_likelihood.binary.distinct_rows import distinct_rows
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.newton import hessian_solver


def chain(agreement=0.9, d=7, n=500):
    """WeightedRows in which neighbours agree often."""
    rng = np.random.default_rng(0)
    same = np.hstack([rng.random((n, 1)) < 0.6, rng.random((n, d - 1)) < agreement])
    return PseudoLikelihood(distinct_rows(np.cumprod(np.where(same, 1.0, -1.0), axis=1)))


@pytest.mark.parametrize("kind", [Coordinates, SeparateCoordinates])
def test_there_and_back_and_the_gradient(kind):
    objective = chain()
    coordinates = kind(objective)
    rng = np.random.default_rng(1)
    parameters, gradient = rng.normal(size=(2, objective.n_parameters))
    x = coordinates.from_parameters(parameters)
    np.testing.assert_allclose(coordinates.to_parameters(x), parameters, atol=1e-12)
    direction = rng.normal(size=len(x))
    assert coordinates.gradient(gradient) @ direction == pytest.approx(
        gradient @ coordinates.to_parameters(direction), rel=1e-12
    )


def test_the_hessian_of_correlated_units_is_nearly_the_identity():
    """Exactly, but for couplings having no diagonal, if sech^2 eta were the same in all rows."""
    objective = chain()
    covariance = objective.second - np.outer(objective.mean, objective.mean)
    hessian = objective.common_hessian(1 / np.linalg.inv(covariance).diagonal())
    spread = {}
    for kind in (Coordinates, SeparateCoordinates):
        coordinates = kind(objective)
        n = len(coordinates.from_parameters(np.zeros(objective.n_parameters)))
        matrix = np.transpose([coordinates.to_parameters(unit) for unit in np.eye(n)])
        values = np.linalg.eigvalsh(matrix.T @ hessian @ matrix)[-objective.n_parameters :]
        spread[kind] = values[-1] / values[0]
        if kind is Coordinates:
            units = objective.n_units
            assert (abs(values - 1) < 0.02).sum() >= objective.n_parameters - units
    assert 5 * spread[Coordinates] < spread[SeparateCoordinates]


def test_equations_with_the_hessian_without_its_matrix():
    objective = chain()
    rng = np.random.default_rng(2)
    parameters, right = 0.2 * rng.normal(size=(2, objective.n_parameters))
    solve = hessian_solver(objective, parameters)
    found, solved = solve(right, tol=1e-10, max_iter=200)
    expected = np.linalg.solve(objective.hessian(parameters), right)
    assert solved
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert not solve(right, tol=1e-10, max_iter=2)[1]
    stopped, solved = solve(right, tol=1e-10, max_iter=200, stop=lambda: True)
    assert not solved and not stopped.any()
