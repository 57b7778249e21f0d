"""The search for the hyper-parameters of spike-and-slab models, and averages over them.

The search maximises the evidence, or with priors the posterior density of the logarithms and
log-odds (MAP-II). Each step needs one fixed point of expectation propagation. It starts from the
best fixed point so far, because the fixed point of a rejected step may belong to another branch.
Where no fixed point is found, the last state of the solver serves if its density is higher: fixed
points are often lost in a range of noise variances, and exist again below it.

Averages are sums over a grid of prior inclusions and slab variances, which is extended from the
optimum to all points with significant weight. The noise variance is optimised at each point: in
Laplace's approximation its integral has nearly the same width everywhere.
"""

import numpy as np
from scipy.special import expit

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.ep.parallel import BARREN_SWEEPS
from fastmf.inference.gaussian import order_of
from fastmf.learning.evidence import Hyperparameters, fixed_points, gaussian_statistics
from fastmf.learning.evidence.blocks import same_blocks, with_blocks_of, with_found_blocks
from fastmf.learning.evidence.curvature import evidence_curvature
from fastmf.learning.quasi_newton import SearchPoint, minimise

# Predicted gain of the log-evidence below which the search stops. Hyper-parameters are then within
# a tenth of their standard errors of the maximum, as the gain is half the squared distance.
EVIDENCE_TOL = 2e-3
# Lower bound of curvatures, relative to the curvatures of complete data: with smaller ones, steps
# are too long for a warm start. The noise is approached from above, by steps that are too short;
# see `curvature_by_noise`.
SMALLEST_SHARE = 0.1
# Bounds of the search, relative to the variance of y; for the slab, this is divided by the mean
# square of the features. Beyond them the evidence is flat, or the noise is within rounding errors.
# The prior inclusion is at least 1 / (10 n_features).
NOISE_BOUNDS, SLAB_BOUNDS, MAX_LOG_ODDS = (1e-12, 2), (1e-6, 1e4), 3.0
# Spacing of the grid of an average, in posterior standard deviations (the relative error of the sum
# over a Gaussian is 1e-5), and nats below the best point beyond which points are left out.
SPACING, LEFT_OUT = 1.25, 6.0


def bounds_of(task, n_groups):
    """Return the bounds of ln noise, ln slab and log-odds, array of shape (2 + n_groups, 2)."""
    noise, slab = np.multiply(NOISE_BOUNDS, task.scale), np.multiply(SLAB_BOUNDS, task.slab_scale)
    odds = -np.log(10.0 * len(task.groups)), MAX_LOG_ODDS
    return np.concatenate([np.log([noise, slab]), [odds] * n_groups])


def curvature_by_noise(derivative, n_free):
    """Compute the mean curvature of minus the log-evidence by ln s2 between here and its minimum.

    `n_free` is the number of rows minus the effective number of parameters (MacKay 1992). For
    constant `n_free` and residual sum of squares R, the minimum would be at s2 = R / n_free. R
    decreases with s2, so that the step is too short. With smaller curvatures steps would be too
    long, and lead to noise variances for which fixed points are hard to find.
    """
    # ln(R / (n_free s2)); R may be below 0 by rounding errors.
    step = np.log1p(max(-2 * derivative / n_free, np.finfo(float).eps - 1))
    return n_free / 2 if abs(step) < 1e-9 else -derivative / step


class _Search:
    """The log-density of data and priors as a function of the learned hyper-parameters.

    Parameters
    ----------
    task, fixed, priors, n_threads
        Arguments of `maximise_evidence`.
    start : Hyperparameters
    results : tuple of ExpectationPropagation, optional
        Starts of the first fixed points.

    Attributes
    ----------
    free : bool array of shape (2 + n_groups,)
        Mask of the parameters among ln s2, ln slab and log-odds that are learned.
    start : array of shape (2 + n_groups,)
        Initial values of all parameters.
    bounds : array of shape (2 + n_groups, 2)
    best : FixedPoints or None
        The fixed points with the largest density so far.
    """

    def __init__(self, task, start, fixed, priors, n_threads, results=None):
        self._task, self._priors, self._n_threads = task, priors, n_threads
        self.free = free_mask(fixed, len(start.log_odds))
        self.bounds = bounds_of(task, len(start.log_odds))
        values = np.append(np.log([start.noise_variance, start.slab_variance]), start.log_odds)
        self.start = np.where(self.free, np.clip(values, *self.bounds.T), values)
        self.best, self._results, self._robust = None, results, True
        self._n_of_groups = np.bincount(task.groups, minlength=len(start.log_odds))

    def hyperparameters(self, x):
        """Return the hyper-parameters with values x of the learned ones."""
        values = self.start.copy()
        values[self.free] = x
        return Hyperparameters(np.exp(values[0]), np.exp(values[1]), values[2:])

    def objective(self, x):
        """Return the `SearchPoint` of minus the log-density; its value is inf if the solver fails.

        The objective is flagged as changed if the blocks, or their patterns, have changed, and
        between fixed points and states of a solver that has not converged.
        """
        values, best, task = self.hyperparameters(x), self.best, self._task
        starts = self._results if best is None else best.results
        options = {"n_threads": self._n_threads}
        # The first trial without a fixed point is mostly too far away: only later, shorter steps
        # need many sweeps, other blocks, or descents, which take up to a hundred times as long.
        if not self._robust:
            options |= {"robust": False, "schedule": "parallel", "max_iter": 2 * BARREN_SWEEPS}
            task = with_found_blocks(task, lambda blocks: blocks.labels)
        try:
            point = fixed_points(task, values, starts, **options)
        except ValueError:  # no sites give a proper Gaussian
            if best is None:
                raise
            return SearchPoint(np.inf)
        if best is None:
            self._robust = any(result.schedule == "convergent" for result in point.results)
        self._robust |= not point.converged
        gradient = point.gradient
        if self._priors is not None:
            log_prior, by_prior = self._priors.log_density(values, self.free)
            point = point._replace(log_density=point.log_density + log_prior)
            gradient = gradient + by_prior
        higher = best is None or point.log_density > best.log_density
        if not (higher or point.converged):
            return SearchPoint(np.inf)
        changed = best is not None and not (
            best.converged == point.converged and same_blocks(best.results, point.results)
        )
        self._task = with_blocks_of(self._task, point.results)
        if higher or changed:
            self.best = point
        gradient = -gradient[self.free]
        curvature, smallest = self._curvature(point), np.zeros(len(x))
        if self.free[0]:
            # With blocks, longer steps lead to other, often worse blocks: count all rows as free.
            single = (result for result in point.results if result.block_sites is None)
            n_determined = sum(gaussian_statistics(result)[1] for result in single)
            n_free = max(self._task.total_rows - n_determined, 1.0)
            smallest[0] = curvature[0, 0] = curvature_by_noise(gradient[0], n_free)
        return SearchPoint(-point.log_density, gradient, curvature, smallest, changed)

    def _curvature(self, point):
        """Compute the curvature of minus the log-density; 1 for the noise."""
        values = point.hyperparameters
        n_groups = len(values.log_odds) if self.free[-1] else 0
        free = self.free[: 2 + n_groups]
        curvature = np.eye(len(free))
        curvature[1, 1] = 0
        for part, result in zip(self._task.parts, point.results, strict=True):
            curvature[1:, 1:] += evidence_curvature(values, result, part.groups, n_groups)
        # Curvatures of the complete data, in which zero coefficients are known.
        n = np.maximum(n_included(point, self._n_of_groups), 1.0)
        complete = np.append([1.0, n.sum() / 2], n[:n_groups])
        if self._priors is not None:
            by_prior = self._priors.information(values)[: len(free)]
            curvature += np.diag(by_prior)
            complete += by_prior
        curvature[1, 1] = max(curvature[1, 1], SMALLEST_SHARE * complete[1])
        scale = np.sqrt(complete[free])
        values, vectors = np.linalg.eigh(curvature[np.ix_(free, free)] / scale / scale[:, None])
        return vectors * np.maximum(values, SMALLEST_SHARE) @ vectors.T * scale * scale[:, None]


def n_included(point, n_of_groups):
    """Return the expected number of non-zero coefficients of each group at `FixedPoints`."""
    return point.gradient[2:] + n_of_groups * expit(point.hyperparameters.log_odds)


def free_mask(fixed, n_groups):
    """Return a mask of the learned parameters among ln s2, ln slab and log-odds of groups."""
    odds = [not fixed.log_odds] * n_groups
    return np.append([not fixed.noise_variance, not fixed.slab_variance], odds)


def maximise_evidence(
    task, start, fixed, *, results=None, priors=None, n_threads=None, report=None
):
    """Find the hyper-parameters with the largest evidence; return their `FixedPoints`."""
    search = _Search(task, start, fixed, priors, n_threads, results)
    free = search.free
    if not free.any():
        search.objective(search.start[free])
        return search.best
    # This includes products for the gradient: BLAS threads would spin during the next fixed point.
    with one_blas_thread(max(order_of(part.model(start)) for part in task.parts)):
        x = minimise(
            search.objective, search.start[free], *search.bounds[free].T,
            tol=EVIDENCE_TOL, report=report,
        )  # fmt: skip
    return search.best._replace(hyperparameters=search.hyperparameters(x))


def on_bounds(task, hyperparameters, fixed):
    """Return pairs of the learned hyper-parameters at a bound of the search, and the bound."""
    n_groups = len(hyperparameters.log_odds)
    values = np.append(np.log(hyperparameters[:2]), hyperparameters.log_odds)
    is_on_bound = np.isclose(values[:, None], bounds_of(task, n_groups))
    is_on_bound &= free_mask(fixed, n_groups)[:, None]
    units = "noise variance", "slab variance", "prior inclusion"
    sides = "lower bound", "upper bound"
    return list({(units[min(k, 2)], sides[side]): None for k, side in np.argwhere(is_on_bound)})


def averaged_points(task, best, fixed, *, priors, n_threads=None, report=None):
    """Compute `FixedPoints` on a grid around the best ones, and their posterior weights."""
    options = {"priors": priors, "n_threads": n_threads}
    center, noise = best.hyperparameters, Hyperparameters(fixed.noise_variance, True, True)
    free = free_mask(fixed, len(center.log_odds))[1:]
    low, high = bounds_of(task, len(center.log_odds))[1:].T

    def optimum(values, results):
        """Return the point with the best noise variance; None if outside the bounds or diverged."""
        slab_and_odds = np.append(np.log(values.slab_variance), values.log_odds)
        if not ((low <= slab_and_odds) & (slab_and_odds <= high) | ~free).all():
            return None
        point = maximise_evidence(task, values, noise, results=results, **options)
        log_prior, _ = priors.log_density(values, np.append(False, free))
        point = point._replace(log_density=point.log_density + log_prior)
        return point if point.converged else None

    first = optimum(center, best.results)
    if first is None:
        return [best], np.ones(1)
    n = max(n_included(first, np.bincount(task.groups)).sum(), 0.5)
    spacing = SPACING / np.sqrt([n, n / 2 + 0.25])
    axes = np.eye(2, dtype=int)[[free[-1], free[0]]]
    points, queue, highest = {(0, 0): first}, [(0, 0)], first.log_density
    while queue:
        place = max(queue, key=lambda place: points[place].log_density)
        queue.remove(place)
        point = points[place]
        if report is not None:
            report(len(points), -point.log_density)
        if point.log_density < highest - LEFT_OUT:
            break
        for step in (*axes, *-axes):
            new = tuple(place + step)
            if new in points:
                continue
            by_odds, by_slab = new * spacing
            values = point.hyperparameters._replace(
                slab_variance=center.slab_variance * np.exp(by_slab),
                log_odds=center.log_odds + by_odds,
            )
            points[new] = optimum(values, point.results)
            if points[new] is not None:
                queue.append(new)
                highest = max(highest, points[new].log_density)
    points = [p for p in points.values() if p is not None]
    points = [p for p in points if p is first or p.log_density > highest - LEFT_OUT]
    weights = np.exp([p.log_density - highest for p in points])
    return points, weights / weights.sum()
