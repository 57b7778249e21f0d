"""The search for the hyper-parameters of spike-and-slab models of largest evidence.

With priors, of largest posterior density in their logarithms and log-odds (MAP-II). Each step costs
one fixed point of expectation propagation, which starts from the best one so far: the fixed point
of a rejected step may belong to another branch.
"""

import numpy as np
from scipy.special import expit

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.gaussian import order_of
from fastmf.learning.evidence import Hyperparameters, fixed_points
from fastmf.learning.evidence.blocks import has_blocks, same_blocks, with_blocks_of
from fastmf.learning.evidence.curvature import evidence_curvature
from fastmf.learning.quasi_newton import SearchPoint, minimise

# The search ends where a step is expected to raise the log-evidence by less: hyper-parameters are
# then less than a tenth of their standard errors from its maximum: the gain is half of the square.
EVIDENCE_TOL = 2e-3
# Longest steps of ln noise variance, ln slab variance and log-odds. The noise is approached from
# above, by steps that fall short of its best value: see `curvature_by_noise`. With a slab that is
# wide before the inclusion has fallen fixed points are hard to find.
LONGEST_STEPS = 3.0, 0.5, 1.0
# Smallest curvature by ln slab, in units of that which the complete data would have, and of the
# matrix of curvatures, in units of those: with less, steps lead too far for a warm start.
SLAB_SHARE, SMALLEST_SHARE = 0.5, 0.1
# Smallest curvature by ln s2, in units of that of `curvature_by_noise`, without and with blocks: in
# these, noise below the best costs many more iterations than a step does.
NOISE_SHARE, NOISE_SHARE_OF_BLOCKS = 0.6, 1.0
# Smallest expected square of a residual, in units of the noise variance.
MIN_RESIDUAL = 1e-12
# Bounds of the search, in units of the variance of y, of the slab over the mean square of the
# features: beyond them the evidence is flat, or rounding cannot tell the noise from none. The prior
# inclusion is at least 1 / (10 n_features).
NOISE_BOUNDS, SLAB_BOUNDS, MAX_LOG_ODDS = (1e-12, 2), (1e-6, 1e4), 3.0
# Distance from a bound, in the logarithm or log-odds, within which an optimum is on it.
ON_BOUND = 1e-3


def bounds_of(task, n_groups):
    """Bounds of the search, array of shape (2 + n_groups, 2): ln noise, ln slab and log-odds."""
    noise, slab = np.multiply(NOISE_BOUNDS, task.scale), np.multiply(SLAB_BOUNDS, task.slab_scale)
    odds = -np.log(10.0 * len(task.groups)), MAX_LOG_ODDS
    return np.concatenate([np.log([noise, slab]), [odds] * n_groups])


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
    """The log-density of data and priors by the hyper-parameters that are learned, for `minimise`.

    Parameters
    ----------
    task, start, fixed, priors, n_threads
        Arguments of `maximise_evidence`.

    Attributes
    ----------
    free : bool array of shape (2 + n_groups,)
        Which of ln s2, ln slab and log-odds are learned.
    start : array of shape (2 + n_groups,)
        Their values at the start.
    bounds : array of shape (2 + n_groups, 2)
    best : tuple of ExpectationPropagation, or None
        The fixed points of the parts of the task of largest density so far.
    """

    def __init__(self, task, start, fixed, priors, n_threads):
        self._task, self._priors, self._n_threads = task, priors, n_threads
        self.free = which_are_free(fixed, len(start.log_odds))
        self.bounds = bounds_of(task, len(start.log_odds))
        values = np.append(np.log([start.noise_variance, start.slab_variance]), start.log_odds)
        self.start = np.where(self.free, np.clip(values, *self.bounds.T), values)
        self.best, self._best_density = None, -np.inf
        self._n_of_groups = np.bincount(task.groups, minlength=len(start.log_odds))

    def hyperparameters(self, x):
        """Hyper-parameters with values x of the learned ones."""
        values = self.start.copy()
        values[self.free] = x
        return Hyperparameters(np.exp(values[0]), np.exp(values[1]), values[2:])

    def objective(self, x):
        """The `SearchPoint` of minus the log-density of data and priors; inf if the solver fails.

        The objective is another one where blocks, or their patterns, have changed.
        """
        here, last = self.hyperparameters(x), self.best
        found = fixed_points(self._task, here, last, self._n_threads)
        if last is not None and not found.converged:
            return SearchPoint(np.inf)
        changed = last is not None and not same_blocks(last, found.results)
        self._task = with_blocks_of(self._task, found.results)
        prior, by_prior = 0.0, 0.0
        if self._priors is not None:
            prior, by_prior = self._priors.log_density(here, self.free)
        density = found.log_evidence + prior
        reached = last is not None and all(result.converged for result in last)
        if changed or not reached or density > self._best_density:
            self.best, self._best_density = found.results, density
        gradient = -(found.gradient + by_prior)[self.free]
        curvature, smallest = self._curvature(here, found), np.zeros(len(x))
        if self.free[0]:
            curvature[0, 0] = curvature_by_noise(gradient[0], self._task.total_rows)
            share = NOISE_SHARE_OF_BLOCKS if has_blocks(self._task) else NOISE_SHARE
            smallest[0] = share * curvature[0, 0]
        return SearchPoint(-density, gradient, curvature, smallest, changed)

    def _curvature(self, here, found):
        """Curvatures of minus the log-density, those by the noise 1."""
        n_groups = len(here.log_odds) if self.free[-1] else 0
        free = self.free[: 2 + n_groups]
        curvature = np.eye(len(free))
        curvature[1, 1] = 0
        for part, result in zip(self._task.parts, found.results, strict=True):
            prior, groups = here.prior(part.groups), part.groups
            curvature[1:, 1:] += evidence_curvature(prior, result, groups, n_groups)
        # What it would be if it were known which coefficients are zero.
        n = np.maximum(found.gradient[2:] + self._n_of_groups * expit(here.log_odds), 1.0)
        known = np.append([1.0, n.sum() / 2], n[:n_groups])
        if self._priors is not None:
            by_prior = self._priors.information(here)[: len(free)]
            curvature += np.diag(by_prior)
            known += by_prior
        curvature[1, 1] = max(curvature[1, 1], SLAB_SHARE * known[1])
        scale = np.sqrt(known[free])
        values, vectors = np.linalg.eigh(curvature[np.ix_(free, free)] / scale / scale[:, None])
        values = np.maximum(values, SMALLEST_SHARE)
        return vectors * values @ vectors.T * scale * scale[:, None]


def which_are_free(fixed, n_groups):
    """Which of ln s2, ln slab and the log-odds of groups are learned, as a mask."""
    odds = [not fixed.log_odds] * n_groups
    return np.append([not fixed.noise_variance, not fixed.slab_variance], odds)


def maximise_evidence(task, start, fixed, *, priors=None, max_iter, n_threads=None, report=None):
    """Hyper-parameters of largest evidence, and fixed points near them; None if all are fixed."""
    search = _Search(task, start, fixed, priors, n_threads)
    free = search.free
    if not free.any():
        return start, None
    longest = np.append(LONGEST_STEPS[:2], np.full(len(free) - 2, LONGEST_STEPS[2]))[free]
    # For the products of the gradient, too: threads of BLAS would spin into the next fixed point.
    with one_blas_thread(max(order_of(part.model(start)) for part in task.parts)):
        x = minimise(
            search.objective, search.start[free], *search.bounds[free].T,
            longest=longest, tol=EVIDENCE_TOL, max_iter=max_iter, report=report,
        )  # fmt: skip
    return search.hyperparameters(x), search.best


def on_bounds(task, hyperparameters, fixed):
    """Names of the learned hyper-parameters that lie on a bound of the search, with the bound."""
    n_groups = len(hyperparameters.log_odds)
    values = np.append(np.log(hyperparameters[:2]), hyperparameters.log_odds)
    near = abs(values[:, None] - bounds_of(task, n_groups)) < ON_BOUND
    near &= which_are_free(fixed, n_groups)[:, None]
    units = "noise variance", "slab variance", "prior inclusion"
    sides = "lower bound", "upper bound"
    found = {(units[min(k, 2)], sides[side]): None for k, side in np.argwhere(near)}
    return list(found)
