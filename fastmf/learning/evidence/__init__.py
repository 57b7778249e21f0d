"""The evidence of spike-and-slab models by their hyper-parameters, and its derivatives.

At a fixed point of expectation propagation the log-evidence is stationary in the sites, so that its
derivatives are those with the sites held (Hernández-Lobato & Hernández-Lobato 2011, Eq. 37):

    by ln s2          (|y - X m|^2 + tr(X A^-1 X')) / (2 s2) - n_samples / 2
    by ln slab        the derivatives of the log-partitions of the tilted units, less those of the
    and log-odds      units under their priors alone
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

# Log-odds of a coefficient without a spike.
NEVER_ZERO = 40.0
# Tolerance of the fixed points during the search: at most this, and this fraction of the standard
# error of a coefficient if all others were known. With little noise a tolerance of the order of the
# standard errors would let a state pass for the fixed point of the next noise variance, too, and
# the evidence would seem to grow as the noise falls, down to its bound. The evidence is stationary
# in the sites, so that its error is of second order.
SEARCH_TOL, RELATIVE_TOL = 1.2e-3, 3e-2
# Iterations towards a fixed point during the search: poor hyper-parameters take more. With half or
# twice as many a fit takes as long.
MAX_EP_ITER = 100
# Prior precision of a latent variable, uniform on a half-line but for that.
LATENT_PRECISION = 1e-10
# Smallest precision of a site, in units of the prior's, where negative ones do not converge.
MIN_RELATIVE_PRECISION = 1e-3


class Hyperparameters(NamedTuple):
    """Hyper-parameters of a spike-and-slab model.

    Parameters
    ----------
    noise_variance, slab_variance : float
    log_odds : array of shape (n_groups,)
        Prior log-odds of a non-zero coefficient, for each group of features.
    """

    noise_variance: float
    slab_variance: float
    log_odds: np.ndarray

    def prior(self, groups):
        """The prior of the coefficients; `groups` holds the group of every feature."""
        log_odds = np.asarray(self.log_odds)[groups]
        return GaussBernoulli(np.zeros(len(groups)), 1 / self.slab_variance, log_odds)


class Regression(NamedTuple):
    """The data of a linear regression.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    y : array of shape (n_samples,)
        Centred.
    groups : int array of shape (n_features,)
        Group of every feature: features of a group share their log-odds.
    n_rows : float, optional
        How many rows the rows stand for, if each was multiplied by the root of its weight: the sum
        of the weights. The posterior is then that of repeated rows, and the evidence is, too, but
        for the normaliser of the rows that are not there.
    absent_square : float
        Sum of squares of y less that of its elements.
    blocks : int array of shape (n_features,), optional
        Labels of the features that have a site together. None: each has its own.
    gram : Gram, optional
        X'X, for all models of the search.
    """

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    n_rows: float | None = None
    absent_square: float = 0.0
    blocks: np.ndarray | None = None
    gram: Gram | None = None

    @property
    def parts(self):
        """Itself: one problem."""
        return (self,)

    @property
    def units(self):
        """The features of each part: all."""
        return (slice(len(self.groups)),)

    @property
    def total_rows(self):
        """Number of rows that the data stand for."""
        return len(self.y) if self.n_rows is None else self.n_rows

    @property
    def scale(self):
        """Variance of y."""
        return (float(self.y @ self.y) + self.absent_square) / self.total_rows or 1.0

    @property
    def scale_is_known(self):
        """Whether y varies: else its scale is a convention, and so are the bounds."""
        return bool(self.y.any())

    @property
    def slab_scale(self):
        """Variance of a coefficient that alone would give y its variance."""
        return self.scale / mean_square(self.X, self.total_rows)

    def log_evidence(self, result):
        """Log-evidence of a fixed point."""
        return result.log_evidence

    def model(self, hyperparameters):
        """The model with these hyper-parameters."""
        prior = hyperparameters.prior(self.groups)
        noise_variance, rows = hyperparameters.noise_variance, self.total_rows
        model = SparseLinearModel(self.X, self.y, noise_variance, prior, rows, self.absent_square)
        return with_gram(model, self.gram)


class Loci(NamedTuple):
    """Independent regressions that share their hyper-parameters: features in uncorrelated blocks.

    Parameters
    ----------
    parts : tuple of Regression
        Their numbers of rows sum to that of the data.
    units : tuple of int arrays
        The features of each.
    groups : int array of shape (n_features,)
    """

    parts: tuple
    units: tuple
    groups: np.ndarray

    @property
    def total_rows(self):
        """Number of rows that the data stand for."""
        return sum(part.total_rows for part in self.parts)

    @property
    def scale(self):
        """Variance of y."""
        squares = sum(float(part.y @ part.y) + part.absent_square for part in self.parts)
        return squares / self.total_rows or 1.0

    @property
    def scale_is_known(self):
        """Whether y varies: else its scale is a convention, and so are the bounds."""
        return any(part.scale_is_known for part in self.parts)

    @property
    def slab_scale(self):
        """Variance of a coefficient that alone would give y its variance."""
        squares = np.concatenate([column_squares(part.X) for part in self.parts])
        return self.scale / mean_square(np.sqrt(squares)[None], self.total_rows)


class Classification(NamedTuple):
    """The data of two classes with a probit likelihood.

    A class is the sign of u = X w + noise of variance 1. The latent variables u are units like the
    coefficients, nearly uniform on the half-line of the class; so 0 = X w - u + noise is a linear
    regression with latent variables.

    Parameters
    ----------
    X : array of shape (n_samples, n_features + n_others)
        Features and other columns, with the signs of the classes: see `of`.
    groups : int array of shape (n_features,)
    others : array of shape (n_others,)
        Precisions of the Gaussian priors of coefficients without a spike.
    blocks : int array of shape (n_features + n_others,), optional
        Labels of the columns that have a site together. None: each has its own.
    weights : float or array of shape (n_samples,)
        Numbers of equal rows that the rows stand for, of which X has the multiples by the roots.
    """

    X: np.ndarray
    groups: np.ndarray
    others: np.ndarray
    blocks: np.ndarray | None = None
    weights: float | np.ndarray = 1.0

    @property
    def parts(self):
        """Itself: one problem."""
        return (self,)

    @property
    def units(self):
        """The features of each part: all."""
        return (slice(len(self.groups)),)

    @property
    def total_rows(self):
        """Number of rows that the data stand for."""
        return len(self.X) if np.ndim(self.weights) == 0 else float(self.weights.sum())

    @property
    def scale(self):
        """Variance of the noise."""
        return 1.0

    @property
    def scale_is_known(self):
        """Always: it is that of the noise."""
        return True

    @property
    def slab_scale(self):
        """Variance of a coefficient that alone explains as much as the noise."""
        return 1 / mean_square(self.X[:, : len(self.groups)], self.total_rows)

    @classmethod
    def of(cls, X, signs, groups, others=(), weights=1.0):
        """From features, further columns last, and classes -1 and 1."""
        factors = (signs * np.sqrt(weights))[:, None].astype(X.dtype)
        return cls(X * factors, groups, np.asarray(others, float), weights=weights)

    def model(self, hyperparameters):
        """The model with these hyper-parameters."""
        n, prior = len(self.X), hyperparameters.prior(self.groups)
        # Units without a spike have one too, of no weight: so that all are units of one kind.
        prior = GaussBernoulli(
            np.append(prior.field, 0 * self.others),
            np.append(prior.precision, self.others),
            np.append(prior.log_odds, NEVER_ZERO + 0 * self.others),
        )
        latent = TruncatedGaussian(np.zeros(n), LATENT_PRECISION, 0.0, np.inf)
        prior = Concatenated(prior, latent)
        noise_variance = hyperparameters.noise_variance
        return SparseLinearModel(
            self.X, np.zeros(n), noise_variance, prior, row_weights=self.weights
        )

    def log_evidence(self, result):
        """Log-probability of the classes: without the normalisers of the latent variables."""
        normaliser = np.log(2 * np.pi / LATENT_PRECISION) / 2 - np.log(2)
        return result.log_evidence + self.total_rows * normaliser


def mean_square(X, n_rows):
    """Mean square of the features that are not zero; 1 if all are."""
    squares = column_squares(X) / n_rows
    return float(np.mean(squares[squares > 0])) if squares.any() else 1.0


def solution_from(model, init, **options):
    """A fixed point near that of other hyper-parameters, or the state where the solver ended."""
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
    zero, units = np.zeros_like(prior.field), slice(len(prior.field))
    plain = prior.gradient(zero, zero)
    if result.block_sites is None:
        tilted = prior.gradient(result.b[units], result.a[units])
    else:
        moments = result.mean[units], result.var[units], result.inclusion_probability
        tilted = prior.mixture_gradient(*moments)
    by_slab = -((tilted.precision - plain.precision) * prior.precision)[:n].sum()
    by_odds = np.bincount(groups, (tilted.log_odds - plain.log_odds)[:n], n_groups)
    return by_noise, by_slab, by_odds


def gaussian_statistics(result):
    """Means of the Gaussian, and how many coefficients the data determine: n - tr(T A^-1).

    The means of the units differ from these: a small noise variance would amplify that.
    """
    if result.block_sites is None:
        linear, precision = result.sites + [result.b, result.a]
        return linear / precision, (1 - result.sites[1] / precision).sum()
    return result.gaussian_mean, len(result.gaussian_mean) - result.prior_share


class FixedPoints(NamedTuple):
    """Fixed points of the parts of a task, their log-evidence and its gradient.

    Parameters
    ----------
    results : tuple of ExpectationPropagation
    log_evidence : float
    gradient : array of shape (2 + n_groups,)
        Gradient of the log-evidence by ln noise variance, ln slab variance and log-odds.
    """

    results: tuple
    log_evidence: float
    gradient: np.ndarray

    @property
    def converged(self):
        """Whether all parts have converged."""
        return all(result.converged for result in self.results)


def fixed_points(task, here, starts=None, n_threads=None):
    """Fixed points with these hyper-parameters, near given ones if there are any."""
    results, log_evidence, n_groups = [], 0.0, len(here.log_odds)
    gradient = np.zeros(2 + n_groups)
    options = {"schedule": "auto", "max_iter": MAX_EP_ITER, "n_threads": n_threads}
    for part, start in zip(task.parts, starts or [None] * len(task.parts), strict=True):
        options["tol"] = search_tolerance(part.X, here.noise_variance)
        result = part_solution(part, here, start, starts is None, **options)
        results.append(result)
        log_evidence += part.log_evidence(result)
        parts = evidence_gradient(part.model(here), result, part.groups, n_groups)
        gradient += np.append(parts[:2], parts[2])
        if starts is not None and not result.converged:
            return FixedPoints((*results, *starts[len(results) :]), -np.inf, gradient)
    return FixedPoints(tuple(results), log_evidence, gradient)


def part_solution(part, here, start=None, robust=True, **options):
    """Find a fixed point of a part of a task, by `robust_solution` or `solution_from`."""
    solve = robust_solution if robust else solution_from
    return solve(part.model(here), start, blocks=part.blocks, **options)


def search_tolerance(X, noise_variance):
    """Tolerance of a fixed point: see `SEARCH_TOL`."""
    # No division by 0 where all features are constant.
    square = column_squares(X).max()
    square = max(square, noise_variance * (RELATIVE_TOL / SEARCH_TOL) ** 2)
    return RELATIVE_TOL * np.sqrt(noise_variance / square)
