"""Asymptotic errors and tests of a maximum pseudo-likelihood estimate, from Godambe's information.

With the mean negative Hessian H of the objective, the mean outer product J of the rows' scores
about their mean, and the weight n of all rows, the estimate has the sandwich covariance

    H^-1 J H^-1 / n,

the inverse of the Godambe information (Godambe 1960; White 1982). H and J would be the same if the
pseudo-likelihood were a likelihood. As they are not, twice the fall of the log-pseudo-likelihood
when some parameters are held at zero is distributed as a weighted sum of chi-squared variables,
whose weights are the eigenvalues of G V^-1 with the blocks of those parameters of
G = H^-1 J H^-1 and of V = H^-1 (Kent 1982; Varin, Reid & Firth 2011, section 2.3).

The weighted sum is Q = sum_k w_k X_k with independent X_k of one degree of
freedom, whose cumulant-generating function is K(s) = -sum_k ln(1 - 2 w_k s) / 2. Its survival
function is the integral of exp(K(s) - s x) / (2 pi i s) along a path to the right of s = 0.
"""

from typing import NamedTuple

import numpy as np
import scipy
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import ndtr

from fastmf._common.linalg import MIN_EIGENVALUE, cholesky
from fastmf._common.memory import check_available
from fastmf.learning.pseudo_likelihood.fit import (
    BLOCK_NUMBERS,
    MAX_HESSIAN_PARAMETERS,
    few_blas_threads,
    newton,
)


def survival(x, weights):
    """Probability that the sum of weights times independent chi-squared variables exceeds x.

    By the inversion integral of the moment-generating function along a parabola through its saddle
    point, accurate to about 1e-10 relative in the tails too. (Kuonen 1999 has the saddle-point
    approximation of the same integral.)
    """
    weights = np.asarray(weights, float)
    # Weights of order one: saddle points are then of the order of the number of weights at most.
    x, weights = x / weights.max(), weights / weights.max()
    # Beyond these ends the probability is 1 or 0 in double precision, whatever the weights are.
    if x <= 1e-100:
        return 1.0
    if x > 3000 + 2 * len(weights):
        return 0.0
    upper = x > weights.sum()

    def cumulant(s):
        return -0.5 * np.log1p(-2 * weights * s).sum() - s * x

    def derivative(s):
        return (weights / (1 - 2 * weights * s)).sum() - x - 1 / s

    # The saddle point is right of the pole at zero for the upper tail, left for the lower.
    sign, far = (1.0, 0.5) if upper else (-1.0, np.inf)
    near, end = sign / (2 * x + 2), 0.25 if upper else -1.0
    while sign * derivative(near) > 0:
        near /= 2
    while sign * derivative(end) < 0:
        end = (end + far) / 2 if upper else 2 * end
    saddle = scipy.optimize.brentq(derivative, near, end, rtol=1e-12)
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
        p-values adjusted for multiple tests.
    """

    first: np.ndarray
    second: np.ndarray
    coupling: np.ndarray
    standard_error: np.ndarray
    z: np.ndarray
    p_value: np.ndarray
    adjusted: np.ndarray


class RatioTest(NamedTuple):
    """Composite likelihood-ratio test of a machine without some couplings against one with them.

    Parameters
    ----------
    statistic : float
        Twice the fall of the log-pseudo-likelihood of all rows together without these couplings.
    p_value : float
    weights : array of shape (n_couplings,)
        If those couplings are zero, the statistic of many rows is distributed as the sum of these
        times independent chi-squared variables of one degree of freedom.
    parameters : array of shape (n_parameters,)
        Parameters of the machine without those couplings.
    """

    statistic: float
    p_value: float
    weights: np.ndarray
    parameters: np.ndarray


class Godambe:
    """Godambe's information of a maximum pseudo-likelihood estimate: its errors, and tests.

    `sampling` are weights of rows (n_rows,), or sparse (n_clusters, n_rows), as in
    `PairwiseLikelihood.score_covariance`; by default weights count rows.
    """

    def __init__(self, objective, parameters, sampling=None):
        self.objective, self.parameters, self.sampling = objective, parameters, sampling

    def indices(self, pairs):
        """Indices, among the parameters, of pairs of units: couplings, or (j, j) for a field."""
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
        """The sandwich covariance H^-1 J H^-1 / n."""
        n = len(self.parameters)
        if n > MAX_HESSIAN_PARAMETERS:
            raise ValueError(
                f"the covariance is for up to {MAX_HESSIAN_PARAMETERS} parameters (109 units); of "
                f"{n} parameters its three matrices take {8e-9 * n**2:.1f} GB each: ask for "
                "`standard_errors` of all parameters or of some `pairs`."
            )
        with few_blas_threads(n):
            inverse, scores = self._inverse_and_scores(self.parameters)
            return inverse @ scores @ inverse.T

    def naive_covariance(self):
        """Covariance if the rows' log-values were log-likelihoods: H^-1 / n."""
        with few_blas_threads(len(self.parameters)):
            return self._inverse_hessian(self.parameters) / self.objective.total

    def covariances_along(self, directions):
        """Both covariances along the rows of each of some sparse matrices."""
        n = len(self.parameters)
        _check_memory(n)
        with few_blas_threads(n):
            inverse, scores = self._inverse_and_scores(self.parameters)
            product, sandwich, naive = inverse @ scores, [], []
            for rows in directions:
                along = rows @ inverse
                sandwich.append((rows @ product) @ along.T)
                naive.append((along @ rows.T) / self.objective.total)
            return sandwich, [(matrix + matrix.T) / 2 for matrix in naive]

    @property
    def effective_rows(self):
        """Number of rows, or clusters, that were sampled; of unequal weights, of equal ones."""
        if self.sampling is None:
            return self.objective.total
        if sparse.issparse(self.sampling):
            return 1 / float(np.square(self.sampling.sum(1)).sum())
        return 1 / float(np.sum(self.sampling))

    def variances_of(self, gradients, direct):
        """Variances of functions of the estimate and of the distribution of the rows."""
        weights = self.objective.weights
        along = gradients @ self._inverse_hessian(self.parameters)
        rows, ones = slice(len(weights)), np.ones(len(weights))
        influences = direct - weights @ direct
        influences += self.objective.score_products(self.parameters, along, rows, ones)
        influences -= along @ self.objective.mean_score(self.parameters)
        if self.sampling is None:
            return weights @ influences**2 / self.objective.total
        if sparse.issparse(self.sampling):
            return np.square(self.sampling @ influences).sum(0)
        return self.sampling @ influences**2

    def standard_errors(self, pairs=None):
        """Standard errors of all parameters, or of some."""
        indices = slice(None) if pairs is None else self.indices(pairs)
        n = len(self.parameters)
        if pairs is None or n <= MAX_HESSIAN_PARAMETERS:
            _check_memory(n)
            with few_blas_threads(n):
                inverse, scores = self._inverse_and_scores(self.parameters)
                return np.sqrt(np.einsum("jk,jk->j", inverse @ scores, inverse))[indices]
        with few_blas_threads():
            return self.standard_errors_without_matrices(indices)

    def _inverse_and_scores(self, parameters):
        """H^-1, and the covariance of the mean of the scores."""
        inverse = self._inverse_hessian(parameters)
        scores = self.objective.score_covariance(parameters, self.sampling)
        if self.sampling is None:
            scores /= self.objective.total
        return inverse, scores

    def _inverse_hessian(self, parameters):
        hessian = self.objective.hessian(parameters)
        if self.objective.singular:
            return _pseudo_inverse(hessian)[0]
        # Pivots below this are rounding errors of zeros.
        least = len(hessian) * np.finfo(float).eps * hessian.diagonal()
        try:
            # The transpose of a symmetric matrix is itself, in LAPACK's order.
            factor = cholesky(hessian.T, overwrite=True)
            if (np.square(factor.lower.diagonal()) <= least).any():
                raise linalg.LinAlgError
        except linalg.LinAlgError:
            raise linalg.LinAlgError(
                "standard errors cannot be computed: the Hessian is not positive definite; fit "
                "with a penalty l2, or leave out units that depend on others linearly."
            ) from None
        return factor.inverse(overwrite=True)

    def standard_errors_without_matrices(self, indices):
        """Standard errors of a few parameters, without any matrix of all parameters.

        Each takes the solution of H v = e by preconditioned conjugate gradients, some ten products
        with H that take the time of two gradients each.
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

    def wald_tests(self, adjust):
        """Wald tests of all couplings against zero, with p-values `adjusted` by some method."""
        d = self.objective.n_fields
        couplings, errors = self.parameters[d:], self.standard_errors()[d:]
        return wald_tests(couplings, errors, self.objective.pairs, adjust)

    def likelihood_ratio_test(self, pairs=None):
        """Test whether the couplings of `pairs`, by default of all, are zero."""
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
            free = np.ones(len(parameters), bool)
            free[indices] = False
            restricted = _Restricted(objective, free)
            point = newton(restricted, objective.independent()[free]).parameters
            value = objective.value_and_gradient(parameters)[0]
            fall = value - restricted.value_and_gradient(point)[0]
            statistic = float(2 * objective.total * max(fall, 0))
            return self.ratio_test(statistic, indices, parameters, restricted.padded(point))

    def ratio_test(self, statistic, indices, parameters, restricted):
        """Test of a likelihood ratio by the weights of its chi-squared variables."""
        inverse, scores = self._inverse_and_scores(parameters)
        scores *= self.objective.total
        among = inverse[np.ix_(indices, indices)]
        sandwich = inverse[indices] @ scores @ inverse[:, indices]
        if self.objective.singular:
            # Basis of the directions of these parameters that no change of gauge alters.
            gauge = _pseudo_inverse(self.objective.hessian(parameters))[1]
            basis = linalg.null_space(gauge[indices].T, rcond=MIN_EIGENVALUE)
            among, sandwich = basis.T @ among @ basis, basis.T @ sandwich @ basis
        weights = np.maximum(linalg.eigh(sandwich, among, eigvals_only=True)[::-1], 0)
        # Smaller weights are rounding errors.
        p_value = survival(statistic, weights[weights > 1e-12 * weights[0]])
        return RatioTest(statistic, p_value, weights, restricted)


class IncompleteGodambe(Godambe):
    """Godambe's information of an estimate from incomplete rows.

    `sampling` (n_clusters, n_rows) is as in `Godambe`, of the incomplete rows.
    """

    def __init__(self, objective, parameters, completions, sampling=None):
        if sampling is None:
            factors = np.sqrt(completions.row_weights) / objective.total
            sampling = sparse.diags_array(factors)
        super().__init__(objective, parameters, sparse.csr_array(sampling @ completions.share))
        self.completions = completions

    def _inverse_hessian(self, parameters):
        """The inverse of the derivative of the expected score, which is not symmetric."""
        derivative = np.array(self.objective.hessian(parameters))
        derivative -= self.missing_information(parameters)
        if self.objective.singular:
            return np.linalg.pinv(derivative, rcond=MIN_EIGENVALUE)
        return np.linalg.inv(derivative)

    def missing_information(self, parameters):
        """Mean over rows of the covariances of scores and statistics given the seen values."""
        objective, completions = self.objective, self.completions
        n_rows, n = completions.share.shape[0], len(parameters)
        weights = completions.row_weights / objective.total
        both, scores, statistics = np.zeros((n, n)), np.zeros((n_rows, n)), np.zeros((n_rows, n))
        n_blocks = -(-len(completions.states) * n // BLOCK_NUMBERS)
        for part in np.array_split(np.arange(len(completions.states)), n_blocks):
            share = completions.share[:, part]
            s = objective.scores(parameters, part, np.ones(len(part)))
            t = objective.statistics(part)
            both += (s * (weights @ share)[:, None]).T @ t
            scores += share @ s
            statistics += share @ t
        return both - (scores * weights[:, None]).T @ statistics

    def naive_covariance(self):
        """Covariance if the rows' log-values were log-likelihoods."""
        covariance = super().naive_covariance()
        return (covariance + covariance.T) / 2

    def likelihood_ratio_test(self, pairs=None):
        """Refuse: the expected pseudo-likelihood of incomplete rows is no composite likelihood."""
        raise ValueError("likelihood ratio tests are for complete rows: fit with missing='drop'.")


def _pseudo_inverse(matrix):
    """Pseudo-inverse of a positive semidefinite matrix, and a basis of its null space."""
    values, vectors = linalg.eigh(matrix)
    positive = values > MIN_EIGENVALUE * values[-1]
    return (vectors[:, positive] / values[positive]) @ vectors[:, positive].T, vectors[:, ~positive]


class _Restricted:
    """An objective with some parameters held at zero."""

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
    """p-values adjusted for multiple tests."""
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
    """Refuse matrices of all parameters that the machine has no room for."""
    what = f"a fit of {n} parameters, three matrices of {n} x {n} numbers,"
    check_available(24 * n**2, what, "ask for the standard errors of some `pairs`")


def wald_tests(coupling, standard_error, pairs, method):
    """Wald tests of couplings; see `CouplingTests` and `adjusted`."""
    z = coupling / standard_error
    p_value = 2 * ndtr(-abs(z))
    return CouplingTests(*pairs, coupling, standard_error, z, p_value, adjusted(p_value, method))
