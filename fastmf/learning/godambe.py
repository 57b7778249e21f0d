"""Errors of a maximum pseudo-likelihood estimate: the sandwich covariance, and tests upon it."""

from typing import NamedTuple

import numpy as np
from scipy import linalg, stats
from scipy.sparse.linalg import LinearOperator, cg

from fastmf.learning.coordinates import Coordinates


class CouplingTests(NamedTuple):
    """Wald tests of single couplings against zero, one entry a pair j < k.

    Parameters
    ----------
    first, second : int array of shape (n_pairs,)
        The two units.
    coupling, standard_error, z : array of shape (n_pairs,)
    p_value : array of shape (n_pairs,)
        Two-sided, from the normal distribution.
    adjusted : array of shape (n_pairs,)
        p-values adjusted for there being so many tests.
    """

    first: np.ndarray
    second: np.ndarray
    coupling: np.ndarray
    standard_error: np.ndarray
    z: np.ndarray
    p_value: np.ndarray
    adjusted: np.ndarray


def inverse_of(hessian):
    """Inverse of a positive definite matrix."""
    factor, _ = linalg.cho_factor(hessian, lower=True, check_finite=False)
    inverse, _ = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    lower = np.tril(inverse)
    return lower + np.tril(lower, -1).T


def sandwich(objective, parameters):
    """Covariance H^-1 J H^-1 / n of the estimate (Godambe 1960; White 1982).

    Parameters
    ----------
    objective : PseudoLikelihood
        Weights count repetitions of a row.
    parameters : array of shape (n_parameters,)

    Returns
    -------
    array of shape (n_parameters, n_parameters)
    """
    inverse = inverse_of(objective.hessian(parameters))
    return inverse @ objective.score_covariance(parameters) @ inverse / objective.total


def sandwich_errors(objective, parameters, places, tol=1e-6):
    """Standard errors of a few parameters, without any matrix of all parameters.

    Each takes the solution of H v = e by preconditioned conjugate gradients, some tens of products
    with H that cost what a gradient costs.

    Parameters
    ----------
    objective : PseudoLikelihood
    parameters : array of shape (n_parameters,)
    places : int array of shape (n_places,)
        Which parameters.
    tol : float
        Residual of the equations, relative.

    Returns
    -------
    array of shape (n_places,)

    Raises
    ------
    ValueError
        If the Hessian is so near to singular that the equations are not solved.
    """
    n, coordinates = len(parameters), Coordinates(objective)
    times = objective.curvatures(parameters)
    # In coordinates z, parameters = T z, that make the matrix T'HT nearly the identity.
    matrix = LinearOperator(
        (n, n), dtype=float,
        matvec=lambda z: coordinates.gradient(times(coordinates.to_parameters(z.reshape(-1)))),
    )  # fmt: skip
    directions = []
    for place in places:
        unit = np.zeros(n)
        unit[place] = 1
        with np.errstate(all="ignore"):
            found, failed = cg(matrix, coordinates.gradient(unit), rtol=tol, maxiter=1000)
        if failed or not np.isfinite(found).all():
            raise ValueError(
                f"the standard error of parameter {place} was not found in 1000 iterations of "
                "conjugate gradients: the Hessian is nearly singular; fit with a penalty l2."
            )
        directions.append(coordinates.to_parameters(found))
    return np.sqrt(objective.score_variances(parameters, directions) / objective.total)


def adjusted(p_values, method):
    """p-values adjusted for multiple tests.

    Parameters
    ----------
    p_values : array of shape (n_tests,)
    method : {"holm", "bonferroni", "benjamini_hochberg", "benjamini_yekutieli", "none"}
        The first two bound the probability of any false finding, the others the share of false
        findings (Benjamini & Yekutieli whatever the dependence of the tests).

    Returns
    -------
    array of shape (n_tests,)
    """
    n = len(p_values)
    if n == 0 or method == "none":
        return np.array(p_values)
    if method == "bonferroni":
        return np.minimum(n * p_values, 1)
    if method == "holm":
        order = np.argsort(p_values, kind="stable")
        out = np.empty(n)
        out[order] = np.maximum.accumulate(np.arange(n, 0, -1) * p_values[order])
        return np.minimum(out, 1)
    short = {"benjamini_hochberg": "bh", "benjamini_yekutieli": "by"}[method]
    return stats.false_discovery_control(p_values, method=short)


def wald_tests(coupling, standard_error, pairs, method):
    """Wald tests of couplings; see `CouplingTests` and `adjusted`."""
    z = coupling / standard_error
    p_value = 2 * stats.norm.sf(abs(z))
    return CouplingTests(*pairs, coupling, standard_error, z, p_value, adjusted(p_value, method))
