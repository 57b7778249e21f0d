"""Learning the hyper-parameters of spike-and-slab models by maximising their evidence.

At a fixed point of expectation propagation the log-evidence is stationary in the sites, so that its
derivatives are those with the sites held (Hernández-Lobato & Hernández-Lobato 2011, Eq. 37):

    by ln s2          (|y - X m|^2 + tr(X A^-1 X')) / (2 s2) - n_samples / 2
    by ln slab        the derivatives of the log-partitions of the tilted units, less those of the
    and log-odds      units under their priors alone
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.ep.expectation_propagation import expectation_propagation
from fastmf.inference.gaussian import order_of
from fastmf.learning.quasi_newton import minimise
from fastmf.models import SparseLinearModel
from fastmf.priors import Concatenated, GaussBernoulli, TruncatedGaussian
from fastmf.priors._protocol import parts_of

# Log-odds of a coefficient without a spike.
NEVER_ZERO = 40.0
# The search ends where a step is expected to raise the log-evidence by less: hyper-parameters are
# then a twentieth of their standard errors from its maximum: the gain is half of the square.
EVIDENCE_TOL = 1e-3
# Tolerance of the fixed points during the search: at most this, and this fraction of the standard
# error of a coefficient if all others were known. With little noise a larger one would be of the
# order of the standard errors: a state then passes for the fixed point of the next noise variance,
# too, and the evidence seems to grow as the noise falls, down to its bound.
SEARCH_TOL, RELATIVE_TOL = 1e-4, 1e-2
# Smallest expected square of a residual, in units of the noise variance.
MIN_RESIDUAL = 1e-12
# Iterations towards a fixed point during the search: poor hyper-parameters take more. With half or
# twice as many a fit takes as long.
MAX_ITER = 100
# Prior precision of a latent variable, uniform on a half-line but for that.
LATENT_PRECISION = 1e-10
# Smallest precision of a site, in units of the prior's, where negative ones do not converge.
MIN_RELATIVE_PRECISION = 1e-3
# Bounds of the search, in units of the variance of y: beyond them the evidence is flat, or rounding
# cannot tell the noise from none. The prior inclusion is at least 1 / (10 n_features).
NOISE_BOUNDS, SLAB_BOUNDS, MAX_LOG_ODDS = (1e-5, 2), (1e-6, 1e4), 3.0


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
    """

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    n_rows: float | None = None

    @property
    def scale(self):
        """Variance of y."""
        return float(self.y @ self.y) / (self.n_rows or len(self.y)) or 1.0

    @property
    def n_absent(self):
        """Rows that the data stand for beyond their number."""
        return 0.0 if self.n_rows is None else self.n_rows - len(self.y)

    def log_evidence(self, result, noise_variance):
        """That of a fixed point, with the normalisers of absent rows."""
        return result.log_evidence - self.n_absent * np.log(2 * np.pi * noise_variance) / 2

    def model(self, hyperparameters):
        """The model with these hyper-parameters."""
        prior = hyperparameters.prior(self.groups)
        return SparseLinearModel(self.X, self.y, hyperparameters.noise_variance, prior)


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
    """

    X: np.ndarray
    groups: np.ndarray
    others: np.ndarray

    @property
    def n_absent(self):
        """Weight of the samples that are missing: none."""
        return 0.0

    @property
    def scale(self):
        """Variance of the noise."""
        return 1.0

    @classmethod
    def of(cls, X, signs, groups, others=()):
        """From features, further columns last, and classes -1 and 1."""
        return cls(X * signs[:, None].astype(X.dtype), groups, np.asarray(others, float))

    def model(self, hyperparameters):
        """The model with these hyper-parameters."""
        n, prior = len(self.X), hyperparameters.prior(self.groups)
        # Those without a spike have one too, of no weight: so that all are units of one kind.
        prior = GaussBernoulli(
            np.append(prior.field, 0 * self.others),
            np.append(prior.precision, self.others),
            np.append(prior.log_odds, NEVER_ZERO + 0 * self.others),
        )
        latent = TruncatedGaussian(np.zeros(n), LATENT_PRECISION, 0.0, np.inf)
        prior = Concatenated(prior, latent)
        return SparseLinearModel(self.X, np.zeros(n), hyperparameters.noise_variance, prior)

    def log_evidence(self, result, noise_variance=1.0):
        """Log-probability of the classes: without the normalisers of the latent variables."""
        normaliser = np.log(2 * np.pi / LATENT_PRECISION) / 2 - np.log(2)
        return result.log_evidence + len(self.X) * normaliser


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
    # Moments of the Gaussian: the differences to those of the units would be amplified by a small
    # noise variance.
    linear, precision = result.sites + [result.b, result.a]
    residual = model.y - model.prediction(linear / precision)
    # tr(X A^-1 X') from A A^-1 = 1, without a matrix of features.
    trace = model.noise_variance * (1 - result.sites[1] / precision).sum()
    by_noise = ((residual @ residual + trace) / model.noise_variance - model.n_samples) / 2
    prior, n = parts_of(model.prior)[0], len(groups)
    zero, units = np.zeros_like(prior.field), slice(len(prior.field))
    tilted, plain = prior.gradient(result.b[units], result.a[units]), prior.gradient(zero, zero)
    by_slab = -((tilted.precision - plain.precision) * prior.precision)[:n].sum()
    by_odds = np.bincount(groups, (tilted.log_odds - plain.log_odds)[:n], n_groups)
    return by_noise, by_slab, by_odds


def curvature_by_noise(derivative, n_rows):
    """Mean curvature of minus the log-evidence by ln s2, from here to its minimum.

    If the expected squares of the residuals, R, stayed what they are: they fall with s2, so that
    the minimum of n_rows ln(s2) / 2 + R / (2 s2), the step of expectation maximisation, falls short
    of that of the evidence. Smaller curvatures lead beyond it, to noise so small that fixed points
    are hard to find.
    """
    # ln(R / (n_rows s2)); rounding may take R from 0 to below.
    step = np.log1p(max(-2 * derivative / n_rows, MIN_RESIDUAL - 1))
    return n_rows / 2 if abs(step) < 1e-9 else -derivative / step


class _Search:
    """The log-evidence by the hyper-parameters that are learned, for `minimise`.

    The arguments are those of `maximise_evidence`; `options` those of `expectation_propagation`.

    Attributes
    ----------
    free : bool array of shape (2 + n_groups,)
        Which of ln s2, ln slab and log-odds are learned.
    whole : array of shape (2 + n_groups,)
        Their values at the start.
    bounds : array of shape (2 + n_groups, 2)
    best : ExpectationPropagation or None
        The fixed point of largest evidence so far.
    """

    def __init__(self, task, start, fixed, tol, **options):
        self._task, self._options, self._tol = task, options, tol
        n_groups = len(start.log_odds)
        self.free = np.append(
            [not fixed.noise_variance, not fixed.slab_variance], [not fixed.log_odds] * n_groups
        )
        variances = np.log(np.multiply([NOISE_BOUNDS, SLAB_BOUNDS], task.scale))
        odds = -np.log(10.0 * len(task.groups)), MAX_LOG_ODDS
        self.bounds = np.concatenate([variances, [odds] * n_groups])
        whole = np.append(np.log([start.noise_variance, start.slab_variance]), start.log_odds)
        self.whole = np.where(self.free, np.clip(whole, *self.bounds.T), whole)
        self.best, self._best_evidence = None, -np.inf
        self._n_rows = len(task.X) + task.n_absent
        self._n_of_groups = np.bincount(task.groups, minlength=n_groups)
        self._n_included = np.zeros(n_groups)
        self._square = np.einsum("ij,ij->j", task.X, task.X).max()

    def hyperparameters(self, x):
        """Those of values x of the learned ones."""
        values = self.whole.copy()
        values[self.free] = x
        return Hyperparameters(np.exp(values[0]), np.exp(values[1]), values[2:])

    def objective(self, x):
        """Minus the log-evidence, infinite where the solver does not converge, and its gradient."""
        task, here = self._task, self.hyperparameters(x)
        model = task.model(here)
        # No division by 0 where all features are constant.
        square = max(self._square, here.noise_variance * (RELATIVE_TOL / SEARCH_TOL) ** 2)
        tol = max(self._tol, RELATIVE_TOL * np.sqrt(here.noise_variance / square))
        if self.best is None:
            self.best = result = robust_solution(model, tol=tol, **self._options)
        else:
            result = solution_from(model, self.best, tol=tol, **self._options)
            if not result.converged:
                return np.inf, np.zeros(self.free.sum())
        # There may be several fixed points: the next search starts from the best one, not from
        # that of a trial which was rejected.
        evidence = task.log_evidence(result, model.noise_variance)
        if not self.best.converged or evidence > self._best_evidence:
            self.best, self._best_evidence = result, evidence
        n_groups = len(self._n_of_groups)
        by_noise, by_slab, by_odds = evidence_gradient(model, result, task.groups, n_groups)
        by_noise -= task.n_absent / 2
        self._n_included = by_odds + self._n_of_groups * expit(here.log_odds)
        return -evidence, -np.append([by_noise, by_slab], by_odds)[self.free]

    def information(self):
        """What the evidence would have if it were known which coefficients are zero."""
        n = np.maximum(self._n_included, 1.0)
        return np.append([self._n_rows / 2, n.sum() / 2], n)[self.free]

    def curvature(self, gradient):
        """Lower bounds of the curvatures, given the gradient: see `curvature_by_noise`."""
        bounds = np.zeros(self.free.sum())
        if self.free[0]:
            bounds[0] = curvature_by_noise(gradient[0], self._n_rows)
        return bounds


def maximise_evidence(task, start, fixed, *, tol, max_iter, n_threads=None):
    """Hyper-parameters of largest evidence, by quasi-Newton steps in their logarithms and log-odds.

    Parameters
    ----------
    task : Regression or Classification
    start : Hyperparameters
    fixed : Hyperparameters of bool
        Which ones are not learned.
    tol : float
        Smallest one of the fixed points; most are found to a larger one (see `SEARCH_TOL`).
    max_iter : int
        Fixed points, after the first one.
    n_threads : int, optional

    Returns
    -------
    Hyperparameters
    ExpectationPropagation or None
        The fixed point of largest evidence, theirs; None if all are fixed.
    """
    options = {"schedule": "auto", "max_iter": MAX_ITER, "n_threads": n_threads}
    search = _Search(task, start, fixed, tol, **options)
    free = search.free
    if not free.any():
        return start, None
    # For the products of the gradient, too: threads of BLAS would spin into the next fixed point.
    with one_blas_thread(order_of(task.model(start))):
        x = minimise(
            search.objective, search.whole[free], *search.bounds[free].T,
            first=search.information, curvature=search.curvature, tol=EVIDENCE_TOL,
            max_iter=max_iter,
        )  # fmt: skip
    return search.hyperparameters(x), search.best
