"""Where the solvers of maximum pseudo-likelihood start.

Uncoupled units have h_j = atanh of the mean of x_j, J = 0. From there the maximum of a quadratic
minorant is one solution of linear equations: -ln cosh lies above the parabola that touches it at
+-h_j with curvature tanh(h_j) / h_j (Jaakkola & Jordan 2000), so that the log-pseudo-likelihood
rises by no less than the minorant. The other starts are mean-field inversions.
"""

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from fastmf._common.linalg import cholesky_with_ridge
from fastmf.learning.pseudo_likelihood.binary import inverse_ising
from fastmf.learning.pseudo_likelihood.binary.coordinates import Coordinates
from fastmf.learning.pseudo_likelihood.fit import TOLERANCE_ROWS
from fastmf.special import log_2_cosh

# Parameters up to which the minorant's maximum is found by a factorisation of its Hessian, beyond
# by conjugate gradients.
_MAX_FACTORISED_PARAMETERS = 300


def starting_point(objective, how, n_rows=TOLERANCE_ROWS):
    """Parameters where a solver starts."""
    # Half a row of each value keeps the field finite.
    shrinkage = n_rows / (n_rows + 1)
    mean = shrinkage * objective.mean
    independent = np.zeros(objective.n_parameters)
    independent[: objective.n_units] = np.arctanh(mean)
    if how == "independent":
        return independent
    if how == "minorant":
        return independent + _step_to_minorant_maximum(objective, independent, mean)
    covariance = objective.second - np.outer(objective.mean, objective.mean)
    covariance *= shrinkage
    np.fill_diagonal(covariance, 1 - mean**2)
    # A nearly singular covariance would give arbitrarily strong couplings.
    covariance[np.diag_indices_from(covariance)] += 0.01
    invert = inverse_ising.naive_mean_field if how == "naive_mean_field" else (
        inverse_ising.tap_inversion)  # fmt: skip
    found = objective.packed(*invert(mean, covariance))
    if how == "auto":
        # Uncoupled units have the same field in every row.
        field = independent[: objective.n_units]
        value = (
            objective.mean * field - log_2_cosh(field)
        ).sum() - objective.l2 / 2 * field @ field
        return independent if value > objective.value_and_gradient(found)[0] else found
    return found


def _step_to_minorant_maximum(objective, independent, tanh):
    """Step from uncoupled units to the maximum of the quadratic minorant that touches there.

    As all rows have the same local fields, means and second moments are enough. Newton's own first
    step would saturate units that are strongly coupled.
    """
    field = independent[: objective.n_units]
    curvature = np.ones_like(field)
    np.divide(tanh, field, out=curvature, where=field != 0)
    coupling_gradient = objective.second - np.outer(objective.mean, tanh)
    gradient = objective.packed(coupling_gradient + coupling_gradient.T, objective.mean - tanh)
    gradient -= objective.l2 * independent
    if objective.n_parameters <= _MAX_FACTORISED_PARAMETERS:
        return cholesky_with_ridge(objective.common_hessian(curvature).T).solve(gradient)
    return _solve_by_conjugate_gradients(objective, curvature, gradient)


def _solve_by_conjugate_gradients(objective, curvature, gradient, tol=1e-3, max_iter=200):
    """Solution of the equations with `common_hessian(curvature)`, without making that matrix.

    A product with it takes n_units^3 operations. The Hessian is nearly the identity in
    `Coordinates`, which precondition. Each iteration raises the quadratic function.
    """
    coordinates, size = Coordinates(objective), len(gradient)

    def times(vector):
        couplings, field = objective.unpacked(vector)
        of_field = curvature * (field + couplings @ objective.mean)
        of_couplings = np.outer(field, objective.mean) + couplings @ objective.second
        of_couplings *= curvature[:, None]
        return objective.packed(of_couplings + of_couplings.T, of_field) + objective.l2 * vector

    def preconditioned(vector):
        return coordinates.to_parameters(coordinates.gradient(vector))

    matrix, inverse = (
        LinearOperator((size, size), matvec=function, dtype=float)
        for function in (times, preconditioned)
    )
    return cg(matrix, gradient, rtol=tol, maxiter=max_iter, M=inverse)[0]
