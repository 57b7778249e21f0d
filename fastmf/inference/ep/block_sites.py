"""Expectation propagation with sites of blocks: its problem and its states.

The features of a block have one site exp(t'w - w'Tw / 2), one cavity, and tilted moments that are
sums over the patterns of their inclusion (`fastmf.kernels.ep.site_blocks`); all other units have
sites of their own. Energy and fixed points are those of `sites` with vectors in the place of
numbers; naturals and moments are vectors as `fastmf.inference.gaussian.blocks` lays them out.
"""

from functools import lru_cache
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.ep.sites import (
    EPProblem,
    gaussian_log_partition,
    of_distinct,
    second_moments,
    tilted_units,
)
from fastmf.inference.gaussian.blocks import BlockSide, block_side
from fastmf.inference.gaussian.repeated import RepeatedRows
from fastmf.kernels.ep.site_blocks import SiteBlocks, pattern_work, tilt_blocks
from fastmf.kernels.ep.sites import MAX_RELATIVE_PRECISION
from fastmf.priors import GaussBernoulli
from fastmf.priors._compiled import units_of
from fastmf.priors._protocol import as_dtype, n_units, parts_of, take
from fastmf.priors.concatenated import concatenate

# Patterns of a block include so many features that the sum of their squared sizes stays below this
# (all patterns of 11, up to four features of 20), but so many in any case.
MAX_COST, FEWEST_INCLUDED = 100_000, 3
# Patterns of a block that has more than this many include two features at first. More, where those
# that include two have a larger share than this: that of those which include more is its square.
MAX_PATTERNS, MAX_SHARE = 32, 0.01
# Time that a pattern of a feature takes, in units of `workers_for`.
PATTERN_WORK = 20


class Uncoupled(NamedTuple):
    """The Gaussian side of units whose Gaussian is of no interest.

    Parameters
    ----------
    n_units : int
    """

    n_units: int


class BlockProblem(NamedTuple):
    """A Gaussian side with priors of single units and of blocks, and when to stop.

    Parameters
    ----------
    side : BlockSide
    single : EPProblem or None
        The units that are in no block, without couplings; None if there are none.
    patterns : SiteBlocks
    prior_precision : array of shape (n_units,)
        Inverse second moments of the units under their priors.
    min_site_precision, tol, max_iter, n_threads, evaluations
        See `EPProblem`.
    """

    side: BlockSide
    single: EPProblem | None
    patterns: SiteBlocks
    prior_precision: np.ndarray
    min_site_precision: float
    tol: float
    max_iter: int
    n_threads: int | None
    evaluations: list

    @property
    def blocks(self):
        """The blocks, and the layout of vectors."""
        return self.side.blocks

    def deepened(self, tilted):
        """The problem with larger patterns of blocks that need them; None if no block does."""
        largest = self.patterns.largest
        most = np.array([most_included(len(units)) for units in self.blocks.members])
        full = (tilted.full > MAX_SHARE) & (largest < most)
        if not full.any():
            return None
        return self._replace(patterns=self.patterns._replace(largest=np.where(full, most, largest)))

    def state_of(self, site):
        """The state with these sites; None if they leave no proper Gaussian."""
        return block_state(self, site)

    def retilted(self, state):
        """A state under these patterns, with the same Gaussian; None if a block has no moments."""
        return _with_gaussian(self, *state[1:4], state.log_partition)

    def difference(self, state):
        """Tilted less Gaussian moments, in standard deviations of the Gaussian, as a vector."""
        blocks = self.blocks
        # Where rounding leaves a variance that is none, there is no extrapolation.
        variance = blocks.diagonal(state.gaussian)
        deviation = np.sqrt(np.where(variance > 0, variance, np.nan))
        mean, var, elements = blocks.parts(state.tilted.moments - state.gaussian)
        scaled = blocks.scaled(elements, deviation)
        return np.concatenate([mean / deviation, var / deviation[blocks.singles] ** 2, scaled])

    def roots(self):
        """Roots of the numbers of units that each element of `difference` stands for."""
        if self.single is None or self.single.weights is None:
            return 1.0
        roots, singles = np.ones(self.blocks.n_units), self.blocks.singles
        roots[singles] = np.sqrt(self.single.weights)
        return np.concatenate([roots, roots[singles], np.ones(self.blocks.squares[-1])])

    def energy(self, state):
        """The energy of a state: see `fastmf.inference.ep.sites.energy`."""
        try:
            mean = self.blocks.parts(state.gaussian)[0]
            marginals = self.blocks.log_partition(state.site + state.cavity, mean)
        except LinAlgError:
            return np.inf
        if self.single is not None and self.single.weights is not None:
            linear, precision, _ = self.blocks.parts(state.site + state.cavity)
            own = np.stack([linear[self.blocks.singles], precision])
            marginals += gaussian_log_partition(own, self.single.weights - 1)
        value = marginals - state.tilted.log_partition - state.log_partition
        return float(value) if np.isfinite(value) else np.inf


class Tilted(NamedTuple):
    """Single units and blocks under their cavities.

    Parameters
    ----------
    moments : array
        Vector of means, variances and covariances.
    log_partition : float
        The sum of all; NaN or infinite where moments do not exist.
    exist : bool array of shape (n_units,)
    included, alone : array of shape (n_block_units,)
        Probabilities of not being zero, and of being the only one of the block that is not.
    full : array of shape (n_blocks,)
        Probabilities of patterns that include as many features as they may.
    """

    moments: np.ndarray
    log_partition: float
    exist: np.ndarray
    included: np.ndarray
    alone: np.ndarray
    full: np.ndarray


class BlockState(NamedTuple):
    """Sites, and all that follows from them; naturals and moments are vectors.

    Parameters
    ----------
    problem : BlockProblem
    site, gaussian, cavity : array
    tilted : Tilted
    log_partition : float
        Log-partition of the Gaussian.
    proposal : array
        The sites of the next iteration.
    largest_difference : float
        See `residual`.
    """

    problem: BlockProblem
    site: np.ndarray
    gaussian: np.ndarray
    cavity: np.ndarray
    tilted: Tilted
    log_partition: float
    proposal: np.ndarray
    largest_difference: float

    def residual(self):
        """Largest difference of a mean or (co)variance between Gaussian and tilted units."""
        return self.largest_difference

    def agrees(self, tol):
        """Whether Gaussian and tilted units have the same moments."""
        return self.residual() <= tol and self._effect() <= tol

    def _effect(self):
        """Largest effect of a difference on the log-partition, whatever the scale of the units.

        A block has one scale for each direction: d'P d of means and P D of covariances.
        """
        blocks = self.problem.blocks
        mean, var, elements = blocks.parts(self.gaussian - self.tilted.moments)
        _, own, cavity = blocks.parts(self.cavity)
        both = (blocks.diagonal(moments) for moments in (self.gaussian, self.tilted.moments))
        effects = [mean**2 / np.maximum(*both), (own * var) ** 2]
        matrices = blocks.matrices(elements), blocks.matrices(cavity)
        for units, D, P in zip(blocks.by_size, *matrices, strict=True):
            effects.append(np.einsum("ki,kij,kj->k", mean[units], P, mean[units]))
            effects.append(np.einsum("kij,kji->ki", P, D).ravel() ** 2)
        return float(max(effect.max(initial=0) for effect in effects))


def mismatch(problem, moments, others):
    """Largest difference of a mean or (co)variance; inf if one does not exist.

    Where variances exceed 1, in standard deviations, and relative to the variances.
    """
    blocks, difference = problem.blocks, abs(moments - others)
    mean, _, elements = blocks.parts(difference)
    with np.errstate(invalid="ignore"):
        both = (blocks.diagonal(vector) for vector in (moments, others))
        scale = np.sqrt(np.maximum(1, np.maximum(*both)))
        largest = max((mean / scale).max(), (blocks.diagonal(difference) / scale**2).max())
        largest = max(largest, blocks.scaled(elements, scale).max())
    return float(largest) if largest < np.inf else np.inf


def block_problem(model, blocks, options, n_included=None):
    """The problem of a model with blocks."""
    first, *others = parts_of(model.prior)
    if not isinstance(first, GaussBernoulli):
        raise TypeError(
            f"blocks needs a GaussBernoulli prior of the features, got {type(first).__name__}."
        )
    second = of_distinct(second_moments, model.prior)
    field, precision, log_odds = take(first, blocks.units)
    weight = log_odds + np.log(precision) / 2 - field**2 / (2 * precision)
    sizes = np.diff(blocks.starts)
    if n_included is None:
        n_included = first_included(sizes)
    singles = blocks.singles[blocks.singles < n_units(first)]
    parts = [take(first, singles), *others] if singles.size else others
    single = None
    if parts:
        prior = concatenate([as_dtype(part, np.float64) for part in parts])
        units = units_of(prior, np.float64, ("moments", "log_partition"))
        scale = 1 / second[blocks.singles]
        weights = model.unit_weights()
        single = EPProblem(
            Uncoupled(len(scale)), prior, units, *options, prior_precision=scale, evaluations=[0],
            weights=None if weights is None else weights[blocks.singles],
        )  # fmt: skip
    side = block_side(model, blocks, options[-1])
    if model.has_weights:
        side = RepeatedRows(side, model.row_weights, model.noise_variance, blocks)
    prior = np.stack([weight, field, precision]).astype(np.float64)
    n_included = np.asarray(n_included, np.int64)
    patterns = SiteBlocks(blocks.starts, blocks.squares, n_included, prior)
    return BlockProblem(side, single, patterns, 1 / second, *options, evaluations=[0])


def first_included(sizes):
    """Features that patterns of blocks of these sizes include at first."""
    return np.where(2.0**sizes > MAX_PATTERNS, 2, sizes)


@lru_cache
def most_included(c):
    """Features that patterns of a block of c features may include."""
    cost, s = c, 1
    while s < c and (s < FEWEST_INCLUDED or cost + _cost(c, s + 1) <= MAX_COST):
        s += 1
        cost += _cost(c, s)
    return s


def _cost(c, s):
    """Cost of the patterns of s out of c features."""
    return comb(c, s) * s * s


def tilt(problem, cavity):
    """Single units and blocks under these cavities."""
    blocks, (linear, single, elements) = problem.blocks, problem.blocks.parts(cavity)
    n, n_blocks = len(blocks.units), len(blocks.members)
    units, covariance, totals = np.empty((3, n)), np.empty(len(elements)), np.empty((2, n_blocks))
    sizes, largest = np.diff(blocks.starts), problem.patterns.largest
    work = PATTERN_WORK * int((sizes ** np.minimum(largest, 3)).sum())
    n_workers = workers_for(n_blocks, work, problem.n_threads)
    in_parallel(
        tilt_blocks,
        (problem.patterns, linear[blocks.units], elements,
         pattern_work(problem.patterns, n_workers), units, covariance, totals),
        n_workers,
    )  # fmt: skip
    moments, log_partition = np.empty((2, len(blocks.singles))), totals[0].sum()
    if problem.single is not None:
        own = np.stack([linear[blocks.singles], single])
        moments, of_singles = tilted_units(problem.single, own)
        log_partition += of_singles
    known = np.isfinite(moments).all(0) & (moments[1] > 0)
    exist = blocks.spread(known, np.repeat(np.isfinite(totals[0]), sizes)).astype(bool)
    mean, included, alone = units
    vector = np.concatenate([blocks.spread(moments[0], mean), moments[1], covariance])
    return Tilted(vector, log_partition, exist, included, alone, totals[1])


def block_state(problem, site):
    """The state with these sites; None if the Gaussian, or a block under its cavity, is improper.

    A step after which a block had no moments would leave its site behind, most often for good.
    """
    blocks = problem.blocks
    # What Gaussians see of a matrix is its lower triangle. Proposals keep the antisymmetric part of
    # the sites, which is rounding, and extrapolation would let it grow without end.
    site = blocks.symmetric(site)
    found = problem.side.moments(site)
    if found is None:
        return None
    gaussian, log_partition = found
    try:
        natural = blocks.natural(gaussian)
    except LinAlgError:
        return None
    return _with_gaussian(problem, site, gaussian, natural - site, log_partition)


def _with_gaussian(problem, site, gaussian, cavity, log_partition):
    """The state with these sites, of which the Gaussian is known."""
    tilted = tilt(problem, cavity)
    if not tilted.exist[problem.blocks.units].all():
        return None
    proposal = proposed(problem, cavity, tilted, site)
    largest = mismatch(problem, gaussian, tilted.moments)
    return BlockState(problem, site, gaussian, cavity, tilted, log_partition, proposal, largest)


def proposed(problem, cavity, tilted, site):
    """Sites that give units and blocks their tilted moments; where there are none, the old ones."""
    blocks = problem.blocks
    target = floored(problem, tilted, cavity)
    try:
        new = blocks.natural(target) - cavity
    except LinAlgError:
        return site
    if problem.min_site_precision > -np.inf:
        new = bounded(problem, new, cavity, blocks.parts(target)[0])
    return np.where(blocks.of_blocks(tilted.exist), new, site)


def floored(problem, tilted, cavity):
    """Moments of tilted units, variances bounded from below.

    The bound is that of `fastmf.kernels.ep.sites.new_site`. Where moments do not exist, they are
    mean 0 and variance 1.
    """
    blocks, exist = problem.blocks, tilted.exist
    moments = np.where(blocks.of_blocks(exist), tilted.moments, 0.0)
    _, var, elements = blocks.parts(moments)
    scale = np.maximum(abs(blocks.diagonal(cavity)), problem.prior_precision)
    floor = np.where(exist, 1 / (MAX_RELATIVE_PRECISION * scale), 1.0)
    var[:] = np.maximum(var, floor[blocks.singles])
    blocks.add_to_diagonals(floor[blocks.units], elements)
    return moments


def bounded(problem, site, cavity, mean):
    """Sites of precisions, or eigenvalues, not below the bound, with which these are the means."""
    blocks, lowest = problem.blocks, problem.min_site_precision
    _, single, elements = blocks.parts(site.copy())
    single = np.maximum(single, lowest)
    for T in blocks.matrices(elements):
        values, vectors = np.linalg.eigh(T)
        T[:] = vectors * np.maximum(values, lowest)[:, None] @ np.swapaxes(vectors, 1, 2)
    linear, own, whole = blocks.parts(cavity)
    products = blocks.products(elements + whole, mean)
    linear = blocks.spread((single + own) * mean[blocks.singles], products) - linear
    return np.concatenate([linear, single, elements])
