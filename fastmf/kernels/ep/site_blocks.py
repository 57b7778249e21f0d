"""Tilted moments of blocks of correlated spike-and-slab units.

The units of a block have one cavity exp(g'w - w'Pw / 2). Their prior factors are sums over
inclusion: with S the set of units that are not zero,

    Q = P_SS + precisions,  h = g_S + fields,  slab moments  M = Q^-1 h,  V = Q^-1
    log-weight of S  =  sum of prior log-weights - ln det(Q) / 2 + h'M / 2

Patterns S are walked depth first, so that each one adds a row to the Cholesky factor of the last.
Only the Q are inverted: P itself need not be positive definite. Most patterns are as large as they
may be: with u = V P_Sj, p = Q_jj - P_jS u and m = (h_j - P_jS M) / p, those that add a unit j to S
have the moments

    means  M - m u and m,  covariances  V + uu' / p, -u / p and 1 / p

of which the sums over j are taken first.

All is one kernel. Matrices are one-dimensional arrays, row by row.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int64
from fastmf._jit.intrinsics import fetch_and_increment, row
from fastmf._jit.kernel import kernel
from fastmf._threads.interrupts import next_task
from fastmf.kernels.linear.work import new_work

# A pattern counts if its weight is at least exp(-this) of the largest so far: 1e5 that do not are
# less than 1e-8.
MAX_LOG_RATIO = 30.0
# Smallest pivot, relative to the diagonal of Q, of a pattern that is proper.
MIN_PATTERN_PIVOT = 1e-14


class SiteBlocks(NamedTuple):
    """Where blocks are in arrays of all their units, and of all their matrices, one after another.

    `prior` has the log-weight of a unit that is not zero (log-odds, and the slab's log-normaliser
    without 2 pi), and the field and precision of its slab.
    """

    starts: np.ndarray  # int64, (n_blocks + 1,), first unit of every block, and the end
    squares: np.ndarray  # int64, (n_blocks + 1,), first element of its matrix, and the end
    largest: np.ndarray  # int64, (n_blocks,), units that a pattern may include
    prior: np.ndarray  # (3, n_units)


class Pattern(NamedTuple):
    """Pattern in hand, of d units at most; matrices are one-dimensional."""

    members: Int64[1]  # (d,), its units, in increasing order
    factor: Float64[1]  # (d * d,), Cholesky factor of Q, lower triangle
    whiten: Float64[1]  # (d * d,), its inverse
    second: Float64[1]  # (d * d,), second moments of the units
    whitened: Float64[1]  # (d,), whitened linear terms
    mean: Float64[1]  # (d,)
    log_weights: Float64[1]  # (d + 1,), of the patterns of its first units
    changes: Float64[1]  # (d * d,), sum of uu' over units that may be added
    cross: Float64[1]  # (d,), P_Sj of one
    change: Float64[1]  # (d,), sum of mean times u over them
    shift: Float64[1]  # (d,), u of one


class PatternMemory(NamedTuple):
    """Scratch memory of workers: patterns, and the sums over all patterns of a block."""

    members: np.ndarray  # int64, (n_workers, d)
    numbers: np.ndarray  # (n_workers, 4 * d * d + 6 * d + 1), arrays of `Pattern`
    sums: np.ndarray  # (n_workers, 3 * c + c * c), see `MEAN`, of c units; second moments


def pattern_work(blocks, n_workers):
    """Memory and queue of `tilt_blocks`."""
    d, c = max(1, blocks.largest.max()), np.diff(blocks.starts).max()
    members = np.zeros((n_workers, d), np.int64)
    numbers = np.zeros((n_workers, 4 * d * d + 6 * d + 1))
    sums = np.zeros((n_workers, 3 * c + c * c))
    return new_work(PatternMemory(members, numbers, sums))


# Rows of `units`.
MEAN, INCLUDED, INCLUDED_ALONE = range(3)


@kernel
def tilt_blocks(blocks, linear, precision, work, units, covariance, totals):
    """Moments and log-partition of every block under the tilt of its cavity."""
    n_blocks = len(blocks.largest)
    w = fetch_and_increment(work.queue[1:])
    if w >= len(work.scratch.members):
        return
    pattern = _pattern_of(work.scratch, w)
    while True:
        k = next_task(work.queue)
        if k >= n_blocks:
            break
        first, square, largest = blocks.starts[k], blocks.squares[k], blocks.largest[k]
        c = blocks.starts[k + 1] - first
        sums = row(work.scratch.sums, (w, 0), 3 * c + c * c)
        given = blocks.prior, linear, precision, first, square
        log_total, ratio, full = _sum_patterns(given, c, largest, pattern, sums)
        totals[0, k], totals[1, k] = log_total, 0.0 if c == largest else full
        _conclude(sums, ratio, (first, square, c), units, covariance)


@kernel(mode="merged")
def _pattern_of(memory, w):
    """The arrays of a worker's pattern."""
    members, d = memory.members[w], memory.members.shape[1]
    square = d * d
    return Pattern(
        members,
        row(memory.numbers, (w, 0), square),
        row(memory.numbers, (w, square), square),
        row(memory.numbers, (w, 2 * square), square),
        row(memory.numbers, (w, 3 * square), d),
        row(memory.numbers, (w, 3 * square + d), d),
        row(memory.numbers, (w, 3 * square + 2 * d), d + 1),
        row(memory.numbers, (w, 3 * square + 3 * d + 1), square),
        row(memory.numbers, (w, 4 * square + 3 * d + 1), d),
        row(memory.numbers, (w, 4 * square + 4 * d + 1), d),
        row(memory.numbers, (w, 4 * square + 5 * d + 1), d),
    )


@kernel(mode="merged")
def _sum_patterns(given, c, largest, pattern, sums):
    """Sum the patterns of one block of c units, with relative weights.

    Returns the log-partition, NaN where moments do not exist; what makes the sums moments; the part
    of the patterns that are as large as they may be.
    """
    for i in range(len(sums)):
        sums[i] = 0.0
    pattern.log_weights[0] = 0.0
    top, total, full = 0.0, 1.0, 0.0
    s, j = np.int64(0), np.int64(0)
    while True:
        if s == largest - 1 and j < c:
            top, total, full = _add_last(given, s, j, c, pattern, sums, (top, total, full))
            if not top < np.inf:
                break
            j = c
        elif s < largest and j < c:
            value = _append(given, s, j, c, pattern)
            if not value < np.inf:
                top = np.nan
                break
            s += 1
            pattern.log_weights[s] = value
            if value > top:
                ratio = np.exp(top - value)
                _scale(sums, ratio)
                total, full, top = total * ratio, full * ratio, value
            counts = value > top - MAX_LOG_RATIO
            if counts or s < largest:
                _whiten(s - 1, pattern)
            if counts:
                weight = np.exp(value - top)
                total += weight
                full += weight if s == largest else 0.0
                _add(s, weight, c, pattern, sums)
            j += 1
        elif s == 0:
            break
        else:
            s -= 1
            j = pattern.members[s] + 1
    return top + np.log(total), 1 / total if top < np.inf else np.nan, full / total


@kernel(mode="merged")
def _scale(sums, ratio):
    """Multiply all sums."""
    for i in range(len(sums)):
        sums[i] *= ratio


@kernel(mode="merged")
def _append(given, s, j, c, pattern):
    """Make unit j the one number s of the pattern: its log-weight; NaN if it is not proper."""
    prior, linear, precision, first, square = given
    members, factor, _, _, whitened, _, log_weights, _, _, _, _ = pattern
    d, here, log_weight = len(members), square + j * c, np.nan
    rest = precision[here + j] + prior[2, first + j]
    scale, along = rest, linear[first + j] + prior[1, first + j]
    for r in range(s):
        value = precision[here + members[r]]
        for t in range(r):
            value -= factor[s * d + t] * factor[r * d + t]
        value /= factor[r * d + r]
        factor[s * d + r] = value
        rest -= value * value
        along -= value * whitened[r]
    if rest > MIN_PATTERN_PIVOT * abs(scale):
        members[s] = j
        pivot = np.sqrt(rest)
        z = along / pivot
        factor[s * d + s], whitened[s] = pivot, z
        log_weight = log_weights[s] + prior[0, first + j] + z * z / 2 - np.log(pivot)
    return log_weight


@kernel(mode="merged")
def _whiten(s, pattern):
    """Row s of the inverse factor, of the unit that was appended last."""
    members, factor, whiten, _, _, _, _, _, _, _, _ = pattern
    d = len(members)
    scale = 1 / factor[s * d + s]
    whiten[s * d + s] = scale
    for t in range(s):
        value = 0.0
        for r in range(t, s):
            value -= factor[s * d + r] * whiten[r * d + t]
        whiten[s * d + t] = value * scale


@kernel(mode="merged")
def _add_last(given, s, start, c, pattern, sums, totals):
    """Add the patterns of the first s units and one from `start` on: the new totals."""
    (top, total, full), added = totals, 0.0
    _begin_last(s, pattern)
    for j in range(start, c):
        value, mean, var = _moments_of_last(given, s, j, c, pattern)
        if not value < np.inf:
            top = np.nan
            break
        if value > top:
            ratio = np.exp(top - value)
            _scale(sums, ratio)
            _scale_last(s, ratio, pattern)
            total, full, added, top = total * ratio, full * ratio, added * ratio, value
        if value > top - MAX_LOG_RATIO:
            weight = np.exp(value - top)
            added += weight
            _add_unit(s, j, (weight, mean, var), c, pattern, sums)
    _add_common(s, added, c, pattern, sums)
    return top, total + added, full + added


@kernel(mode="merged")
def _begin_last(s, pattern):
    """Means of the first s units alone, and sums over units that may be added: none yet."""
    members, _, whiten, _, whitened, means, _, changes, _, change, _ = pattern
    d = len(members)
    for a in range(s):
        change[a] = means[a] = 0.0
        for r in range(a, s):
            means[a] += whitened[r] * whiten[r * d + a]
        for b in range(a + 1):
            changes[a * d + b] = 0.0


@kernel(mode="merged")
def _moments_of_last(given, s, j, c, pattern):
    """Log-weight with unit j besides the first s, NaN if not proper, and its mean and variance."""
    prior, linear, precision, first, square = given
    members, _, whiten, _, whitened, _, log_weights, _, cross, _, shift = pattern
    d, here, log_weight = len(members), square + j * c, np.nan
    for a in range(s):
        cross[a], shift[a] = precision[here + members[a]], 0.0
    rest, along = precision[here + j] + prior[2, first + j], linear[first + j]
    scale, along = rest, along + prior[1, first + j]
    for r in range(s):
        value = 0.0
        for t in range(r + 1):
            value += whiten[r * d + t] * cross[t]
        for t in range(r + 1):
            shift[t] += whiten[r * d + t] * value
        rest -= value * value
        along -= value * whitened[r]
    var = 1 / rest
    mean = along * var
    if rest > MIN_PATTERN_PIVOT * abs(scale):
        log_weight = log_weights[s] + prior[0, first + j] + (along * mean - np.log(rest)) / 2
    return log_weight, mean, var


@kernel(mode="merged")
def _scale_last(s, ratio, pattern):
    """Multiply the sums over units that may be added."""
    members, _, _, _, _, _, _, changes, _, change, _ = pattern
    d = len(members)
    for a in range(s):
        change[a] *= ratio
        for b in range(a + 1):
            changes[a * d + b] *= ratio


@kernel(mode="merged")
def _add_unit(s, j, moments, c, pattern, sums):
    """Add the moments of unit j besides the first s, and what it changes in theirs."""
    members, _, _, _, _, means, _, changes, _, change, shift = pattern
    d, (weight, mean, var) = len(members), moments
    first_order = weight * mean
    second_order = weight * var + first_order * mean
    if s == 0:
        sums[INCLUDED_ALONE * c + j] += weight
    sums[MEAN * c + j] += first_order
    sums[INCLUDED * c + j] += weight
    here = 3 * c + j * c
    sums[here + j] += second_order
    for a in range(s):
        scaled = second_order * shift[a]
        change[a] += first_order * shift[a]
        sums[here + members[a]] += first_order * means[a] - scaled
        for b in range(a + 1):
            changes[a * d + b] += scaled * shift[b]


@kernel(mode="merged")
def _add_common(s, weight, c, pattern, sums):
    """Add, of all patterns of the first s units and one more, the moments of the first s."""
    members, _, whiten, _, _, means, _, changes, _, change, _ = pattern
    d = len(members)
    for a in range(s):
        i, here = members[a], 3 * c + members[a] * c
        sums[MEAN * c + i] += weight * means[a] - change[a]
        sums[INCLUDED * c + i] += weight
        for b in range(a + 1):
            value = means[a] * means[b]
            for r in range(a, s):
                value += whiten[r * d + a] * whiten[r * d + b]
            value = weight * value - means[a] * change[b] - means[b] * change[a]
            sums[here + members[b]] += value + changes[a * d + b]


@kernel(mode="merged")
def _add(s, weight, c, pattern, sums):
    """Add the pattern of the first s units to the sums, with this weight."""
    members, _, whiten, second, whitened, means, _, _, _, _, _ = pattern
    d = len(members)
    if s == 1:
        sums[INCLUDED_ALONE * c + members[0]] += weight
    for a in range(s):
        mean = 0.0
        for r in range(a, s):
            mean += whitened[r] * whiten[r * d + a]
        i, means[a] = members[a], mean
        sums[MEAN * c + i] += weight * mean
        sums[INCLUDED * c + i] += weight
    for a in range(s):
        here = 3 * c + members[a] * c
        for b in range(a + 1):
            value = means[a] * means[b]
            for r in range(a, s):
                value += whiten[r * d + a] * whiten[r * d + b]
            second[a * d + b] = second[b * d + a] = value
            sums[here + members[b]] += weight * value


@kernel(mode="merged")
def _conclude(sums, ratio, block, units, covariance):
    """Hand over the moments of a block."""
    first, square, c = block
    for q in range(3):
        for i in range(c):
            units[q, first + i] = sums[q * c + i] * ratio
    for i in range(c):
        for j in range(i + 1):
            value = sums[3 * c + i * c + j] * ratio
            value -= units[MEAN, first + i] * units[MEAN, first + j]
            covariance[square + i * c + j] = covariance[square + j * c + i] = value
