"""Errors of a maximum pseudo-likelihood estimate: the sandwich covariance, and tests upon it."""

from typing import NamedTuple

import numpy as np
from scipy import linalg, stats
from scipy.sparse.linalg import LinearOperator, cg

from fastmf._common.memory import memory_of_the_machine
from fastmf.learning.pseudo_likelihood.chi_squares import survival
from fastmf.learning.pseudo_likelihood.coordinates import Coordinates
from fastmf.learning.pseudo_likelihood.objective import symmetric
from fastmf.learning.pseudo_likelihood.solvers import newton, starting_point


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
    """Inverse of a positive definite matrix, in its place if that may be written to."""
    # Of a symmetric matrix the transpose is itself, in LAPACK's order.
    overwrite = hessian.flags.writeable
    factor, failed = linalg.lapack.dpotrf(hessian.T, lower=1, overwrite_a=overwrite)
    if failed:
        raise linalg.LinAlgError("the Hessian is not positive definite")
    inverse, _ = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    return symmetric(inverse)


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


def standard_errors(objective, parameters):
    """Standard errors of all parameters: the sandwich's diagonal, without the sandwich.

    Parameters
    ----------
    objective : PseudoLikelihood
    parameters : array of shape (n_parameters,)

    Returns
    -------
    array of shape (n_parameters,)

    Raises
    ------
    MemoryError
        If the machine has no room for two matrices of n_parameters^2 numbers.

    Notes
    -----
    Some n_rows n_parameters^2 + 3 n_parameters^3 operations.
    """
    n = len(parameters)
    n_bytes = 16 * n**2
    if n_bytes > memory_of_the_machine():
        raise MemoryError(
            f"all standard errors at once need two matrices of {n} x {n} numbers, "
            f"{n_bytes / 2**30:.3g} GiB, and the machine has {memory_of_the_machine() / 2**30:.3g}:"
            " ask for the standard errors of some `pairs`."
        )
    inverse = inverse_of(objective.hessian(parameters))
    covariance = objective.score_covariance(parameters)
    variances = np.empty(n)
    for i in range(0, n, 1024):
        rows = inverse[i : i + 1024]
        variances[i : i + 1024] = ((rows @ covariance) * rows).sum(1)
    return np.sqrt(variances / objective.total)


class RatioTest(NamedTuple):
    """Composite likelihood-ratio test of a machine without some couplings against one with them.

    Parameters
    ----------
    statistic : float
        Twice the fall of the log-pseudo-likelihood of all rows together.
    p_value : float
    weights : array of shape (n_couplings,)
        Without those couplings the statistic is, in many rows, the sum of these times independent
        chi-squared variables of one degree of freedom. They were all one if it were a likelihood.
    parameters : array of shape (n_parameters,)
        Of the machine without those couplings.
    """

    statistic: float
    p_value: float
    weights: np.ndarray
    parameters: np.ndarray


class _Restricted:
    """An objective with some parameters held at zero."""

    def __init__(self, objective, free):
        self._objective, self._free, self.total = objective, free, objective.total

    def whole(self, parameters):
        out = np.zeros(self._objective.n_parameters)
        out[self._free] = parameters
        return out

    def value_and_gradient(self, parameters):
        value, slope = self._objective.value_and_gradient(self.whole(parameters))
        return value, slope[self._free]

    def hessian(self, parameters):
        return self._objective.hessian(self.whole(parameters))[np.ix_(self._free, self._free)]


def ratio_test(objective, parameters, places):
    """Test whether some parameters are zero.

    Parameters
    ----------
    objective : PseudoLikelihood
        Without penalty.
    parameters : array of shape (n_parameters,)
        Its maximum.
    places : int array of shape (n_places,)
        Parameters that the smaller machine has not, each once.

    Returns
    -------
    RatioTest

    Notes
    -----
    The weights are the eigenvalues of G V^-1, with the blocks of `places` of the sandwich G and of
    the inverse Hessian V (Kent 1982; Varin, Reid & Firth 2011, section 2.3).
    """
    parameters = newton(objective, parameters).parameters
    inverse = inverse_of(objective.hessian(parameters))
    whole = inverse[places] @ objective.score_covariance(parameters) @ inverse[:, places]
    weights = linalg.eigh(whole, inverse[np.ix_(places, places)], eigvals_only=True)
    value = objective.value_and_gradient(parameters)[0]
    free = np.ones(len(parameters), bool)
    free[places] = False
    smaller = _Restricted(objective, free)
    found = newton(smaller, starting_point(objective, "independent")[free])
    fallen = value - smaller.value_and_gradient(found.parameters)[0]
    statistic = float(2 * objective.total * max(fallen, 0))
    weights = np.maximum(weights[::-1], 0)
    # Rounding may leave nothing of weights that are next to none.
    p_value = survival(statistic, weights[weights > 1e-12 * weights[0]])
    return RatioTest(statistic, p_value, weights, smaller.whole(found.parameters))


def sandwich_errors(objective, parameters, places):
    """Standard errors of a few parameters, without any matrix of all parameters.

    Each takes the solution of H v = e by preconditioned conjugate gradients, some ten products
    with H that cost what a gradient costs.

    Parameters
    ----------
    objective : PseudoLikelihood
    parameters : array of shape (n_parameters,)
    places : int array of shape (n_places,)
        Which parameters.

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
    size = len(coordinates.from_parameters(parameters))
    matrix = LinearOperator(
        (size, size), dtype=float,
        matvec=lambda z: coordinates.gradient(times(coordinates.to_parameters(z.reshape(-1)))),
    )  # fmt: skip
    directions = []
    for place in places:
        unit = np.zeros(n)
        unit[place] = 1
        with np.errstate(all="ignore"):
            found, failed = cg(matrix, coordinates.gradient(unit), rtol=1e-6, maxiter=1000)
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
