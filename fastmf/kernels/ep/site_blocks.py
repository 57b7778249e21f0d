"""Tilted moments of blocks of correlated spike-and-slab units.

The units of a block have one cavity exp(g'w - w'Pw / 2). Sums over their priors are sums over
inclusion patterns, the sets S of units that are not zero, with

    Q = P_SS + precisions,  h = g_S + fields
    log-weight of S  =  sum of prior log-weights - ln det(Q) / 2 + h'Q^-1 h / 2

Patterns S are visited depth first. The unit k that was added last is integrated out of the linear
terms h and precisions Q of the later units l,

    v = 1 / Q_kk,  m = v h_k,  u_l = v Q_kl:    h_l - u_l h_k  and  Q_ll' - u_l Q_kl'

On the way back, its moments follow from the sums of weights, w_l and w_l w_l' over all patterns
that begin with S, since w_k has mean m - u'w and variance v given the later units. So a pattern
costs a few operations, whatever its size. Only pivots are inverted: P need not be positive
definite.

There is one kernel for all steps. Matrices are one-dimensional arrays, row by row, of which only
the upper triangles are used.
"""

import math
from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int64
from fastmf._jit.intrinsics import fetch_and_increment, larger, row
from fastmf._jit.kernel import kernel
from fastmf._threads.workers import next_task
from fastmf.kernels.linear.product import new_work

# Sums are rescaled if a log-weight exceeds their scale by more than this, and patterns whose
# log-weights are smaller by more are left out: half of the range of doubles, so that a weight times
# an equally large number is finite.
MAX_LOG_WEIGHT = math.log(np.finfo(np.float64).max) / 2
# Smallest pivot, relative to the diagonal of Q, of a pattern that is proper.
MIN_PATTERN_PIVOT = 1e-14


class SiteBlocks(NamedTuple):
    """Positions of blocks in concatenated arrays of their units, and of their matrices.

    `prior` has the log-weight of a unit that is not zero (log-odds, and the log-normaliser of the
    slab without 2 pi), and the field and precision of its slab.
    """

    starts: np.ndarray  # int64, (n_blocks + 1,), first unit of every block, and the end
    squares: np.ndarray  # int64, (n_blocks + 1,), first element of its matrix, and the end
    largest: np.ndarray  # int64, (n_blocks,), units that a pattern may include
    prior: np.ndarray  # (3, n_units)


class Levels(NamedTuple):
    """Values for the first s units of the current pattern, s < d, and the c units of the block.

    The last level has no matrices, because only single units are added to it.
    """

    unit: Int64[1]  # (d,), the last of the units
    numbers: Float64[1]  # (4 * d,), see `LOG_WEIGHT`
    linear: Float64[1]  # (d * c,), h
    precision: Float64[1]  # (d * c,), diagonal of Q
    slope: Float64[1]  # (d * c,), u of the last unit
    first: Float64[1]  # (d * c,), sums of w_l over the patterns that begin with these units
    second: Float64[1]  # (d * c,), and of w_l squared
    couplings: Float64[1]  # (max(1, d - 1) * c * c,), Q
    products: Float64[1]  # (max(1, d - 1) * c * c,), sums of w_l w_l'
    sums: Float64[1]  # (3 * c,), see `MEAN`; the means are scratch


class LevelMemory(NamedTuple):
    """Scratch memory of workers."""

    units: np.ndarray  # int64, (n_workers, d)
    numbers: np.ndarray  # (n_workers, d * (5 * c + 4) + 2 * max(1, d - 1) * c * c + 3 * c)
    sizes: np.ndarray  # int64, (2,), d and c


# Rows of `units`; numbers of a level.
MEAN, INCLUDED, INCLUDED_ALONE = range(3)
LOG_WEIGHT, WEIGHT, UNIT_MEAN, UNIT_VAR = range(4)


def pattern_work(blocks, n_workers):
    """Allocate memory and queue of `tilt_blocks`."""
    d, c = max(1, blocks.largest.max()), np.diff(blocks.starts).max()
    n = d * (5 * c + 4) + 2 * max(1, d - 1) * c * c + 3 * c
    units, numbers = np.zeros((n_workers, d), np.int64), np.zeros((n_workers, n))
    return new_work(LevelMemory(units, numbers, np.array([d, c], np.int64)))


@kernel
def tilt_blocks(blocks, linear, precision, work, units, covariance, totals):
    """Compute moments and log-partition of each block under the tilt of its cavity."""
    n_blocks = len(blocks.largest)
    w = fetch_and_increment(work.queue[1:])
    if w >= len(work.scratch.units):
        return
    levels = _levels_of(work.scratch, w)
    while True:
        k = next_task(work.queue)
        if k >= n_blocks:
            break
        first, square, largest = blocks.starts[k], blocks.squares[k], blocks.largest[k]
        c = blocks.starts[k + 1] - first
        given = blocks.prior, linear, precision, first, square
        log_total, full = _sum_patterns(given, c, largest, levels)
        totals[0, k], totals[1, k] = log_total, 0.0 if c == largest else full
        ratio = 1 / levels.numbers[WEIGHT] if log_total < np.inf else np.nan
        _conclude(levels, ratio, (first, square, c), units, covariance)


@kernel(mode="merged")
def _levels_of(memory, w):
    """Return the levels of a worker."""
    d, c = memory.sizes[0], memory.sizes[1]
    vector, matrix, start = d * c, max(1, d - 1) * c * c, 4 * d
    end = start + 5 * vector
    return Levels(
        memory.units[w],
        row(memory.numbers, (w, 0), start),
        row(memory.numbers, (w, start), vector),
        row(memory.numbers, (w, start + vector), vector),
        row(memory.numbers, (w, start + 2 * vector), vector),
        row(memory.numbers, (w, start + 3 * vector), vector),
        row(memory.numbers, (w, start + 4 * vector), vector),
        row(memory.numbers, (w, end), matrix),
        row(memory.numbers, (w, end + matrix), matrix),
        row(memory.numbers, (w, end + 2 * matrix), 3 * c),
    )


@kernel(mode="merged")
def _sum_patterns(given, c, largest, levels):
    """Sum the patterns of one block of c units, with relative weights.

    Return the log-partition, NaN if moments do not exist, and the share of the largest patterns.
    """
    _begin(given, c, levels)
    # The log-weight of a sum of 1, and the sum of the largest patterns.
    top, full, s, j = 0.0, 0.0, np.int64(0), np.int64(0)
    while top < np.inf:
        if s == largest - 1 and j < c:
            top, full = _add_units(given, s, j, c, levels, (top, full))
            j = c
        elif j < c:
            value = _append(given, s, j, c, largest, levels)
            s += 1
            if not value < top + MAX_LOG_WEIGHT:
                top, full = _scaled(value, s, c, largest, levels, (top, full))
            levels.numbers[4 * s + WEIGHT] = np.exp(larger(value - top, -MAX_LOG_WEIGHT))
            if s == 1:
                levels.sums[INCLUDED_ALONE * c + j] = levels.numbers[4 + WEIGHT]
            j += 1
        elif s == 0:
            break
        else:
            j, s = levels.unit[s] + 1, s - 1
            _add_level(s + 1, c, largest, levels)
    total = levels.numbers[WEIGHT]
    return top + np.log(total), full / total


@kernel(mode="merged")
def _begin(given, c, levels):
    """Begin with the empty pattern, of weight 1."""
    prior, linear, precision, first, square = given
    levels.numbers[LOG_WEIGHT], levels.numbers[WEIGHT] = 0.0, 1.0
    for i in range(3 * c):
        levels.sums[i] = 0.0
    for j in range(c):
        levels.linear[j] = linear[first + j] + prior[1, first + j]
        levels.precision[j] = precision[square + j * c + j] + prior[2, first + j]
        levels.first[j] = levels.second[j] = 0.0
        for i in range(j + 1, c):
            levels.couplings[j * c + i] = precision[square + j * c + i]
            levels.products[j * c + i] = 0.0


@kernel(mode="merged")
def _append(given, s, j, c, largest, levels):
    """Begin the level of unit j after level s; return the log-weight of its pattern."""
    linear, precision, slope, couplings = (
        levels.linear, levels.precision, levels.slope, levels.couplings
    )  # fmt: skip
    old, new, numbers, log_weight = s * c, (s + 1) * c, levels.numbers, np.nan
    along, pivot = linear[old + j], precision[old + j]
    var = 1 / pivot
    mean = along * var
    if pivot > MIN_PATTERN_PIVOT * abs(precision[j]):
        log_weight = numbers[4 * s + LOG_WEIGHT] + given[0][0, given[3] + j]
        log_weight += (along * mean - np.log(pivot)) / 2
    levels.unit[s + 1] = j
    numbers[4 * s + 4 + LOG_WEIGHT], numbers[4 * s + 4 + WEIGHT] = log_weight, 0.0
    numbers[4 * s + 4 + UNIT_MEAN], numbers[4 * s + 4 + UNIT_VAR] = mean, var
    across = old * c + j * c
    for i in range(j + 1, c):
        u = couplings[across + i] * var
        slope[new + i] = u
        linear[new + i] = linear[old + i] - u * along
        precision[new + i] = precision[old + i] - u * couplings[across + i]
        levels.first[new + i] = levels.second[new + i] = 0.0
    if s + 1 < largest - 1:
        for k in range(j + 1, c):
            u, old_row, new_row = slope[new + k], (old + k) * c, (new + k) * c
            for i in range(k + 1, c):
                couplings[new_row + i] = couplings[old_row + i] - u * couplings[across + i]
                levels.products[new_row + i] = 0.0
    return log_weight


@kernel(mode="merged")
def _scaled(value, s, c, largest, levels, totals):
    """Rescale the totals and the sums of levels up to s by this log-weight, NaN if improper."""
    top, full = totals
    ratio = np.exp(top - value)
    for i in range(3 * c):
        levels.sums[i] *= ratio
    for i in range((s + 1) * c):
        levels.first[i] *= ratio
        levels.second[i] *= ratio
    for t in range(s + 1):
        levels.numbers[4 * t + WEIGHT] *= ratio
    for i in range(min(s + 1, max(1, largest - 1)) * c * c):
        levels.products[i] *= ratio
    return value, full * ratio


@kernel(mode="merged")
def _add_units(given, s, start, c, levels, totals):
    """Add the patterns of level s and one unit from `start` on; return the new totals."""
    prior, first = given[0], given[3]
    (top, full), old, added = totals, s * c, 0.0
    log_weight = levels.numbers[4 * s + LOG_WEIGHT]
    for j in range(start, c):
        along, pivot = levels.linear[old + j], levels.precision[old + j]
        var = 1 / pivot
        mean = along * var
        value = log_weight + prior[0, first + j] + along * mean / 2
        if not pivot > MIN_PATTERN_PIVOT * abs(levels.precision[j]):
            value = np.nan
        if not value < top + MAX_LOG_WEIGHT:
            levels.numbers[4 * s + WEIGHT] += added
            top, full = _scaled(value, s, c, s + 1, levels, (top, full + added))
            added = 0.0
            if not top < np.inf:
                break
        if value > top - MAX_LOG_WEIGHT:
            weight = np.exp(value - top) * np.sqrt(var)
            added += weight
            levels.sums[INCLUDED * c + j] += weight
            levels.first[old + j] += weight * mean
            levels.second[old + j] += weight * (var + mean * mean)
            if s == 0:
                levels.sums[INCLUDED_ALONE * c + j] = weight
    levels.numbers[4 * s + WEIGHT] += added
    return top, full + added


@kernel(mode="merged")
def _add_level(s, c, largest, levels):
    """Add the sums of level s, with the moments of its unit, to the sums of level s - 1."""
    first, second, slope, products = levels.first, levels.second, levels.slope, levels.products
    k, new, old, moved = levels.unit[s], s * c, (s - 1) * c, levels.sums
    weight, mean = levels.numbers[4 * s + WEIGHT], levels.numbers[4 * s + UNIT_MEAN]
    if weight == 0:
        return
    levels.numbers[4 * s - 4 + WEIGHT] += weight
    levels.sums[INCLUDED * c + k] += weight
    for i in range(k + 1, c):
        moved[i] = slope[new + i] * second[new + i]
    if s < largest - 1:
        for j in range(k + 1, c):
            u, total, old_row, new_row = slope[new + j], 0.0, (old + j) * c, (new + j) * c
            for i in range(j + 1, c):
                product = products[new_row + i]
                products[old_row + i] += product
                moved[i] += u * product
                total += slope[new + i] * product
            moved[j] += total
    along, curved, across = 0.0, 0.0, (old + k) * c
    for i in range(k + 1, c):
        along += slope[new + i] * first[new + i]
        curved += slope[new + i] * moved[i]
        products[across + i] += mean * first[new + i] - moved[i]
        first[old + i] += first[new + i]
        second[old + i] += second[new + i]
    var = levels.numbers[4 * s + UNIT_VAR]
    first[old + k] += weight * mean - along
    second[old + k] += weight * (var + mean * mean) - 2 * mean * along + curved


@kernel(mode="merged")
def _conclude(levels, ratio, block, units, covariance):
    """Write the moments of a block to the results."""
    first, square, c = block
    for j in range(c):
        units[MEAN, first + j] = levels.first[j] * ratio
        included = levels.sums[INCLUDED * c + j] * ratio
        units[INCLUDED, first + j] = 1.0 if included > 1 else included  # by rounding
        units[INCLUDED_ALONE, first + j] = levels.sums[INCLUDED_ALONE * c + j] * ratio
    for j in range(c):
        mean = units[MEAN, first + j]
        covariance[square + j * c + j] = levels.second[j] * ratio - mean * mean
        for i in range(j + 1, c):
            value = levels.products[j * c + i] * ratio - mean * units[MEAN, first + i]
            covariance[square + j * c + i] = covariance[square + i * c + j] = value
