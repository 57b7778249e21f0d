"""Expectation propagation with sites of blocks: its problem, its states and its result.

The features of a block share one site exp(t'w - w'Tw / 2), one cavity, and tilted moments that are
sums over their inclusion patterns (`fastmf.kernels.ep.site_blocks`); each other unit has a site.
Energy and fixed points are as in `sites`, with vectors instead of numbers; naturals and moments
are vectors in the layout of `fastmf.inference.gaussian.blocks`.
"""

from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from fastmf._outcomes import CONVERGED, CYCLING, LOST
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.ep.parallel import BARREN_SWEEPS, NEAR, parallel_sweeps
from fastmf.inference.ep.partition import most_included
from fastmf.inference.ep.result import ExpectationPropagation, described
from fastmf.inference.ep.sites import (
    EPProblem,
    gaussian_log_partition,
    log_normalisers,
    second_moments,
    tilted_units,
    total,
)
from fastmf.inference.gaussian.bipartite import RepeatedRows
from fastmf.inference.gaussian.blocks import Blocks, BlockSide, block_side
from fastmf.kernels.ep.site_blocks import SiteBlocks, pattern_work, tilt_blocks
from fastmf.kernels.ep.sites import MAX_RELATIVE_PRECISION
from fastmf.priors import GaussBernoulli
from fastmf.priors._compiled import units_of
from fastmf.priors._protocol import as_dtype, n_units, parts_of, take
from fastmf.priors.concatenated import concatenate
from fastmf.special import sigmoid

# Largest precision of a first site, relative to the precision of the slab or latent variable.
MAX_FIRST_PRECISION = 1e6


class BlockProblem(NamedTuple):
    """A Gaussian side, priors of single units and of blocks, and stopping criteria."""

    side: BlockSide
    single: EPProblem | None  # the units that are in no block, without couplings
    patterns: SiteBlocks
    prior_precision: np.ndarray  # (n_units,), as in `EPProblem`, as are the next five
    min_site_precision: float
    tol: float
    max_iter: int
    n_threads: int | None

    @property
    def blocks(self):
        """The blocks, and the layout of vectors."""
        return self.side.blocks

    def state_of(self, site):
        """Compute the state with these sites; None if the Gaussian or a cavity is improper.

        A block without moments could not be updated again, most often for good.
        """
        # Gaussians use only the lower triangle of a matrix. The antisymmetric part of the sites,
        # which is rounding, stays in proposals, and extrapolation would amplify it.
        site = self.blocks.symmetric(site)
        moments = self.side.moments(site)
        if moments is None:
            return None
        gaussian, log_partition = moments
        try:
            cavity = self.blocks.natural(gaussian) - site
        except LinAlgError:
            return None
        tilted = tilt(self, cavity)
        if not tilted.exist[self.blocks.units].all():
            return None
        proposal = proposed(self, cavity, tilted, site)
        largest = _mismatch(self, gaussian, tilted.moments)
        return BlockState(self, site, gaussian, cavity, tilted, log_partition, proposal, largest)

    def difference(self, state):
        """Return tilted minus Gaussian moments, in standard deviations, as a vector."""
        blocks = self.blocks
        # NaN, where rounding makes a variance negative, prevents extrapolation.
        variance = blocks.diagonal(state.gaussian)
        deviation = np.sqrt(np.where(variance > 0, variance, np.nan))
        mean, var, elements = blocks.parts(state.tilted.moments - state.gaussian)
        scaled = blocks.scaled(elements, deviation)
        return np.concatenate([mean / deviation, var / deviation[blocks.singles] ** 2, scaled])

    def roots(self):
        """Return roots of the multiplicities of units, for each element of `difference`."""
        if self.single is None or self.single.weights is None:
            return 1.0
        roots, singles = np.ones(self.blocks.n_units), self.blocks.singles
        roots[singles] = np.sqrt(self.single.weights)
        return np.concatenate([roots, roots[singles], np.ones(self.blocks.squares[-1])])

    def energy(self, state):
        """Compute the energy of a state: see `fastmf.inference.ep.sites.EPProblem`."""
        try:
            mean = self.blocks.parts(state.gaussian)[0]
            marginals = self.blocks.log_partition(state.site + state.cavity, mean)
        except LinAlgError:
            return np.inf
        if self.single is not None and self.single.weights is not None:
            linear, precision, _ = self.blocks.parts(state.site + state.cavity)
            singles = np.stack([linear[self.blocks.singles], precision])
            marginals += gaussian_log_partition(singles, self.single.weights - 1)
        value = marginals - state.tilted.log_partition - state.log_partition
        return float(value) if np.isfinite(value) else np.inf


class Tilted(NamedTuple):
    """Single units and blocks under their cavities."""

    moments: np.ndarray  # vector of means, variances and covariances
    log_partition: float  # the sum of all; NaN or infinite where moments do not exist
    exist: np.ndarray  # bool, (n_units,)
    included: np.ndarray  # (n_block_units,), probability of not being zero
    alone: np.ndarray  # (n_block_units,), probability that only this unit of the block is not zero
    full: np.ndarray  # (n_blocks,), probability of the largest patterns


class BlockState(NamedTuple):
    """Sites, and all quantities computed from them; naturals and moments are vectors."""

    problem: BlockProblem
    site: np.ndarray
    gaussian: np.ndarray
    cavity: np.ndarray
    tilted: Tilted
    log_partition: float  # of the Gaussian
    proposal: np.ndarray  # the sites of the next iteration
    residual: float  # largest difference of a mean or (co)variance between Gaussian and units

    def agrees(self, tol):
        """Whether Gaussian and tilted units have the same moments."""
        return self.residual <= tol and self._effect() <= tol

    def _effect(self):
        """Return the largest effect of a difference of moments on the log-partition.

        It does not depend on the scale of units; for blocks: d'P d of means, P D of covariances.
        """
        blocks = self.problem.blocks
        mean, var, elements = blocks.parts(self.gaussian - self.tilted.moments)
        _, precision, cavity = blocks.parts(self.cavity)
        both = (blocks.diagonal(moments) for moments in (self.gaussian, self.tilted.moments))
        effects = [mean**2 / np.maximum(*both), (precision * var) ** 2]
        along = mean[blocks.units] * blocks.products(cavity, mean)
        effects.append(np.add.reduceat(along, blocks.starts[:-1]))
        effects.append(blocks.row_sums(cavity * elements) ** 2)
        return float(max(effect.max(initial=0) for effect in effects))


def _mismatch(problem, moments, tilted):
    """Return the largest difference of a mean or (co)variance; inf if one does not exist.

    Variances above 1: in standard deviations, and relative to the variances.
    """
    blocks, difference = problem.blocks, abs(moments - tilted)
    mean, _, elements = blocks.parts(difference)
    with np.errstate(invalid="ignore"):
        both = (blocks.diagonal(vector) for vector in (moments, tilted))
        scale = np.sqrt(np.maximum(1, np.maximum(*both)))
        largest = max((mean / scale).max(), (blocks.diagonal(difference) / scale**2).max())
        largest = max(largest, blocks.scaled(elements, scale).max())
    return float(largest) if largest < np.inf else np.inf


def block_problem(model, blocks, options):
    """Make the problem of a model with blocks."""
    first, *latent = parts_of(model.prior)
    if not isinstance(first, GaussBernoulli):
        raise TypeError(
            f"blocks needs a GaussBernoulli prior of the features, got {type(first).__name__}."
        )
    second = second_moments(model.prior)
    field, precision, log_odds = take(first, blocks.units)
    weight = log_odds + np.log(precision) / 2 - field**2 / (2 * precision)
    singles = blocks.singles[blocks.singles < n_units(first)]
    parts = [take(first, singles), *latent] if singles.size else latent
    single = None
    if parts:
        prior = concatenate([as_dtype(part, np.float64) for part in parts])
        units = units_of(prior, np.float64, ("moments", "log_partition"))
        scale = 1 / second[blocks.singles]
        weights = model.unit_weights()
        single = EPProblem(
            None, prior, units, *options, prior_precision=scale, evaluations=[0],
            weights=None if weights is None else weights[blocks.singles],
        )  # fmt: skip
    side = block_side(model, blocks, options[-1])
    if model.has_weights:
        side = RepeatedRows(side, model.row_weights, model.noise_variance, blocks)
    prior = np.stack([weight, field, precision]).astype(np.float64)
    largest = np.array([most_included(c) for c in np.diff(blocks.starts).tolist()], np.int64)
    patterns = SiteBlocks(blocks.starts, blocks.squares, largest, prior)
    return BlockProblem(side, single, patterns, 1 / second, *options)


def tilt(problem, cavity):
    """Compute the moments of single units and blocks under these cavities."""
    blocks, (linear, single, elements) = problem.blocks, problem.blocks.parts(cavity)
    n, n_blocks = len(blocks.units), len(blocks.members)
    units, covariance, totals = np.empty((3, n)), np.empty(len(elements)), np.empty((2, n_blocks))
    sizes, largest = np.diff(blocks.starts), problem.patterns.largest
    work = 20 * int((sizes ** np.minimum(largest, 3)).sum())  # in units of `workers_for`
    n_workers = workers_for(n_blocks, work, problem.n_threads)
    in_parallel(
        tilt_blocks,
        (problem.patterns, linear[blocks.units], elements,
         pattern_work(problem.patterns, n_workers), units, covariance, totals),
        n_workers,
    )  # fmt: skip
    moments, log_partition = np.empty((2, len(blocks.singles))), totals[0].sum()
    if problem.single is not None:
        singles = np.stack([linear[blocks.singles], single])
        moments, of_singles = tilted_units(problem.single, singles)
        log_partition += of_singles
    proper = np.isfinite(moments).all(0) & (moments[1] > 0)
    exist = blocks.spread(proper, np.repeat(np.isfinite(totals[0]), sizes)).astype(bool)
    mean, included, alone = units
    vector = np.concatenate([blocks.spread(moments[0], mean), moments[1], covariance])
    return Tilted(vector, log_partition, exist, included, alone, totals[1])


def proposed(problem, cavity, tilted, site):
    """Return sites that match the tilted moments; without moments, sites stay as they are."""
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
    """Bound the variances of tilted units from below, as `fastmf.kernels.ep.sites.new_site` does.

    Moments that do not exist are replaced by mean 0 and variance 1.
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
    """Raise site precisions, or eigenvalues, to the bound, and keep the means of the marginals."""
    blocks, lowest = problem.blocks, problem.min_site_precision
    _, single, elements = blocks.parts(site.copy())
    single = np.maximum(single, lowest)
    for T in blocks.matrices(elements):
        values, vectors = np.linalg.eigh(T)
        T[:] = vectors * np.maximum(values, lowest)[:, None] @ np.swapaxes(vectors, 1, 2)
    linear, precision, matrices = blocks.parts(cavity)
    products = blocks.products(elements + matrices, mean)
    linear = blocks.spread((single + precision) * mean[blocks.singles], products) - linear
    return np.concatenate([linear, single, elements])


def solve_with_blocks(model, members, init, damping, options, trace):
    """Run expectation propagation with these blocks, by the parallel schedule.

    Return the result, and the result at the last state if sites cycle near a fixed point: other
    blocks continue from there, as from the smallest residual they often diverge in the same way. A
    block of all units needs no iteration: its cavity is the likelihood, whatever its site.
    """
    blocks = Blocks(members, model.n_units)
    problem = block_problem(model, blocks, options)
    start = None if init is None else _sites_from(problem, init)
    bounded = problem.min_site_precision > -np.inf
    if not (len(blocks.singles) or bounded) and len(members) == 1:
        state = _state_of_one_block(model, problem)
        if state is not None:
            trace.add(state.residual, lambda: problem.energy(state))
            result = _result(model, problem, (state, CONVERGED), trace)
            return result, result
    state = None if start is None else problem.state_of(start)
    if state is None:
        state = problem.state_of(_first_sites(model, problem))
    if state is None:
        raise ValueError(
            "the model has no proper Gaussian side: make values of X and y smaller, or "
            "noise_variance larger if it is small beside them."
        )
    state, outcome, _ = parallel_sweeps(problem, state, damping, trace, BARREN_SWEEPS)
    result = _result(model, problem, (state, outcome), trace)
    if outcome != CYCLING or trace.residuals[-1] > NEAR:
        return result, result
    return result, _result(model, problem, (trace.last_state, outcome), trace)


def _state_of_one_block(model, problem):
    """Compute the fixed point of a block of all units; None if it is not proper."""
    X = np.asarray(model.X, np.float64)
    order = problem.blocks.units
    linear = X.T @ model.y / model.noise_variance
    precision = (X.T @ X / model.noise_variance)[np.ix_(order, order)]
    cavity = np.concatenate([linear, precision.ravel()])
    tilted = tilt(problem, cavity)
    if not tilted.exist.all():
        return None
    try:
        site = problem.blocks.natural(tilted.moments) - cavity
    except LinAlgError:
        return None
    moments = problem.side.moments(site)
    if moments is None:
        return None
    # Up to rounding, the Gaussian has the tilted moments.
    _, log_partition = moments
    return BlockState(problem, site, tilted.moments, cavity, tilted, log_partition, site, 0.0)


def _first_sites(model, problem):
    """Return sites that match the moments of the priors, with bounded precisions."""
    blocks, slab = problem.blocks, parts_of(model.prior)[0].precision
    largest = MAX_FIRST_PRECISION * np.append(slab, np.ones(blocks.n_units - len(slab)))
    mean = np.zeros(blocks.n_units)
    if problem.single is not None:
        zero = np.zeros(len(blocks.singles))
        mean[blocks.singles], var = problem.single.prior.moments(zero, zero)
        single = 1 / np.where(np.isfinite(var) & (var > 0), var, 1.0)
        mean[~np.isfinite(mean)] = 0.0
    else:
        single = np.empty(0)
    single = np.clip(single, problem.min_site_precision, largest[blocks.singles])
    of_blocks = np.minimum(problem.prior_precision, largest)[blocks.units]
    precision = blocks.spread(single, of_blocks)
    return _diagonal_sites(blocks, precision * mean, precision)


def _diagonal_sites(blocks, linear, precision):
    """Make the vector of sites with diagonal matrices."""
    elements = np.zeros(blocks.squares[-1])
    blocks.add_to_diagonals(precision[blocks.units], elements)
    return np.concatenate([linear, precision[blocks.singles], elements])


def _sites_from(problem, init):
    """Make the vector of sites of a result or array, with matrix elements inside both blocks."""
    blocks = problem.blocks
    sites = init.sites if isinstance(init, ExpectationPropagation) else np.asarray(init, float)
    if sites.shape != (2, blocks.n_units) or not np.isfinite(sites).all():
        raise ValueError(
            f"init must be finite and have shape {(2, blocks.n_units)}, got {sites.shape}."
        )
    vector = _diagonal_sites(blocks, *sites)
    if given := getattr(init, "block_sites", None):
        members, matrices = zip(*given, strict=True)
        given = Blocks(members, blocks.n_units)
        elements = np.concatenate([T.ravel() for T in matrices])
        matrix = given.sparse(elements, sites[1, given.singles])
        blocks.parts(vector)[2][:] = matrix[blocks.places()]
    return vector


def _result(model, problem, end, trace):
    """Make the result of the state at which a schedule ended."""
    state, outcome = end
    blocks = problem.blocks
    log_partition = -problem.energy(state)
    if outcome == CONVERGED and not np.isfinite(log_partition):
        outcome = LOST
    normaliser = total(log_normalisers(model.prior), model.unit_weights())
    moments = np.where(blocks.of_blocks(state.tilted.exist), state.tilted.moments, state.gaussian)
    vectors = moments, state.cavity, state.site
    units = [np.stack([blocks.parts(v)[0], blocks.diagonal(v)]) for v in vectors]
    matrices = blocks.each(blocks.parts(state.site)[2])
    prior = parts_of(model.prior)[0]
    cavity = units[1][:, : len(prior.field)]
    both = np.stack([sigmoid(prior.tilted_log_odds(*cavity))] * 2)
    both[:, blocks.units] = state.tilted.included, state.tilted.alone
    included, alone = both[:, : model.n_features]
    # Number of coefficients that the sites determine: the sum of t2 v and of the traces of T S.
    (_, t2, T), (_, v, S) = map(blocks.parts, (state.site, state.gaussian))
    return described(
        state,
        outcome,
        trace,
        units,
        (log_partition, normaliser),
        schedule="parallel",
        block_sites=tuple(zip(blocks.members, matrices, strict=True)),
        inclusion_probability=included,
        sole_probability=alone,
        full_probability=state.tilted.full,
        most_included=problem.patterns.largest,
        gaussian_mean=blocks.parts(state.gaussian)[0],
        prior_share=float(t2 @ v + T @ S),
    )
