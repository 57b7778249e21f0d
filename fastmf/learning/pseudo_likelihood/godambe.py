"""Asymptotic errors and tests of a maximum pseudo-likelihood estimate, from Godambe's information.

With the mean negative Hessian H of the objective, the covariance J of the scores of the rows, and
the total weight n of the rows, the estimate has the sandwich covariance

    H^-1 J H^-1 / n,

the inverse of the Godambe information (Godambe 1960; White 1982). For a likelihood, H and J would
be equal. For a pseudo-likelihood, twice the decrease of its logarithm when some parameters are
fixed at zero is distributed as a weighted sum of chi-squared variables. The weights are the
eigenvalues of G V^-1, where G and V are the blocks of H^-1 J H^-1 and of H^-1 for these parameters
(Kent 1982; Varin, Reid & Firth 2011, section 2.3).

The weighted sum Q = sum_k w_k X_k, with independent X_k of one degree of freedom, has the cumulant
generating function K(s) = -sum_k ln(1 - 2 w_k s) / 2. Its survival function is the integral of
exp(K(s) - s x) / (2 pi i s) along a path to the right of s = 0.
"""

from typing import NamedTuple

import numpy as np
import scipy
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import ndtr

from fastmf._common.linalg import MIN_EIGENVALUE, cholesky
from fastmf._common.memory import check_available
from fastmf._common.warning import short_repr
from fastmf._threads.workers import computed_once
from fastmf.learning.pseudo_likelihood.fit import (
    BLOCK_NUMBERS,
    MAX_HESSIAN_PARAMETERS,
    few_blas_threads,
    newton,
)


def survival(x, weights):
    """Compute the probability that a weighted sum of chi-squared variables exceeds x.

    The inversion integral of the moment-generating function is evaluated along a parabola through
    the saddle point, to a relative accuracy of about 1e-10, even in the tails. (Kuonen 1999 uses
    the saddle-point approximation of the same integral.)
    """
    weights = np.asarray(weights, float)
    # Scale weights to order one, so that saddle points are at most of the order of their number.
    x, weights = x / weights.max(), weights / weights.max()
    # Beyond these limits the probability is 1 or 0 in double precision for any weights.
    if x <= 1e-100:
        return 1.0
    if x > 3000 + 2 * len(weights):
        return 0.0
    upper = x > weights.sum()

    def cumulant(s):
        return -0.5 * np.log1p(-2 * weights * s).sum() - s * x

    def derivative(s):
        return (weights / (1 - 2 * weights * s)).sum() - x - 1 / s

    # The saddle point is right of the pole at zero for the upper tail, left for the lower tail.
    sign, outer = (1.0, 0.5) if upper else (-1.0, np.inf)
    inner, outer_end = sign / (2 * x + 2), 0.25 if upper else -1.0
    while sign * derivative(inner) > 0:
        inner /= 2
    while sign * derivative(outer_end) < 0:
        outer_end = (outer_end + outer) / 2 if upper else 2 * outer_end
    saddle = scipy.optimize.brentq(derivative, inner, outer_end, rtol=1e-12)
    terms = weights / (1 - 2 * weights * saddle)
    second = 2 * (terms**2).sum() + 1 / saddle**2
    curvature = 2 / 3 * (terms**3).sum() / (terms**2).sum()
    at_saddle = cumulant(saddle)

    def integrand(t):
        s = saddle + curvature * t**2 + 1j * t
        return (np.exp(cumulant(s) - at_saddle) / s * (2 * curvature * t + 1j) / 1j).real

    width = 1 / np.sqrt(second)
    integral = scipy.integrate.quad(
        lambda t: float(integrand(width * t)), 0, np.inf, epsabs=0, epsrel=1e-12, limit=1000
    )[0]
    integral *= width / np.pi
    tail = float(np.exp(at_saddle) * integral)
    return min(max(tail if upper else 1 + tail, 0.0), 1.0)


# Methods of `adjusted`.
ADJUSTMENTS = ("holm", "bonferroni", "benjamini_hochberg", "benjamini_yekutieli", "none")


@short_repr
class CouplingTests(NamedTuple):
    """Wald tests of single couplings being zero, with one entry for each pair j < k.

    Parameters
    ----------
    first, second : int array of shape (n_pairs,)
        The two units.
    coupling, standard_error, z : array of shape (n_pairs,)
    p_value : array of shape (n_pairs,)
        Two-sided, from the normal distribution.
    adjusted : array of shape (n_pairs,)
        p-values adjusted for multiple tests.
    """

    first: np.ndarray
    second: np.ndarray
    coupling: np.ndarray
    standard_error: np.ndarray
    z: np.ndarray
    p_value: np.ndarray
    adjusted: np.ndarray


@short_repr
class RatioTest(NamedTuple):
    """Composite likelihood ratio test of some couplings being zero.

    Parameters
    ----------
    statistic : float
        Twice the decrease of the total log-pseudo-likelihood without the couplings.
    p_value : float
    weights : array of shape (n_couplings,)
        Under the null hypothesis, the statistic is asymptotically distributed as the sum of these
        weights times independent chi-squared variables with one degree of freedom.
    parameters : array of shape (n_parameters,)
        Parameters of the machine without the couplings.
    """

    statistic: float
    p_value: float
    weights: np.ndarray
    parameters: np.ndarray


class Godambe:
    """Godambe's information of a maximum pseudo-likelihood estimate: errors and tests.

    `sampling` has weights of rows (n_rows,), or of rows in clusters, sparse (n_clusters, n_rows),
    as in `PairwiseLikelihood.score_covariance`; by default rows have frequency weights. Variances
    of parameters are at least `min_ratio` times the naive ones.
    """

    def __init__(self, objective, parameters, sampling=None, min_ratio=0.0):
        self.objective, self.parameters, self.sampling = objective, parameters, sampling
        self.min_ratio = min_ratio

    def indices(self, pairs):
        """Return the indices of parameters given pairs of units; (j, j) is for fields."""
        pairs, d = np.asarray(pairs), self.objective.n_units
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
            raise ValueError(f"pairs must be integers of shape (n_pairs, 2), got {pairs!r}.")
        if not ((pairs >= 0) & (pairs < d)).all():
            raise ValueError(f"pairs must name units from 0 to {d - 1}.")
        first, second = pairs.T
        absent = pairs[~self.objective.coupled[first, second] & (first != second)]
        if len(absent):
            raise ValueError(
                f"pairs must be edges of the graph of the fit, got {absent[0].tolist()}."
            )
        return self.objective.indices_of(first, second)

    # --- errors ---------------------------------------------------------------------------------

    def covariance(self):
        """Compute the sandwich covariance H^-1 J H^-1 / n."""
        n = len(self.parameters)
        if n > MAX_HESSIAN_PARAMETERS:
            raise ValueError(
                f"the covariance is for up to {MAX_HESSIAN_PARAMETERS} parameters (109 units); of "
                f"{n} parameters its three matrices take {8e-9 * n**2:.1f} GB each: ask for "
                "`standard_errors` of all parameters or of some `pairs`."
            )
        with few_blas_threads(n):
            inverse, scores = self.inverse, self._scores()
            covariance = inverse @ scores @ inverse.T
            np.fill_diagonal(covariance, self._raised(covariance.diagonal(), inverse))
            return covariance

    def naive_covariance(self):
        """Compute the covariance that would be valid for a likelihood, H^-1 / n."""
        with few_blas_threads(len(self.parameters)):
            return self.inverse / self.objective.total

    def covariances_along(self, directions):
        """Compute sandwich and naive covariances of linear functions, given by sparse matrices."""
        n = len(self.parameters)
        _check_memory(n)
        with few_blas_threads(n):
            inverse, scores = self.inverse, self._scores()
            product, sandwich, naive = inverse @ scores, [], []
            for rows in directions:
                products = rows @ inverse
                sandwich.append((rows @ product) @ products.T)
                naive.append((products @ rows.T) / self.objective.total)
            return sandwich, [(matrix + matrix.T) / 2 for matrix in naive]

    @property
    def effective_rows(self):
        """Effective number of independently sampled rows or clusters (Kish)."""
        if self.sampling is None:
            return self.objective.total
        if sparse.issparse(self.sampling):
            return 1 / float(np.square(self.sampling.sum(1)).sum())
        return 1 / float(np.sum(self.sampling))

    def variances_of(self, gradients, direct):
        """Compute variances of functions of the estimate and of the distribution of the rows."""
        weights = self.objective.weights
        products = gradients @ self.inverse
        rows, ones = slice(len(weights)), np.ones(len(weights))
        influences = direct - weights @ direct
        influences += self.objective.score_products(self.parameters, products, rows, ones)
        influences -= products @ self.objective.mean_score(self.parameters)
        if self.sampling is None:
            return weights @ influences**2 / self.objective.total
        if sparse.issparse(self.sampling):
            return np.square(self.sampling @ influences).sum(0)
        return self.sampling @ influences**2

    def standard_errors(self, pairs=None):
        """Compute standard errors of all parameters, or of the parameters of `pairs`."""
        n, indices = len(self.parameters), slice(None) if pairs is None else self.indices(pairs)
        if pairs is None or n <= MAX_HESSIAN_PARAMETERS:
            _check_memory(n)
            with few_blas_threads(n):
                inverse, scores = self.inverse, self._scores()
                variances = np.einsum("jk,jk->j", inverse @ scores, inverse)
                return np.sqrt(self._raised(variances, inverse))[indices]
        with few_blas_threads():
            return self.standard_errors_without_matrices(indices)

    def _raised(self, variances, inverse):
        """Raise variances of parameters to multiples of the naive ones."""
        return np.maximum(variances, self.min_ratio * inverse.diagonal() / self.objective.total)

    def _scores(self):
        """Return the covariance of the mean score."""
        scores = self.objective.score_covariance(self.parameters, self.sampling)
        scores /= self.objective.total if self.sampling is None else 1.0
        return scores

    @computed_once
    def inverse(self):
        """The inverse H^-1 of the negative Hessian."""
        hessian = self.objective.hessian(self.parameters)
        if self.objective.singular:
            return _pseudo_inverse(hessian)[0]
        # Smaller pivots are rounding errors.
        smallest_pivots = len(hessian) * np.finfo(float).eps * hessian.diagonal()
        try:
            # The transpose of a symmetric matrix is the same matrix in LAPACK's memory order.
            factor = cholesky(hessian.T, overwrite=True)
            if (np.square(factor.lower.diagonal()) <= smallest_pivots).any():
                raise linalg.LinAlgError
        except linalg.LinAlgError:
            raise linalg.LinAlgError(
                "standard errors cannot be computed: the Hessian is not positive definite; fit "
                "with a penalty l2, or leave out units that depend on others linearly."
            ) from None
        return factor.inverse(overwrite=True)

    def standard_errors_without_matrices(self, indices):
        """Compute standard errors of a few parameters without any matrix of all parameters.

        Each one needs the solution of H v = e by preconditioned conjugate gradients, with about ten
        products with H, each of which takes the time of two gradients.
        """
        objective, solutions = self.objective, []
        coordinates = objective.coordinates(separate=False)
        # In coordinates z, parameters = T z, in which T'HT is nearly the identity.
        size = len(coordinates.from_parameters(self.parameters))

        def times(z):
            vector = coordinates.to_parameters(z.reshape(-1))
            return coordinates.gradient(objective.hessian_product(self.parameters, vector))

        matrix = LinearOperator((size, size), matvec=times, dtype=float)
        for index in indices:
            unit = np.zeros(len(self.parameters))
            unit[index] = 1
            with np.errstate(all="ignore"):
                z, failed = cg(matrix, coordinates.gradient(unit), rtol=1e-6, maxiter=1000)
            if failed or not np.isfinite(z).all():
                raise ValueError(
                    f"the standard error of parameter {index} was not found in 1000 iterations of "
                    "conjugate gradients: the Hessian is nearly singular; fit with a penalty l2."
                )
            solutions.append(coordinates.to_parameters(z))
        variances = objective.score_variances(self.parameters, solutions, self.sampling)
        return np.sqrt(variances / (objective.total if self.sampling is None else 1))

    # --- tests ----------------------------------------------------------------------------------

    def wald_tests(self, parameters, adjust):
        """Perform Wald tests of all couplings being zero, with p-values adjusted by a method."""
        d, pairs = self.objective.n_fields, self.objective.pairs
        couplings, errors = parameters[d:], self.standard_errors()[d:]
        z = couplings / errors
        p_value = 2 * ndtr(-abs(z))
        return CouplingTests(*pairs, couplings, errors, z, p_value, adjusted(p_value, adjust))

    def likelihood_ratio_test(self, pairs=None):
        """Test whether the couplings of `pairs`, by default all couplings, are zero."""
        objective = self.objective
        if objective.n_parameters > MAX_HESSIAN_PARAMETERS:
            raise ValueError(
                f"likelihood ratio tests are for up to {MAX_HESSIAN_PARAMETERS} parameters (109 "
                f"units), got {objective.n_parameters}: leave out units."
            )
        indices = np.arange(objective.n_fields, objective.n_parameters)
        if pairs is not None:
            indices = np.unique(self.indices(pairs))
        if not len(indices) or (indices < objective.n_fields).any():
            raise ValueError(
                "pairs must name couplings, each of two different units, at least one."
            )
        with few_blas_threads(objective.n_parameters):
            parameters = newton(objective, self.parameters).parameters
            godambe = Godambe(objective, parameters, self.sampling)
            free = ~np.isin(np.arange(len(parameters)), indices)
            restricted = _Restricted(objective, free)
            point = newton(restricted, objective.independent()[free]).parameters
            value = objective.value_and_gradient(parameters)[0]
            fall = value - restricted.value_and_gradient(point)[0]
            statistic = float(2 * objective.total * max(fall, 0))
            return godambe.ratio_test(statistic, indices, restricted.padded(point))

    def ratio_test(self, statistic, indices, restricted):
        """Test a likelihood ratio by the weights of its chi-squared variables."""
        inverse, scores = self.inverse, self._scores()
        scores *= self.objective.total
        block = inverse[np.ix_(indices, indices)]
        sandwich = inverse[indices] @ scores @ inverse[:, indices]
        if self.objective.singular:
            # Basis of the gauge-invariant directions of these parameters.
            gauge = _pseudo_inverse(self.objective.hessian(self.parameters))[1]
            basis = linalg.null_space(gauge[indices].T, rcond=MIN_EIGENVALUE)
            block, sandwich = basis.T @ block @ basis, basis.T @ sandwich @ basis
        weights = np.maximum(linalg.eigh(sandwich, block, eigvals_only=True)[::-1], 0)
        # Smaller weights are rounding errors.
        p_value = survival(statistic, weights[weights > 1e-12 * weights[0]])
        return RatioTest(statistic, p_value, weights, restricted)


class IncompleteGodambe(Godambe):
    """Godambe's information of an estimate from incomplete rows.

    `sampling` (n_clusters, n_rows) is as in `Godambe`, for rows before completion.
    """

    def __init__(self, objective, parameters, completions, sampling=None):
        if sampling is None:
            factors = np.sqrt(completions.row_weights) / objective.total
            sampling = sparse.diags_array(factors)
        super().__init__(objective, parameters, sparse.csr_array(sampling @ completions.share))
        self.completions = completions

    @computed_once
    def inverse(self):
        """The inverse of the derivative of the expected score, which is not symmetric."""
        derivative = self.objective.hessian(self.parameters)
        derivative -= self.missing_information(self.parameters)
        if self.objective.singular:
            return np.linalg.pinv(derivative, rcond=MIN_EIGENVALUE)
        return np.linalg.inv(derivative)

    def missing_information(self, parameters):
        """Average the covariances of scores and statistics given the observed values of rows."""
        objective, completions = self.objective, self.completions
        n_rows, n = completions.share.shape[0], len(parameters)
        weights = completions.row_weights / objective.total
        cross, scores, statistics = np.zeros((n, n)), np.zeros((n_rows, n)), np.zeros((n_rows, n))
        n_blocks = -(-len(completions.states) * n // BLOCK_NUMBERS)
        for part in np.array_split(np.arange(len(completions.states)), n_blocks):
            share = completions.share[:, part]
            s = objective.scores(parameters, part, np.ones(len(part)))
            t = objective.statistics(part)
            cross += (s * (weights @ share)[:, None]).T @ t
            scores += share @ s
            statistics += share @ t
        return cross - (scores * weights[:, None]).T @ statistics

    def naive_covariance(self):
        """Compute the covariance that would be valid for a likelihood, made symmetric."""
        covariance = super().naive_covariance()
        return (covariance + covariance.T) / 2

    def likelihood_ratio_test(self, pairs=None):
        """Raise, as the expected pseudo-likelihood is not a composite likelihood."""
        raise ValueError("likelihood ratio tests are for complete rows: fit with missing='drop'.")


def _pseudo_inverse(matrix):
    """Return the pseudo-inverse of a semidefinite matrix, and a basis of its null space."""
    values, vectors = linalg.eigh(matrix)
    positive = values > MIN_EIGENVALUE * values[-1]
    return (vectors[:, positive] / values[positive]) @ vectors[:, positive].T, vectors[:, ~positive]


class _Restricted:
    """An objective with some parameters fixed at zero."""

    def __init__(self, objective, free):
        self._objective, self._free, self.total = objective, free, objective.total
        self.singular = objective.singular

    def padded(self, parameters):
        out = np.zeros(self._objective.n_parameters)
        out[self._free] = parameters
        return out

    def value_and_gradient(self, parameters):
        value, gradient = self._objective.value_and_gradient(self.padded(parameters))
        return value, gradient[self._free]

    def hessian(self, parameters):
        return self._objective.hessian(self.padded(parameters))[np.ix_(self._free, self._free)]


def adjusted(p_values, method):
    """Adjust p-values for multiple tests."""
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
    abbreviation = {"benjamini_hochberg": "bh", "benjamini_yekutieli": "by"}[method]
    return scipy.stats.false_discovery_control(p_values, method=abbreviation)


def _check_memory(n):
    """Raise if matrices of all parameters do not fit into memory."""
    what = f"a fit of {n} parameters, three matrices of {n} x {n} numbers,"
    check_available(24 * n**2, what, "ask for the standard errors of some `pairs`")
