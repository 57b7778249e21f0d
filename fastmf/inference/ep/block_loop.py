"""The convergent double loop with blocks: an energy that never increases.

The inner problem of `double_loop`, with vectors in the place of numbers:

    f(t) = -ln Z(t) - sum ln Zhat(V - t)

over sites t of blocks and single units is concave, because the log-partition of a block is a sum
of exponentials of its naturals, whatever patterns are summed, as long as they are the same. Setting
V to the naturals of the moments at its maximum cannot raise

    E(V) = max over t of f(t) + sum ln Ztilde(V)

Steps are those of L-BFGS, preconditioned by the exact curvature of each block alone: the
covariances of (w_i, -w_i w_j) under the Gaussian and under the tilted block.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from fastmf._common.linalg import scaled_cholesky
from fastmf.inference.ep.block_sites import Tilted, floored, mismatch, tilt
from fastmf.inference.ep.curvature import unit_curvature
from fastmf.inference.ep.inner_loop import LBFGS, line_search
from fastmf.inference.ep.parallel import MAX_HALVINGS
from fastmf.kernels.ep.site_blocks import SiteBlocks, curvature_address, pattern_work, tilt_blocks

# Steps of L-BFGS after which the preconditioner is computed anew.
PRECONDITIONER_STEPS = 8
MAX_OUTER_STEPS = 100
# Evaluations of the inner objective that stand for an iteration of `max_iter`.
EVALUATIONS_PER_ITERATION = 2
# Outer steps that are kept for the extrapolation.
BLOCK_MEMORY = 5


class BlockInnerPoint(NamedTuple):
    """The inner objective with some sites, and all that its derivatives need.

    Parameters
    ----------
    site, cavity, gaussian : array
        Vectors of naturals, and of moments.
    tilted : Tilted
    value : float
    """

    site: np.ndarray
    cavity: np.ndarray
    gaussian: np.ndarray
    tilted: Tilted
    value: float


def evaluate(problem, marginal, site):
    """The inner objective with these sites; None outside its domain."""
    problem.evaluations[0] += 1
    found = problem.side.moments(site)
    if found is None:
        return None
    cavity = marginal - site
    tilted = tilt(problem, cavity)
    value = -found.log_partition - tilted.log_partition
    if not (np.isfinite(value) and tilted.exist.all()):
        return None
    return BlockInnerPoint(site, cavity, found.vector, tilted, value)


def gradient_of(problem, point):
    """By linear terms and precisions: differences of means, and minus half of second moments."""
    blocks = problem.blocks
    (m, v, S), (mean, var, K) = map(blocks.parts, (point.gaussian, point.tilted.moments))
    change, both = mean - m, mean + m
    single = -(change * both)[blocks.singles] - (var - v)
    elements = S - K
    for D, units in zip(blocks.matrices(elements), blocks.by_size, strict=True):
        D -= (
            mean[units][:, :, None] * mean[units][:, None]
            - m[units][:, :, None] * m[units][:, None]
        )
    return np.concatenate([change, single / 2, elements / 2])


class Curvature:
    """Inverse curvature of the inner objective, of each block and single unit alone.

    Parameters
    ----------
    problem : BlockProblem
    point : BlockInnerPoint

    Raises
    ------
    numpy.linalg.LinAlgError
        If a covariance is not positive definite.
    """

    def __init__(self, problem, point):
        blocks = self.blocks = problem.blocks
        self.mean, var, elements = blocks.parts(point.gaussian)
        if problem.single is not None:
            first, mixed, second = _curvature_of_singles(problem, point)
            self.single = first + var, mixed, second + var**2 / 2
        self.of_blocks, k = [], 0
        linear, _, precision = blocks.parts(point.cavity)
        for units, S, P in zip(
            blocks.by_size, blocks.matrices(elements), blocks.matrices(precision), strict=True
        ):
            for own, covariance, cavity in zip(units, S, P, strict=True):
                total = gaussian_curvature(self.mean[own], covariance)
                tilted = _tilted_curvature(problem.patterns, k, linear[own], cavity)
                # The kernel's statistics are w_i w_j, with the other sign.
                c = len(own)
                tilted[c:, :c] *= -1
                total += np.tril(tilted, -1).T + tilted
                self.of_blocks.append(scaled_cholesky(total))
                k += 1

    def __call__(self, vector):
        """Product with a vector."""
        blocks, (linear, single, elements) = self.blocks, self.blocks.parts(vector)
        mean, own = self.mean, self.blocks.singles
        step = np.empty_like(vector)
        new_linear, new_single, new_elements = blocks.parts(step)
        if own.size:
            first, mixed, second = self.single
            one, two = linear[own], single + mean[own] * linear[own]
            determinant = first * second - mixed**2
            new_single[:] = (first * two - mixed * one) / determinant
            new_linear[own] = (second * one - mixed * two) / determinant + mean[own] * new_single
        parts = zip(
            blocks.by_size, blocks.matrices(elements), blocks.matrices(new_elements), strict=True
        )
        factors = iter(self.of_blocks)
        for units, matrices, new in parts:
            c = units.shape[1]
            rows, columns = np.tril_indices(c)
            diagonal = np.where(rows == columns, 2.0, 1.0)
            for own, G, X in zip(units, matrices, new, strict=True):
                # The statistics are w_i and -w_i w_j, i >= j.
                right = np.concatenate([linear[own], 2 * G[rows, columns]])
                change = next(factors).solve(right)
                new_linear[own] = change[:c]
                X[rows, columns] = X[columns, rows] = change[c:] * diagonal
        return step


def _tilted_curvature(patterns, k, linear, precision):
    """Covariances of (w_i, w_i w_j) of block k under its cavity, i >= j: their lower triangle."""
    c, here = len(linear), slice(*patterns.starts[k : k + 2])
    ends, largest = np.array([0, c]), patterns.largest[k : k + 1]
    block = SiteBlocks(ends, ends * c, largest, patterns.prior[:, here])
    n = c * (c + 3) // 2
    units, covariance, totals = np.empty((3, c)), np.empty(c * c), np.empty((2, 1))
    work, joint = pattern_work(block, 1, n * n), np.empty(n * n)
    tilt_blocks(
        block, linear, precision.ravel(), work, units, covariance, totals,
        (curvature_address(), joint),
    )  # fmt: skip
    mean = units[0]
    second = covariance.reshape(c, c) + np.outer(mean, mean)
    mean = np.concatenate([mean, second[np.tril_indices(c)]])
    return np.tril(joint.reshape(n, n) - np.outer(mean, mean))


def gaussian_curvature(mean, covariance):
    """Covariances of (w_i, -w_i w_j), i >= j, of a Gaussian."""
    c = len(mean)
    rows, columns = np.tril_indices(c)
    second = covariance + np.outer(mean, mean)
    products = mean[rows] * mean[columns]
    total = np.empty((c + len(rows),) * 2)
    total[:c, :c] = covariance
    mixed = covariance[rows] * mean[columns, None] + covariance[columns] * mean[rows, None]
    total[c:, :c], total[:c, c:] = -mixed, -mixed.T
    total[c:, c:] = second[rows][:, rows] * second[columns][:, columns]
    total[c:, c:] += second[rows][:, columns] * second[columns][:, rows]
    total[c:, c:] -= 2 * np.outer(products, products)
    return total


def _curvature_of_singles(problem, point):
    """Covariance of (e, -e^2 / 2) under each single unit, where e = w - Gaussian mean."""
    blocks = problem.blocks
    vectors = point.cavity, point.gaussian, point.tilted.moments
    cavity, gaussian, tilted = (
        np.stack([linear[blocks.singles], single])
        for linear, single, _ in map(blocks.parts, vectors)
    )
    return unit_curvature(problem.single, _UnitPoint(cavity, gaussian, tilted))


class _UnitPoint(NamedTuple):
    """Cavities, and moments of Gaussian and tilted units, of single units."""

    cavity: np.ndarray
    gaussian: np.ndarray
    tilted: np.ndarray


def maximise(problem, marginal, site, tol, decrement):
    """The sites that maximise the inner objective, from sites inside its domain; None outside.

    Ends when the predicted rise is below `decrement`, and Gaussian and tilted units agree to `tol`.
    """
    at = partial(evaluate, problem, marginal)
    point = at(site)
    if point is None:
        return None

    def apart(point):
        return mismatch(problem, point.gaussian, point.tilted.moments)

    direction = LBFGS(partial(Curvature, problem), PRECONDITIONER_STEPS)
    for _ in range(MAX_OUTER_STEPS):
        gradient = gradient_of(problem, point)
        try:
            step = direction(point, gradient)
            if not step @ gradient > 0:
                direction.reset()
                step = direction(point, gradient)
        except LinAlgError:
            break
        derivative = step @ gradient
        if (derivative <= decrement and apart(point) <= tol) or exhausted(problem):
            break
        new = line_search(at, apart, point, step, derivative, MAX_HALVINGS)
        if new is None:
            break
        point = new
    return point


def exhausted(problem):
    """Whether all evaluations that `max_iter` allows are made."""
    return problem.evaluations[0] > EVALUATIONS_PER_ITERATION * problem.max_iter


class BlockOuterPoint(NamedTuple):
    """Naturals of the marginals, and the inner solution for them.

    Parameters
    ----------
    marginal : array
    inner : BlockInnerPoint
    energy : float
    """

    marginal: np.ndarray
    inner: BlockInnerPoint
    energy: float


def block_double_loop(problem, state, trace):
    """Minimise the energy over the marginals: the last state, and whether it converged."""
    blocks = problem.blocks
    mean = abs(blocks.parts(state.gaussian)[0])
    size = abs(state.log_partition) + abs(blocks.parts(state.site + state.cavity)[0]) @ mean
    rounding = 1e-15 * (size + blocks.n_units)
    marginal, point = state.site + state.cavity, None
    for factor in (1.0, 0.5, 0.25, 0.1, 0.0):
        shift = factor * (state.proposal - state.site)
        point = _outer_point(problem, marginal + shift, [state.site + shift], (1e-3, 1e-9))
        if point is not None:
            break
    if point is None:
        return state, False
    anderson, precision = NaturalsExtrapolation(), (1e-3, 1e-9)
    for _ in range(problem.max_iter):
        end = problem.state_of(point.inner.site)
        residual = np.inf if end is None else end.residual()
        trace.add(residual, lambda e=point.energy: float(e))
        if end is not None and end.agrees(problem.tol):
            return end, True
        if exhausted(problem):
            break
        precision = min(1e-3, 0.1 * residual), max(min(1e-9, 1e-4 * residual**2), rounding)
        new = _descend(problem, point, anderson, precision, rounding)
        if new is None:
            break
        point = new
    return problem.state_of(point.inner.site) or state, False


def _descend(problem, point, anderson, precision, rounding):
    """The next point, of no higher energy; None if there is none."""
    try:
        target = problem.blocks.natural(floored(problem, point.inner.tilted, point.inner.cavity))
    except LinAlgError:
        return None
    extrapolated = anderson(point.marginal, target)
    for goal in (extrapolated, target):
        if goal is None:
            continue
        sites = point.inner.site, goal - point.inner.cavity
        new = _outer_point(problem, goal, sites, precision)
        if new is not None and new.energy <= point.energy + rounding:
            return new
        anderson.reset()
    return None


def _outer_point(problem, marginal, sites, precision):
    """The point of these marginals, the inner problem started from the first proper sites."""
    try:
        own = problem.blocks.log_partition(marginal)
    except LinAlgError:
        return None
    for site in sites:
        inner = maximise(problem, marginal, site, *precision)
        if inner is not None:
            return BlockOuterPoint(marginal, inner, inner.value + own)
    return None


class NaturalsExtrapolation:
    """Extrapolation of a fixed-point iteration on naturals."""

    def __init__(self):
        self.inputs, self.outputs = [], []

    def __call__(self, old, new):
        """Extrapolated naturals, from naturals and those that one step gives; None at first."""
        self.inputs = [*self.inputs[-BLOCK_MEMORY:], old]
        self.outputs = [*self.outputs[-BLOCK_MEMORY:], new]
        if len(self.inputs) < 2:
            return None
        scale = 1 / (abs(new) + 1e-3 * abs(new).max())
        steps = (np.stack(self.outputs) - np.stack(self.inputs)) * scale
        differences = steps[1:] - steps[:-1]
        gram = differences @ differences.T
        gram.flat[:: len(gram) + 1] += 1e-12 * gram.trace() + 1e-300
        coefficients = np.linalg.solve(gram, differences @ steps[-1])
        outputs = np.stack(self.outputs)
        return new - coefficients @ (outputs[1:] - outputs[:-1])

    def reset(self):
        """Forget all steps."""
        self.inputs, self.outputs = [], []
