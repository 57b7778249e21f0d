"""The evidence of spike-and-slab models by their hyper-parameters, and its derivatives.

At a fixed point of expectation propagation the log-evidence is stationary in the sites, so that its
derivatives are those with the sites held (Hernández-Lobato & Hernández-Lobato 2011, Eq. 37):

    by ln s2          (|y - X m|^2 + tr(X A^-1 X')) / (2 s2) - n_samples / 2
    by ln slab        (E[w^2] / slab - p) / 2 summed over the units, with p their probabilities of
                      not being zero
    by log-odds       p less the prior probability, summed over the units
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
# Tolerance of the fixed points during the search, in standard errors of a coefficient if all others
# were known. The evidence is stationary in the sites, so that its error is of second order. With an
# absolute tolerance and little noise, a state could pass for the fixed point of the next noise
# variance, too, and the evidence would seem to grow as the noise falls.
RELATIVE_TOL = 3e-2
# Iterations towards a fixed point during the search: poor hyper-parameters take more.
MAX_EP_ITER = 100
# Prior precision of a latent variable, uniform on a half-line but for that.
LATENT_PRECISION = 1e-10
# Smallest precision of a site, in units of the prior's, where negative ones do not converge.
MIN_RELATIVE_PRECISION = 1e-3


class Hyperparameters(NamedTuple):
    """Hyper-parameters of a spike-and-slab model."""

    noise_variance: float
    slab_variance: float
    # (n_groups,): prior log-odds of a non-zero coefficient, for each group of features
    log_odds: np.ndarray

    def prior(self, groups):
        """The prior of the coefficients; `groups` holds the group of every feature."""
        log_odds = np.asarray(self.log_odds)[groups]
        return GaussBernoulli(np.zeros(len(groups)), 1 / self.slab_variance, log_odds)


class Task(NamedTuple):
    """Independent problems that share their hyper-parameters."""

    # tuple of Regression, or of one Classification: their numbers of rows sum to the number of rows
    # of the data
    parts: tuple
    units: tuple  # tuple of int arrays or slices: the features of each part
    # int (n_features,): group of every feature: features of a group share their log-odds
    groups: np.ndarray

    @classmethod
    def of(cls, part):
        """The task of a single problem."""
        return cls((part,), (slice(len(part.groups)),), part.groups)

    @property
    def total_rows(self):
        """Number of rows of the data, repeated by their weights."""
        return sum(part.total_rows for part in self.parts)

    @property
    def scale(self):
        """Variance of y, 1 if y is constant; for classes the variance of the noise."""
        return self.square / self.total_rows or 1.0

    @property
    def square(self):
        """Sum of the squares of y."""
        return sum(part.square for part in self.parts)

    @property
    def slab_scale(self):
        """Variance of a coefficient that alone would give y its variance."""
        parts = [column_squares(part.X)[: len(part.groups)] for part in self.parts]
        squares = np.concatenate(parts) / self.total_rows
        return self.scale / float(np.mean(squares[squares > 0])) if squares.any() else self.scale

    def log_evidence(self, results):
        """Log-evidence of fixed points of all parts."""
        return sum(p.log_evidence(result) for p, result in zip(self.parts, results, strict=True))


class Regression(NamedTuple):
    """The data of a linear regression."""

    X: np.ndarray  # (n_samples, n_features)
    y: np.ndarray  # (n_samples,): centred
    groups: np.ndarray  # int (n_features,)
    # Sum of the weights of the rows, if each was multiplied by the root of its weight. The evidence
    # equals the evidence of repeated rows, up to the normaliser of the repetitions.
    n_rows: float | None = None
    absent_square: float = 0.0  # sum of squares of y less the squares of its elements
    # int (n_features,), optional: labels of the features that share a site. None: each has its own
    blocks: np.ndarray | None = None
    gram: Gram | None = None  # Gram, optional: X'X, for all models of the search

    @property
    def total_rows(self):
        """Number of rows, repeated by their weights."""
        return len(self.y) if self.n_rows is None else self.n_rows

    @property
    def square(self):
        """Sum of squares of y."""
        return float(self.y @ self.y) + self.absent_square

    def log_evidence(self, result):
        """Log-evidence of a fixed point."""
        return result.log_evidence

    def model(self, hyperparameters):
        """The model with these hyper-parameters."""
        prior = hyperparameters.prior(self.groups)
        noise_variance, rows = hyperparameters.noise_variance, self.total_rows
        model = SparseLinearModel(self.X, self.y, noise_variance, prior, rows, self.absent_square)
        return with_gram(model, self.gram)


class Likelihood(NamedTuple):
    """Probability of a class by a latent variable u = x'w + noise: the prior of u, unnormalised."""

    latent: object  # callable: units of a number of latent variables, u > 0 for the class
    noise_variance: float
    variance: float  # of all noise between x'w and the class: the scale of slab variances


def half_lines(n):
    """Units that are nearly uniform on the positive numbers."""
    return TruncatedGaussian(np.zeros(n), LATENT_PRECISION, 0.0, np.inf)


# Linear models need noise: of a logit likelihood it moves a row by half of its variance at most.
LIKELIHOODS = {
    "probit": Likelihood(half_lines, 1.0, 1.0),
    "logit": Likelihood(lambda n: Logistic(np.full(n, LATENT_PRECISION)), 1e-4, np.pi**2 / 3),
}


class Classification(NamedTuple):
    """The data of two classes.

    The latent variables u = X w + noise are units like the coefficients, so that 0 = X w - u +
    noise is a linear regression with latent variables. With a probit likelihood a class is the sign
    of u, nearly uniform on the half-line of the class, and the noise has variance 1; with a logit
    likelihood its probability is the sigmoid of u, which has hardly any noise.
    """

    # (n_samples, n_features + n_columns): features and unpenalised columns, with the signs of the
    # classes: see `of`
    X: np.ndarray
    groups: np.ndarray  # int (n_features,)
    # (n_columns,): precisions of the Gaussian priors of the unpenalised columns
    precisions: np.ndarray
    # int (n_features + n_columns,), optional: labels of the columns that share a site. None: each
    # has its own
    blocks: np.ndarray | None = None
    # float or array of shape (n_samples,): weights of the rows; X is multiplied by their roots
    weights: float | np.ndarray = 1.0
    likelihood: Likelihood = LIKELIHOODS["probit"]

    @property
    def total_rows(self):
        """Number of rows, repeated by their weights."""
        return len(self.X) if np.ndim(self.weights) == 0 else float(self.weights.sum())

    @property
    def square(self):
        """Sum of squares of the noise."""
        return self.total_rows * self.likelihood.variance

    @classmethod
    def of(cls, X, signs, groups, precisions=(), weights=1.0, likelihood=LIKELIHOODS["probit"]):
        """From features, unpenalised columns last, and classes -1 and 1."""
        factors = (signs * np.sqrt(weights))[:, None].astype(X.dtype)
        return cls(X * factors, groups, np.asarray(precisions, float), None, weights, likelihood)

    def model(self, hyperparameters):
        """The model with these hyper-parameters."""
        n, prior = len(self.X), hyperparameters.prior(self.groups)
        # Unpenalised columns have a spike of no weight, so that all are units of one kind.
        prior = GaussBernoulli(
            np.append(prior.field, 0 * self.precisions),
            np.append(prior.precision, self.precisions),
            np.append(prior.log_odds, NEVER_ZERO + 0 * self.precisions),
        )
        prior = Concatenated(prior, self.likelihood.latent(n))
        noise = self.likelihood.noise_variance * hyperparameters.noise_variance
        return SparseLinearModel(self.X, np.zeros(n), noise, prior, row_weights=self.weights)

    def log_evidence(self, result):
        """Log-probability of the classes: without the normalisers of the latent variables."""
        normaliser = np.log(2 * np.pi / LATENT_PRECISION) / 2 - np.log(2)
        return result.log_evidence + self.total_rows * normaliser


def solution_from(model, init, **options):
    """A fixed point near a given one, or the state where the solver ended."""
    try:
        return expectation_propagation(model, init, **options)
    except ValueError:  # the sites of other hyper-parameters need not leave a proper Gaussian
        return expectation_propagation(model, **options)


def robust_solution(model, init=None, **options):
    """A fixed point; if the solver does not converge, again with sites of positive precision.

    Their bound, a thousandth of the prior's precision, keeps all cavities and moments proper, also
    those of a state that has not converged. If neither run converges, the state of the smaller
    residual is returned.
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


def evidence_gradient(model, result, groups, n_groups):
    """Derivatives of the log-evidence by ln noise variance, ln slab variance and log-odds.

    Sites are held: at a fixed point the energy is stationary in them. Hernández-Lobato &
    Hernández-Lobato (2011), Eq. 37, with E_Q[w_i^2] = (A^-1)_ii + m_i^2.
    """
    mean, n_determined = gaussian_statistics(result)
    residual = model.y - model.prediction(mean)
    # tr(X A^-1 X') from A A^-1 = 1, without a matrix of features.
    square = residual @ residual + model.absent_square + model.noise_variance * n_determined
    by_noise = (square / model.noise_variance - model.total_rows) / 2
    prior, n = parts_of(model.prior)[0], len(groups)
    included = result.inclusion_probability[:n]
    square = prior.precision[:n] * (result.mean[:n] ** 2 + result.var[:n])
    by_odds = np.bincount(groups, included - sigmoid(prior.log_odds[:n]), n_groups)
    return by_noise, (square - included).sum() / 2, by_odds


def gaussian_statistics(result):
    """Means of the Gaussian, and how many coefficients the data determine: n - tr(T A^-1).

    The means of the units differ from these: a small noise variance would amplify that.
    """
    if result.block_sites is None:
        linear, precision = result.sites + [result.b, result.a]
        return linear / precision, (1 - result.sites[1] / precision).sum()
    return result.gaussian_mean, len(result.gaussian_mean) - result.prior_share


class FixedPoints(NamedTuple):
    """Fixed points of the parts of a task at some hyper-parameters."""

    hyperparameters: Hyperparameters
    results: tuple  # tuple of ExpectationPropagation
    log_density: float  # log-evidence, plus the log-density of the priors where there are priors
    # (2 + n_groups,): gradient of the log-evidence by ln noise variance, ln slab variance and
    # log-odds
    gradient: np.ndarray | None = None

    @property
    def converged(self):
        """Whether all parts have converged."""
        return all(result.converged for result in self.results)


def fixed_points(task, hyperparameters, starts=None, *, robust=True, n_threads=None):
    """Compute fixed points of all parts, from given ones if there are any.

    Without `robust` the first part that does not converge ends it, with log-evidence -inf.
    """
    results, n_groups = [], len(hyperparameters.log_odds)
    gradient, solve = np.zeros(2 + n_groups), robust_solution if robust else solution_from
    options = {"schedule": "auto", "max_iter": MAX_EP_ITER, "n_threads": n_threads}
    for part, start in zip(task.parts, starts or [None] * len(task.parts), strict=True):
        model = part.model(hyperparameters)
        options["tol"] = search_tolerance(part.X, hyperparameters.noise_variance)
        result = solve(model, start, blocks=part.blocks, **options)
        results.append(result)
        if not (robust or result.converged):
            return FixedPoints(hyperparameters, tuple(results), -np.inf)
        by_noise, by_slab, by_odds = evidence_gradient(model, result, part.groups, n_groups)
        gradient += np.append([by_noise, by_slab], by_odds)
    results = tuple(results)
    return FixedPoints(hyperparameters, results, task.log_evidence(results), gradient)


def search_tolerance(X, noise_variance):
    """Compute the tolerance of a fixed point: see `RELATIVE_TOL`."""
    return RELATIVE_TOL * np.sqrt(noise_variance / (column_squares(X).max() or 1.0))
