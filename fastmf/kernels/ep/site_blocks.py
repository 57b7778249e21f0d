"""Tilted moments of blocks of correlated spike-and-slab units.

The units of a block have one cavity exp(g'w - w'Pw / 2). Their prior factors are sums over
inclusion: with S the set of units that are not zero,

    Q = P_SS + precisions,  h = g_S + fields,  slab moments  M = Q^-1 h,  V = Q^-1
    log-weight of S  =  sum of prior log-weights - ln det(Q) / 2 + h'M / 2

Patterns S are walked depth first, so that each one adds a row to the Cholesky factor of the last.
Only the Q are inverted: P itself need not be positive definite.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, larger
from fastmf._jit.kernel import kernel

# A pattern counts if its weight is at least exp(-this) of the largest so far.
MAX_LOG_RATIO = 42.0
# Smallest pivot, relative to the diagonal of Q, of a pattern that is proper.
MIN_PATTERN_PIVOT = 1e-14


class SiteBlocks(NamedTuple):
    """Where blocks are in arrays of all their units, and of all their matrices, one after another.

    Parameters
    ----------
    starts, squares : int64 array of shape (n_blocks + 1,)
        First unit, and first element of the matrix, of every block, and the ends of the last.
    largest : int64 array of shape (n_blocks,)
        Units that a pattern may include.
    prior : array of shape (3, n_units)
        Log-weight of a unit that is not zero (log-odds, and the slab's log-normaliser without
        2 pi), field and precision of its slab.
    """

    starts: np.ndarray
    squares: np.ndarray
    largest: np.ndarray
    prior: np.ndarray


@kernel
def tilt_blocks(blocks, linear, precision, queue, units, covariance, totals):
    """Moments and log-partition of every block under the tilt of its cavity.

    Parameters
    ----------
    blocks : SiteBlocks
    linear : array of shape (n_units,)
        Linear coefficients of the cavities.
    precision : array of shape (n_elements,)
        Their matrices.
    queue : int64 array of shape (1,)
        Next block to be done; shared by all threads that call this.
    units : array of shape (3, n_units)
        Filled with means, and probabilities of not being zero and of being the only one of the
        block that is not.
    covariance : array of shape (n_elements,)
        Filled with the covariances.
    totals : array of shape (2, n_blocks)
        Filled with log-partitions, NaN where moments do not exist, and the probabilities of
        patterns that include as many units as they may, but not all.
    """
    n_blocks, deepest = len(blocks.largest), np.int64(1)
    for k in range(n_blocks):
        deepest = larger(deepest, blocks.largest[k])
    # Of the pattern in hand: Cholesky factor, its inverse, second moments; vectors; its units.
    matrices, none = np.zeros((3, deepest, deepest)), np.zeros((0, 0))
    memory = matrices, np.zeros((3, deepest + 1)), np.zeros(deepest, np.int64)
    while True:
        k = fetch_and_increment(queue)
        if k >= n_blocks:
            break
        first, last = blocks.starts[k], blocks.starts[k + 1]
        elements = slice(blocks.squares[k], blocks.squares[k + 1])
        given = blocks.prior[:, first:last], linear[first:last], precision[elements]
        sums = units[:, first:last], covariance[elements], none, totals[:, k]
        sum_patterns(given, blocks.largest[k], memory, sums)
        if last - first == blocks.largest[k]:
            totals[1, k] = 0.0


@kernel
def block_curvature(prior, linear, precision, largest, curvature):
    """Covariances of (w_i, w_i w_j) of a block, i >= j, under the tilt of its cavity.

    Parameters
    ----------
    prior : array of shape (3, n_units)
        See `SiteBlocks`.
    linear : array of shape (n_units,)
    precision : array of shape (n_units * n_units,)
        The cavity.
    largest : int
        Units that a pattern may include.
    curvature : array of shape (n, n)
        Filled in its lower triangle, zero above it, for n = n_units (n_units + 3) / 2: units first,
        then pairs, row by row of their lower triangle.
    """
    c = len(linear)
    matrices, vectors = np.zeros((3, largest, largest)), np.zeros((3, largest + 1))
    units, covariance, totals = np.zeros((3, c)), np.zeros(c * c), np.zeros(2)
    memory = matrices, vectors, np.zeros(largest, np.int64)
    sums = units, covariance, curvature, totals
    sum_patterns((prior, linear, precision), largest, memory, sums)
    mean = np.zeros(len(curvature))
    k = c
    for i in range(c):
        mean[i] = units[MEAN, i]
        for j in range(i + 1):
            mean[k] = covariance[i * c + j] + units[MEAN, i] * units[MEAN, j]
            k += 1
    for i in range(len(mean)):
        for j in range(i + 1):
            curvature[i, j] -= mean[i] * mean[j]


# Rows of `vectors`: whitened linear terms and means of the pattern, and log-weights of the patterns
# of its first units.
WHITENED, MEANS, LOG_WEIGHTS = range(3)
# Rows of `units`.
MEAN, INCLUDED, INCLUDED_ALONE = range(3)


@kernel(mode="inline")
def _append(given, s, j, memory):
    """Make unit j the one number s of the pattern: its log-weight; NaN if it is not proper."""
    prior, linear, precision = given
    factors, vectors, members = memory
    factor, whiten = factors[0], factors[1]
    c, rest = len(linear), precision[j * len(linear) + j] + prior[2, j]
    scale, along = rest, linear[j] + prior[1, j]
    for r in range(s):
        i = members[r]
        value = precision[j * c + i]
        for t in range(r):
            value -= factor[s, t] * factor[r, t]
        value /= factor[r, r]
        factor[s, r] = value
        rest -= value * value
        along -= value * vectors[WHITENED, r]
    if not rest > MIN_PATTERN_PIVOT * abs(scale):
        return np.nan
    members[s] = j
    pivot = np.sqrt(rest)
    z = along / pivot
    factor[s, s], whiten[s, s], vectors[WHITENED, s] = pivot, 1 / pivot, z
    for t in range(s):
        value = 0.0
        for r in range(t, s):
            value -= factor[s, r] * whiten[r, t]
        whiten[s, t] = value / pivot
    return vectors[LOG_WEIGHTS, s] + prior[0, j] + z * z / 2 - np.log(pivot)


@kernel(mode="inner")
def _add(s, weight, memory, sums):
    """Add the pattern of the first s units to the sums, with this weight."""
    factors, vectors, members = memory
    whiten, moments = factors[1], factors[2]
    units, second, curvature, _ = sums
    c = units.shape[1]
    for a in range(s):
        mean = 0.0
        for r in range(a, s):
            mean += vectors[WHITENED, r] * whiten[r, a]
        vectors[MEANS, a] = mean
    if s == 1:
        units[INCLUDED_ALONE, members[0]] += weight
    for a in range(s):
        i, m = members[a], vectors[MEANS, a]
        units[MEAN, i] += weight * m
        units[INCLUDED, i] += weight
        for b in range(a + 1):
            value = m * vectors[MEANS, b]
            for r in range(a, s):
                value += whiten[r, a] * whiten[r, b]
            moments[a, b] = moments[b, a] = value
            second[i * c + members[b]] += weight * value
    if len(curvature) > 0:
        _add_curvature(s, weight, memory, curvature, c)


@kernel(mode="inner")
def _add_curvature(s, weight, memory, curvature, c):
    """Add moments of third and fourth order of the pattern of the first s units.

    With A the second moments: E[abc] = A_ab m_c + A_ac m_b + A_bc m_a - 2 m_a m_b m_c, and
    E[abcd] = A_ab A_cd + A_ac A_bd + A_ad A_bc - 2 m_a m_b m_c m_d.
    """
    factors, vectors, members = memory
    second, m = factors[2], vectors[MEANS]
    for a in range(s):
        for b in range(a + 1):
            curvature[members[a], members[b]] += weight * second[a, b]
            row = c + members[a] * (members[a] + 1) // 2 + members[b]
            for d in range(s):
                value = second[a, b] * m[d] + second[a, d] * m[b] + second[b, d] * m[a]
                curvature[row, members[d]] += weight * (value - 2 * m[a] * m[b] * m[d])
            _add_pairs((a, b), weight, (second, m, members), curvature[row, c:])


@kernel(mode="inner")
def _add_pairs(pair, weight, pattern, row):
    """Add moments of a pair of units with all pairs up to it."""
    (a, b), (second, m, members) = pair, pattern
    for d in range(a + 1):
        # Members increase: these are the pairs that come first.
        for e in range(d + 1 if d < a else b + 1):
            column = members[d] * (members[d] + 1) // 2 + members[e]
            value = second[a, b] * second[d, e] + second[a, d] * second[b, e]
            value += second[a, e] * second[b, d] - 2 * m[a] * m[b] * m[d] * m[e]
            row[column] += weight * value


@kernel(mode="inner")
def _scale(sums, ratio):
    """Multiply all sums."""
    units, second, curvature, _ = sums
    c = units.shape[1]
    for row in range(3):
        for i in range(c):
            units[row, i] *= ratio
    for i in range(c * c):
        second[i] *= ratio
    for i in range(len(curvature)):
        for j in range(len(curvature)):
            curvature[i, j] *= ratio


@kernel(mode="inner")
def sum_patterns(given, largest, memory, sums):
    """Moments of one block, and totals: sums over the patterns, with relative weights."""
    linear = given[1]
    _, vectors, members = memory
    units, second, curvature, totals = sums
    c = len(linear)
    units[:], second[:], curvature[:] = 0, 0, 0
    vectors[LOG_WEIGHTS, 0] = 0
    top, total, full = 0.0, 1.0, 0.0
    s, j = np.int64(0), np.int64(0)
    while True:
        if s < largest and j < c:
            value = _append(given, s, j, memory)
            if not value < np.inf:
                top = np.nan
                break
            s += 1
            vectors[LOG_WEIGHTS, s] = value
            if value > top:
                ratio = np.exp(top - value)
                _scale(sums, ratio)
                total, full, top = total * ratio, full * ratio, value
            if value > top - MAX_LOG_RATIO:
                weight = np.exp(value - top)
                total += weight
                full += weight if s == largest else 0.0
                _add(s, weight, memory, sums)
            j += 1
        elif s == 0:
            break
        else:
            s -= 1
            j = members[s] + 1
    totals[0], totals[1] = top + np.log(total), full / total
    _scale(sums, 1 / total if top < np.inf else np.nan)
    for i in range(c):
        for j in range(i + 1):
            value = second[i * c + j] - units[MEAN, i] * units[MEAN, j]
            second[i * c + j] = second[j * c + i] = value
