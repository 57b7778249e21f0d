"""The evidence of spike-and-slab models as a function of hyper-parameters, and its derivatives.

At a fixed point of expectation propagation the log-evidence is stationary in the sites, so that its
derivatives can be computed at fixed sites (Hernández-Lobato & Hernández-Lobato 2011, Eq. 37). With
posterior inclusion probabilities p and prior ones p0, and sums over the units, they are

    by ln s2          (|y - X m|^2 + tr(X A^-1 X')) / (2 s2) - n_samples / 2
    by ln slab        sum (E[w^2] / slab - p) / 2
    by log-odds       sum (p - p0)
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.linalg import Gram
from fastmf._common.stored_columns import column_squares
from fastmf.inference.ep.expectation_propagation import expectation_propagation
from fastmf.models import SparseLinearModel
from fastmf.models.sparse_linear import with_gram
from fastmf.priors import Concatenated, GaussBernoulli, TruncatedGaussian
from fastmf.priors._protocol import parts_of
from fastmf.priors.logistic import Logistic
from fastmf.special import sigmoid

# Log-odds of a coefficient without a spike.
NEVER_ZERO = 40.0
# Tolerance of fixed points during the search, relative to the standard error of a coefficient given
# all other coefficients. The evidence is stationary in the sites, so that its error is of second
# order. With an absolute tolerance and little noise, a state could be accepted as the fixed point
# of a smaller noise variance, and the evidence would seem to grow as the noise decreases.
RELATIVE_TOL = 3e-2
# Largest number of iterations during the search; poor hyper-parameters need more.
MAX_EP_ITER = 100
# Precision of the prior of a latent variable, which approximates a uniform one on a half-line.
LATENT_PRECISION = 1e-10
# Smallest site precision, relative to the prior's, if solutions with negative ones do not converge.
MIN_RELATIVE_PRECISION = 1e-3


class Hyperparameters(NamedTuple):
    """Hyper-parameters of a spike-and-slab model."""

    noise_variance: float
    slab_variance: float
    # (n_groups,): prior log-odds of a non-zero coefficient, for each group of features
    log_odds: np.ndarray

    def prior(self, groups):
        """Return the prior of the coefficients; `groups` has the group of each feature."""
        log_odds = np.asarray(self.log_odds)[groups]
        return GaussBernoulli(np.zeros(len(groups)), 1 / self.slab_variance, log_odds)


class Task(NamedTuple):
    """Independent problems with common hyper-parameters."""

    # tuple of Regression, or of one Classification: their numbers of rows sum to the number of rows
    # of the data
    parts: tuple
    units: tuple  # tuple of int arrays or slices: the features of each part
    # int (n_features,): group of each feature; features of a group have the same log-odds
    groups: np.ndarray

    @classmethod
    def of(cls, part):
        """Make the task of a single problem."""
        return cls((part,), (slice(len(part.groups)),), part.groups)

    @property
    def total_rows(self):
        """Sum of the weights of the rows."""
        return sum(part.total_rows for part in self.parts)

    @property
    def scale(self):
        """Variance of y, 1 if y is constant; for classification the variance of the noise."""
        return self.square / self.total_rows or 1.0

    @property
    def square(self):
        """Sum of the squares of y."""
        return sum(part.square for part in self.parts)

    @property
    def slab_scale(self):
        """Variance of a single coefficient that would explain the variance of y."""
        parts = [column_squares(part.X)[: len(part.groups)] for part in self.parts]
        squares = np.concatenate(parts) / self.total_rows
        return self.scale / float(np.mean(squares[squares > 0])) if squares.any() else self.scale

    def log_evidence(self, results):
        """Return the log-evidence, given fixed points of all parts."""
        return sum(p.log_evidence(result) for p, result in zip(self.parts, results, strict=True))


class Regression(NamedTuple):
    """The data of a linear regression."""

    X: np.ndarray  # (n_samples, n_features)
    y: np.ndarray  # (n_samples,): centred
    groups: np.ndarray  # int (n_features,)
    # Sum of the weights, if rows were multiplied by the square roots of their weights. The evidence
    # equals the evidence of repeated rows, up to the normaliser of the repetitions.
    n_rows: float | None = None
    absent_square: float = 0.0  # part of y'y that is not in `y`
    # int (n_features,), optional: labels of features with a common site. None: single sites
    blocks: np.ndarray | None = None
    gram: Gram | None = None  # Gram, optional: X'X, shared by all models of the search

    @property
    def total_rows(self):
        """Sum of the weights of the rows."""
        return len(self.y) if self.n_rows is None else self.n_rows

    @property
    def square(self):
        """Sum of squares of y."""
        return float(self.y @ self.y) + self.absent_square

    def log_evidence(self, result):
        """Return the log-evidence of a fixed point."""
        return result.log_evidence

    def model(self, hyperparameters):
        """Return the model with these hyper-parameters."""
        prior = hyperparameters.prior(self.groups)
        noise_variance, rows = hyperparameters.noise_variance, self.total_rows
        model = SparseLinearModel(self.X, self.y, noise_variance, prior, rows, self.absent_square)
        return with_gram(model, self.gram)


class Likelihood(NamedTuple):
    """Likelihood of a class given a latent variable u = x'w + noise."""

    latent: object  # callable: makes n units whose unnormalised prior is the likelihood
    noise_variance: float
    variance: float  # of all noise between x'w and the class: the scale of slab variances


def half_lines(n):
    """Return units that are nearly uniform on the positive numbers."""
    return TruncatedGaussian(np.zeros(n), LATENT_PRECISION, 0.0, np.inf)


# Linear models need noise; for the logit likelihood it changes a log-likelihood by at most half of
# its variance.
LIKELIHOODS = {
    "probit": Likelihood(half_lines, 1.0, 1.0),
    "logit": Likelihood(lambda n: Logistic(np.full(n, LATENT_PRECISION)), 1e-4, np.pi**2 / 3),
}


class Classification(NamedTuple):
    """The data of a binary classification.

    The latent variables u = X w + noise are units like the coefficients, so that 0 = X w - u +
    noise is a linear regression with latent variables. With a probit likelihood the noise has
    variance 1, and u is nearly uniform on the half-line of its class; with a logit likelihood the
    noise is negligible, and the probability of the class is the sigmoid of u.
    """

    # (n_samples, n_features + n_columns): features and unpenalised columns, multiplied by the signs
    # of the classes: see `of`
    X: np.ndarray
    groups: np.ndarray  # int (n_features,)
    # (n_columns,): precisions of the Gaussian priors of the unpenalised columns
    precisions: np.ndarray
    # int (n_features + n_columns,), optional: labels of columns with a common site. None: single
    # sites
    blocks: np.ndarray | None = None
    # float or array of shape (n_samples,): weights of the rows; X is multiplied by their roots
    weights: float | np.ndarray = 1.0
    likelihood: Likelihood = LIKELIHOODS["probit"]

    @property
    def total_rows(self):
        """Sum of the weights of the rows."""
        return len(self.X) if np.ndim(self.weights) == 0 else float(self.weights.sum())

    @property
    def square(self):
        """Sum of squares of the noise."""
        return self.total_rows * self.likelihood.variance

    @classmethod
    def of(cls, X, signs, groups, precisions=(), weights=1.0, likelihood=LIKELIHOODS["probit"]):
        """Make the data from features, followed by unpenalised columns, and classes -1 and 1."""
        factors = (signs * np.sqrt(weights))[:, None].astype(X.dtype)
        return cls(X * factors, groups, np.asarray(precisions, float), None, weights, likelihood)

    def model(self, hyperparameters):
        """Return the model with these hyper-parameters."""
        n, prior = len(self.X), hyperparameters.prior(self.groups)
        # Unpenalised columns have a spike of negligible weight, so that all units are of one kind.
        prior = GaussBernoulli(
            np.append(prior.field, 0 * self.precisions),
            np.append(prior.precision, self.precisions),
            np.append(prior.log_odds, NEVER_ZERO + 0 * self.precisions),
        )
        prior = Concatenated(prior, self.likelihood.latent(n))
        noise = self.likelihood.noise_variance * hyperparameters.noise_variance
        return SparseLinearModel(self.X, np.zeros(n), noise, prior, row_weights=self.weights)

    def log_evidence(self, result):
        """Return the log-probability of the classes; normalisers of latent variables cancel."""
        normaliser = np.log(2 * np.pi / LATENT_PRECISION) / 2 - np.log(2)
        return result.log_evidence + self.total_rows * normaliser


def solution_from(model, init, **options):
    """Solve from a given fixed point; return the last state if it does not converge."""
    try:
        return expectation_propagation(model, init, **options)
    except ValueError:  # sites of other hyper-parameters may give an improper Gaussian
        return expectation_propagation(model, **options)


def robust_solution(model, init=None, **options):
    """Solve; if the solver does not converge, solve again with positive site precisions.

    Their bound, a thousandth of the prior's precision, keeps all cavities and moments proper, even
    without convergence. If neither run converges, return the state with the smaller residual.
    """
    result = solution_from(model, init, **options)
    if result.converged:
        return result
    zero = np.zeros(model.n_units)
    mean, var = model.prior.moments(zero, zero)
    options |= {
        "schedule": "parallel",
        "damping": 0.5,
        "site_precision_min": float(MIN_RELATIVE_PRECISION / (mean * mean + var).max()),
    }
    bounded = expectation_propagation(model, **options)
    return bounded if bounded.converged or bounded.residual < result.residual else result


def is_possible(model, result):
    """Whether the evidence of a state is finite and, without convergence, not lost in rounding."""
    # The density of y is largest without residuals.
    highest = np.inf
    if not (result.converged or model.has_latent):
        highest = -model.total_rows * np.log(2 * np.pi * model.noise_variance) / 2
    return -np.inf < result.log_evidence <= highest


def evidence_gradient(model, result, groups, n_groups):
    """Compute the derivatives of the log-evidence by ln noise, ln slab variance and log-odds.

    Hernández-Lobato & Hernández-Lobato (2011), Eq. 37, with E_Q[w_i^2] = (A^-1)_ii + m_i^2. Sites
    are kept fixed, as the energy is stationary in them at a fixed point.
    """
    mean, n_determined = gaussian_statistics(result)
    residual = model.y - model.prediction(mean)
    # Compute tr(X A^-1 X') from A A^-1 = 1, without a product of feature matrices.
    square = residual @ residual + model.absent_square + model.noise_variance * n_determined
    by_noise = (square / model.noise_variance - model.total_rows) / 2
    prior, n = parts_of(model.prior)[0], len(groups)
    included = result.inclusion_probability[:n]
    square = prior.precision[:n] * (result.mean[:n] ** 2 + result.var[:n])
    by_odds = np.bincount(groups, included - sigmoid(prior.log_odds[:n]), n_groups)
    return by_noise, (square - included).sum() / 2, by_odds


def gaussian_statistics(result):
    """Return the means of the Gaussian, and the effective number of parameters n - tr(T A^-1).

    The tilted means of the units differ slightly; a small noise variance would amplify this error.
    """
    if result.block_sites is None:
        linear, precision = result.sites + [result.b, result.a]
        return linear / precision, (1 - result.sites[1] / precision).sum()
    return result.gaussian_mean, len(result.gaussian_mean) - result.prior_share


class FixedPoints(NamedTuple):
    """Fixed points of the parts of a task at some hyper-parameters."""

    hyperparameters: Hyperparameters
    results: tuple  # tuple of ExpectationPropagation
    log_density: float  # log-evidence, plus the log-density of the priors if there are priors
    # (2 + n_groups,): gradient of the log-evidence by ln noise variance, ln slab variance and
    # log-odds
    gradient: np.ndarray | None = None

    @property
    def converged(self):
        """Whether all parts have converged."""
        return all(result.converged for result in self.results)


def fixed_points(task, hyperparameters, starts=None, *, robust=True, **options):
    """Compute fixed points of all parts, starting from given ones; options are of the solver.

    Without `robust`, return log-evidence -inf as soon as a part does not converge.
    """
    results, n_groups, possible = [], len(hyperparameters.log_odds), True
    gradient, solve = np.zeros(2 + n_groups), robust_solution if robust else solution_from
    options = {"schedule": "auto", "max_iter": MAX_EP_ITER} | options
    for part, start in zip(task.parts, starts or [None] * len(task.parts), strict=True):
        model = part.model(hyperparameters)
        options["tol"] = search_tolerance(part.X, hyperparameters.noise_variance)
        result = solve(model, start, blocks=part.blocks, **options)
        results.append(result)
        possible = possible and is_possible(model, result)
        if not (robust or result.converged):
            return FixedPoints(hyperparameters, tuple(results), -np.inf, gradient)
        by_noise, by_slab, by_odds = evidence_gradient(model, result, part.groups, n_groups)
        gradient += np.append([by_noise, by_slab], by_odds)
    results = tuple(results)
    log_evidence = task.log_evidence(results) if possible else -np.inf
    return FixedPoints(hyperparameters, results, log_evidence, gradient)


def search_tolerance(X, noise_variance):
    """Return the tolerance of a fixed point; see `RELATIVE_TOL`."""
    return RELATIVE_TOL * np.sqrt(noise_variance / (column_squares(X).max() or 1.0))
