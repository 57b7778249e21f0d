"""Averages over the hyper-parameters of spike-and-slab models, in place of one value of each.

Evidence and priors together are the posterior density of the hyper-parameters. It is summed over
a grid of prior inclusions and slab variances, the noise variance at its optimum for each: by
Laplace's method its integral has nearly the same width everywhere. The grid grows from the
optimum, as far as there is weight.
"""

from typing import NamedTuple

import numpy as np

from fastmf.learning.evidence import FixedPoints, Hyperparameters, fixed_points
from fastmf.learning.evidence.search import bounds_of, curvature_by_noise, which_are_free

# Spacing of the grid, in standard deviations of the posterior: the error of the sum of a Gaussian
# is 1e-5 of it.
SPACING = 1.25
# Points whose neighbours are not visited, and those that are left out: nats below the best one.
NO_NEIGHBOURS, LEFT_OUT = 4.0, 6.0
MAX_POINTS = 150
# Steps of the noise towards its optimum at a point, and the expected gain that ends them.
NOISE_STEPS, NOISE_GAIN = 4, 0.01


class GridPoint(NamedTuple):
    """Hyper-parameters, the fixed points with them, and the log-density of data and priors.

    Parameters
    ----------
    hyperparameters : Hyperparameters
    found : FixedPoints
    log_density : float
    """

    hyperparameters: Hyperparameters
    found: FixedPoints
    log_density: float


class _Grid:
    """The points of the grid: see `averaged_points`."""

    def __init__(self, task, fixed, priors, n_groups, n_threads):
        self._task, self._priors, self._n_threads = task, priors, n_threads
        self._free = which_are_free(fixed, n_groups)
        self._bounds = bounds_of(task, n_groups)

    def point(self, here, starts):
        """The point with the noise at its optimum, from fixed points nearby, or None."""
        n_rows = self._task.total_rows
        for step in range(NOISE_STEPS):
            found = fixed_points(self._task, here, starts, self._n_threads)
            if not found.converged:
                return None
            prior, by_prior = self._priors.log_density(here, self._free)
            density, slope = found.log_evidence + prior, found.gradient[0] + by_prior[0]
            if not self._free[0]:
                break
            curvature = max(curvature_by_noise(-slope, n_rows), n_rows / 4)
            gain = slope * slope / curvature / 2
            if gain < NOISE_GAIN or step == NOISE_STEPS - 1:
                density += min(gain, NOISE_GAIN)
                break
            change = np.clip(slope / curvature, -1, 1)
            noise = np.clip(np.log(here.noise_variance) + change, *self._bounds[0])
            here, starts = here._replace(noise_variance=float(np.exp(noise))), found.results
        return GridPoint(here, found, density)

    def inside(self, here):
        """Whether slab and log-odds are between their bounds."""
        values = np.append(np.log(here.slab_variance), here.log_odds)
        low, high = self._bounds[1:].T
        return bool(((low <= values) & (values <= high))[self._free[1:]].all())

    def steps(self, first):
        """Spacings of log-odds and ln slab; 0 where they are not learned."""
        n_of_groups = np.bincount(self._task.groups)
        odds = first.hyperparameters.log_odds
        included = max((first.found.gradient[2:] + n_of_groups / (1 + np.exp(-odds))).sum(), 0.5)
        steps = np.array([1 / np.sqrt(included), 1 / np.sqrt(included / 2 + 0.25)])
        return SPACING * steps * [self._free[-1], self._free[1]]


def averaged_points(task, best, results, fixed, *, priors, n_threads=None, report=None):
    """Hyper-parameters on a grid around the best ones, and their posterior weights."""
    grid = _Grid(task, fixed, priors, len(best.log_odds), n_threads)
    first = grid.point(best, results)
    if first is None:
        prior, _ = priors.log_density(best, which_are_free(fixed, len(best.log_odds)))
        evidence = sum(
            part.log_evidence(result) for part, result in zip(task.parts, results, strict=True)
        )
        found = FixedPoints(results, evidence, np.zeros(2 + len(best.log_odds)))
        return [GridPoint(best, found, evidence + prior)], np.ones(1)
    steps = grid.steps(first)
    points, queue, top = {(0, 0): first}, [(0, 0)], first.log_density
    while queue and len(points) < MAX_POINTS:
        place = max(queue, key=lambda p: points[p].log_density)
        queue.remove(place)
        point = points[place]
        if report is not None:
            report(len(points), -point.log_density)
        if point.log_density < top - NO_NEIGHBOURS:
            break
        for new in _neighbours(place, steps, points):
            at = point.hyperparameters
            moved = Hyperparameters(
                at.noise_variance,
                best.slab_variance * np.exp(steps[1] * new[1]),
                best.log_odds + steps[0] * new[0],
            )
            found = grid.point(moved, point.found.results) if grid.inside(moved) else None
            points[new] = found
            if found is not None:
                queue.append(new)
                top = max(top, found.log_density)
    return _weighted([point for point in points.values() if point is not None], top)


def _neighbours(place, steps, visited):
    """Places beside this one along axes that have a spacing, not yet visited."""
    i, j = place
    along_odds = [(i + 1, j), (i - 1, j)] if steps[0] else []
    along_slab = [(i, j + 1), (i, j - 1)] if steps[1] else []
    return [new for new in along_odds + along_slab if new not in visited]


def _weighted(points, top):
    """The points of enough density, and their weights."""
    kept = [point for point in points if point is points[0] or point.log_density > top - LEFT_OUT]
    weights = np.exp([point.log_density - top for point in kept])
    return kept, weights / weights.sum()
