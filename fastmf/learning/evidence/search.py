"""The search for the hyper-parameters of spike-and-slab models of largest evidence.

With priors, of largest posterior density in their logarithms and log-odds (MAP-II).
"""

from functools import partial
from itertools import count

import numpy as np
from scipy.special import expit

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.gaussian import order_of
from fastmf.learning.evidence import Hyperparameters, fixed_points
from fastmf.learning.evidence.blocks import (
    has_blocks,
    same_blocks,
    with_blocks_of,
    with_small_patterns,
)
from fastmf.learning.evidence.curvature import evidence_curvature
from fastmf.learning.evidence.screening import (
    ActivePart,
    active_parts,
    active_task,
    cavities_of,
    moved,
    whole_task,
)
from fastmf.learning.evidence.site_path import SitePath
from fastmf.learning.quasi_newton import SearchPoint, minimise

# The search ends where a step is expected to raise the log-evidence by less: hyper-parameters are
# then less than a tenth of their standard errors from its maximum: the gain is half of the square.
EVIDENCE_TOL = 2e-3
# Tolerance of fixed points, in units of that at the end, until a step is expected to raise the
# log-evidence by less than this; patterns of blocks stay small as long. With blocks, states further
# from their fixed points may lead to other ways of joining them, which take longer.
LOOSENESS, LOOSENESS_OF_BLOCKS, LARGE_GAIN = 25.0, 5.0, 1.0
ROUGH_LOOSENESS = 15.0
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
# Searches without features that the data speak against; expected gain below which the last point
# with all features is the end, and that below which steps from it have all features.
MAX_ACTIVE_SEARCHES, SMALL_GAIN, NEAR_GAIN = 3, 2e-4, 0.05
# Iterations of the last fixed point without some features, up to which that with all features is
# found to the tolerance of the end; that of the estimators.
FEW_ITERATIONS, END_TOL = 4, 1e-6
FIRST_TOL, MAX_ROUGH_POINTS = 0.05, 12
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


def expected_gain(point, x, low, high):
    """How much a Newton step from x in the box is expected to raise the log-density."""
    step = np.clip(x - np.linalg.solve(point.curvature, point.gradient), low, high) - x
    return -point.gradient @ step / 2


class _Search:
    """The log-density of data and priors by the hyper-parameters that are learned, for `minimise`.

    The arguments are those of `maximise_evidence`.

    Attributes
    ----------
    free : bool array of shape (2 + n_groups,)
        Which of ln s2, ln slab and log-odds are learned.
    whole : array of shape (2 + n_groups,)
        Their values at the start.
    bounds : array of shape (2 + n_groups, 2)
    best : tuple of ExpectationPropagation, or None
        The fixed points of the parts of the task of largest density so far.
    ended : array or None
        The point of `best`, if its tolerance is that of the end.
    """

    def __init__(self, task, start, fixed, priors, n_threads):
        self._task, self._priors, self._n_threads = task, priors, n_threads
        self._settings = start, fixed, priors, n_threads
        self.free = which_are_free(fixed, len(start.log_odds))
        self.bounds = bounds_of(task, len(start.log_odds))
        whole = np.append(np.log([start.noise_variance, start.slab_variance]), start.log_odds)
        self.whole = np.where(self.free, np.clip(whole, *self.bounds.T), whole)
        self.best, self._best_density, self.ended = None, -np.inf, None
        self._n_of_groups = np.bincount(task.groups, minlength=len(start.log_odds))
        self._loose, self._changed, self._path = True, False, SitePath()
        # Whether patterns stay small whether or not tolerances are loose.
        self._always_shallow = False

    def hyperparameters(self, x):
        """Hyper-parameters with values x of the learned ones."""
        values = self.whole.copy()
        values[self.free] = x
        return Hyperparameters(np.exp(values[0]), np.exp(values[1]), values[2:])

    def start(self, x):
        """Where fixed points are sought."""
        return self._path.start(x, self.best)

    def _variables(self, here):
        """The learned ones of hyper-parameters."""
        return np.append(np.log(here[:2]), here.log_odds)[self.free]

    def objective(self, x, at_end=False):
        """The `SearchPoint` of minus the log-density of data and priors; inf if the solver fails.

        It is of another objective where blocks, or their patterns, are others than before. With
        `at_end` the tolerance is that of the end.
        """
        here, first = self.hyperparameters(x), self.best is None
        task = (
            with_small_patterns(self._task) if self._loose or self._always_shallow else self._task
        )
        looseness = self._looseness(task) if self._loose else 1.0
        found = self._fixed_points(task, here, looseness, END_TOL if at_end else np.inf)
        if found is None:
            return SearchPoint(np.inf)
        self._changed |= not (first or same_blocks(self.best, found.results))
        self._task = with_blocks_of(self._task, found.results)
        if first:
            self.best = found.results
        elif not found.converged:
            return SearchPoint(np.inf)
        prior, by_prior = 0.0, 0.0
        if self._priors is not None:
            prior, by_prior = self._priors.log_density(here, self.free)
        # There may be several fixed points: the next search starts from the best one, not from
        # that of a trial which was rejected.
        density = found.log_evidence + prior
        known = all(result.converged for result in self.best) and not self._changed
        if not known or density > self._best_density:
            self.best, self._best_density = found.results, density
            self.ended = x if at_end else None
            self._path.add(x, self.best)
        gradient = -(found.gradient + by_prior)[self.free]
        curvature = self._curvature(here, found)
        if self.free[0]:
            curvature[0, 0] = curvature_by_noise(gradient[0], self._task.total_rows)
        if self._loose:
            point = SearchPoint(-density, gradient, curvature)
            self._loose = not expected_gain(point, x, *self.bounds[self.free].T) < LARGE_GAIN
        changed, self._changed = self._changed, False
        smallest = np.zeros(len(x))
        if self.free[0]:
            share = NOISE_SHARE_OF_BLOCKS if has_blocks(self._task) else NOISE_SHARE
            smallest[0] = share * curvature[0, 0]
        return SearchPoint(-density, gradient, curvature, smallest, changed)

    def _looseness(self, task):
        """Tolerance of fixed points at first, in units of that at the end."""
        return LOOSENESS_OF_BLOCKS if has_blocks(task) else LOOSENESS

    def _fixed_points(self, task, here, looseness, tol=np.inf):
        """The fixed points with these hyper-parameters; None if the search is of no use there."""
        start = self.start(self._variables(here))
        return fixed_points(task, here, start, self._n_threads, looseness, tol)

    def _curvature_of_prior(self, here, found, n_groups):
        """Curvatures of minus the log-evidence by ln slab variance and log-odds."""
        curvature = np.zeros((1 + n_groups, 1 + n_groups))
        for part, result in zip(self._task.parts, found.results, strict=True):
            prior, own = here.prior(part.groups), part.groups
            curvature += evidence_curvature(prior, result, own, n_groups)
        return curvature

    def without_screened(self, x, point):
        """The search without features that the data speak against; None if that is of no use.

        Parameters
        ----------
        x : array
        point : SearchPoint
            Point of `best`, at x.
        """
        parts = active_parts(self._task, self.best, self.hyperparameters(x))
        return parts and _ActiveSearch(self, parts, x, point)

    def continued(self, x, search):
        """The point x of this search, from that where a search without some features ended.

        None, and nothing has changed, if the solver fails, or the log-density is lower than before.
        """
        before = self._task, self.best, self._best_density, self._loose, False
        self._task, self.best = search.extended(x)
        self._loose = False
        at_end = max(result.n_iter for result in search.best) <= FEW_ITERATIONS
        point = self.objective(x, at_end)
        if point.value < min(np.inf, EVIDENCE_TOL - before[2]):
            return point
        self._task, self.best, self._best_density, self._loose, self._changed = before
        self.ended = None
        return None

    def _curvature(self, here, found):
        """Curvatures of minus the log-density, those by the noise 1."""
        n_groups = len(here.log_odds) if self.free[-1] else 0
        free = self.free[: 2 + n_groups]
        curvature = np.eye(len(free))
        curvature[1, 1] = 0
        curvature[1:, 1:] += self._curvature_of_prior(here, found, n_groups)
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


class _ActiveSearch(_Search):
    """A search without some features, with small patterns of blocks.

    Parameters
    ----------
    whole : _Search
    parts : list of ActivePart
    x : array
        Where it starts.
    point : SearchPoint or None
        Point of the search with all features there, whose gradient this one then has, too.
    """

    def __init__(self, whole, parts, x, point):
        super().__init__(active_task(whole._task, parts), *whole._settings)
        self.bounds, self.whole, self._n_of_groups = whole.bounds, whole.whole, whole._n_of_groups
        self._whole, self._parts, self._always_shallow = whole, parts, True
        self._loose, self._start, self._point, self._tilt = point is None, x, point, None
        if whole.best is not None:
            pairs = zip(parts, whole.best, strict=True)
            self.best = tuple(part.restricted(result) for part, result in pairs)
        # Hyper-parameters and results of the first point.
        self._first = None

    @property
    def is_rough(self):
        """Whether nothing is known yet of the gradient with all features."""
        return self._point is None

    def objective(self, x):
        """See `_Search.objective`."""
        point = super().objective(x)
        if self.is_rough or not point.value < np.inf:
            return point
        if self._tilt is None:
            self._tilt = self._point.gradient - point.gradient
        value = point.value + self._tilt @ (x - self._start)
        return point._replace(value=value, gradient=point.gradient + self._tilt)

    def _looseness(self, task):
        return ROUGH_LOOSENESS

    def _fixed_points(self, task, here, looseness, tol=np.inf):
        found = super()._fixed_points(task, here, looseness)
        self._cavities = cavities_of(self._parts, here, found.results)
        while found.converged:
            triples = zip(self._parts, found.results, self._cavities, strict=True)
            entering = [part.with_entering(here, *own) for part, *own in triples]
            if _same(entering, self._parts):
                break
            if not (self.is_rough and all(entering)):
                return None  # the data speak for too many
            self._widen(here, found.results, entering)
            found = super()._fixed_points(with_small_patterns(self._task), here, looseness)
            self._cavities = cavities_of(self._parts, here, found.results)
        if self._first is None:
            self._first = here, found.results
        value, gradient = found.log_evidence, found.gradient.copy()
        for part, own in zip(self._parts, self._cavities, strict=True):
            more, by_hyperparameters = part.evidence(here, own, len(here.log_odds))
            value, gradient = value + more, gradient + by_hyperparameters
        return found._replace(log_evidence=value, gradient=gradient)

    def _curvature_of_prior(self, here, found, n_groups):
        curvature = super()._curvature_of_prior(here, found, n_groups)
        for part, own in zip(self._parts, self._cavities, strict=True):
            curvature += part.curvature(here, own, n_groups)
        return curvature

    def _widen(self, here, results, parts):
        """Go on with parts with more features, from these results."""
        self.best = tuple(map(ActivePart.restricted, parts, self._extended(here, results)))
        self._task, self._parts = active_task(self._task, parts), parts
        self._changed = True

    def take_in_neighbours(self, x):
        """Take in features that may share an effect with active ones, if few do.

        Where blocks have to be joined, or are not active alone, that costs little here.
        """
        parts = list(map(ActivePart.with_neighbours, self._parts, self.best))
        if all(parts) and not _same(parts, self._parts):
            before = self._task, self._parts, self.best
            self._widen(self.hyperparameters(x), self.best, parts)
            if not self.objective(x).value < np.inf:
                self._task, self._parts, self.best = before

    def extended(self, x):
        """The task with all features and its blocks now, and where its fixed points start.

        From fixed points at the start, if there are any, moved as those of this search have.
        """
        whole, starts = self._whole, self._extended(self.hyperparameters(x), self.best)
        if not self.is_rough:
            triples = zip(whole.best, starts, self._extended(*self._first), strict=True)
            starts = [moved(*triple) or triple[1] for triple in triples]
        return whole_task(whole._task, self._parts, self.best), tuple(starts)

    def _extended(self, here, results):
        """Where fixed points with all features start."""
        pairs = zip(self._parts, results, strict=True)
        return [part.extended(here, result) for part, result in pairs]


def _same(parts, others):
    """Whether these are the same objects."""
    return all(one is other for one, other in zip(parts, others, strict=True))


def which_are_free(fixed, n_groups):
    """Which of ln s2, ln slab and the log-odds of groups are learned, as a mask."""
    odds = [not fixed.log_odds] * n_groups
    return np.append([not fixed.noise_variance, not fixed.slab_variance], odds)


def maximise_evidence(
    task,
    start,
    fixed,
    *,
    priors=None,
    max_iter,
    n_threads=None,
    report=None,
    parts=None,
):
    """Hyper-parameters of largest evidence, by quasi-Newton steps in their logarithms and log-odds.

    Parameters
    ----------
    task : Regression, Loci or Classification
    start : Hyperparameters
    fixed : Hyperparameters of bool
        Which ones are not learned.
    priors : ParameterPriors, optional
        Their log-density is added to the evidence (MAP-II in place of ML-II).
    max_iter : int
        Fixed points, after the first one.
    n_threads : int, optional
    report : callable, optional
        report(k, value) is called with the number of a fixed point, and minus the log-density.
    parts : list of ActivePart, optional
        Parts of the task with which most steps are made; without them all have all features.

    Returns
    -------
    Hyperparameters
    tuple of ExpectationPropagation, or None
        The fixed points of the parts of the task of largest evidence, theirs; None if all are
        fixed.
    tuple of ExpectationPropagation, or None
        Where the fixed points of the hyper-parameters are to be sought; None if they are these, to
        the tolerance `END_TOL`.
    """
    search = _Search(task, start, fixed, priors, n_threads)
    free = search.free
    if not free.any():
        return start, None, None
    # For the products of the gradient, too: threads of BLAS would spin into the next fixed point.
    with one_blas_thread(max(order_of(part.model(start)) for part in task.parts)):
        longest = np.append(LONGEST_STEPS[:2], np.full(len(free) - 2, LONGEST_STEPS[2]))[free]
        steps = count()
        reported = report and (lambda _, value: report(next(steps), value))
        options = {
            "longest": longest,
            "tol": EVIDENCE_TOL,
            "max_iter": max_iter,
            "report": reported,
        }
        x = _maximum(search, parts, options)
    ended = search.ended is not None and np.array_equal(search.ended, x)
    return search.hyperparameters(x), search.best, None if ended else search.start(x)


def _maximum(search, parts, options):
    """The point of largest density, most steps towards which are made with these parts alone."""
    x, first, box = search.whole[search.free], None, search.bounds[search.free].T
    active = parts and _ActiveSearch(search, parts, x, None)
    for _ in range(MAX_ACTIVE_SEARCHES if options["max_iter"] else 0):
        found = active and _maximum_of_active(active, x, box, options)
        if found is None or (point := search.continued(*found)) is None:
            break
        x, first = found[0], point
        gain = expected_gain(point, x, *box)
        if gain < SMALL_GAIN:
            return x
        if gain < NEAR_GAIN:
            break
        active = search.without_screened(x, first)
    objective = partial(search.objective, at_end=first is not None and search.ended is not None)
    return minimise(_known_at_first(objective, first), x, *box, **options)


def _maximum_of_active(search, x, box, options):
    """The point where a search without some features ends, and that search; None if it fails."""
    first = search.objective(x)
    if not first.value < np.inf:
        return None
    objective = _known_at_first(search.objective, first)
    if not search.is_rough:
        return minimise(objective, x, *box, **options), search
    max_iter = min(options["max_iter"], MAX_ROUGH_POINTS)
    x = minimise(objective, x, *box, **options | {"tol": FIRST_TOL, "max_iter": max_iter})
    search.take_in_neighbours(x)
    return x, search


def _known_at_first(objective, first):
    """The objective, of which the first point that is asked for is known, unless it is None."""
    known = iter([] if first is None else [first])
    return lambda x: next(known, None) or objective(x)


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
