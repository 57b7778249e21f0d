"""Means of the missing columns of rows by annealed particles that start from a spanning tree.

The columns that a row lacks have, given the others, the log-weights f'x + x'Jx / 2 of their states.
Particles are drawn from a tree, which is exact: the maximum spanning tree of the couplings, with f
and J limited in range, as particles of a frozen tree would be alike and hide that others have more
weight. Then they are moved to the model along

    (1 - beta) base + beta model,    beta from 0 to 1

by sequential Monte Carlo (Del Moral, Doucet & Jasra 2006): a step is the largest that leaves half
of the particles effective, they are resampled by their weights, and moved by Gibbs sweeps. Several
replicates, weighted by their estimates of the partition function, give the means and their standard
errors. Where couplings are few or weak outside the tree one step suffices, and the particles only
correct the marginals of the tree; where there are none, these are the result.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, larger, row
from fastmf._jit.kernel import kernel
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.linear.work import new_work
from fastmf.kernels.sampling.random import row_key, uniform
from fastmf.kernels.sampling.spanning_tree import (
    BASE_FIELD,
    FIRST_EDGE,
    LOG_WEIGHT,
    MARGINAL,
    MIXED_FIELD,
    MODEL_FIELD,
    ORDER,
    PARENT,
    PROBABILITY,
    STATE,
    TreeMemory,
    drawn,
    is_tree,
    load_columns,
    set_base,
    set_probabilities,
    solve_tree,
    span,
)
from fastmf.special import exp, log

# Share of the particles that a step leaves effective: (sum of weights)^2 / sum of squares.
MIN_EFFECTIVE_SHARE = 0.5
# Halvings of the interval in which a step is looked for; steps at most.
N_BISECTIONS, MAX_ANNEALING_STEPS = 30, 1000


class TreeSettings(NamedTuple):
    """Arguments that are the same for all rows.

    Parameters
    ----------
    seed : uint64
    n_sweeps, n_last_sweeps : int
        Gibbs sweeps after each step, and those at the end over which probabilities are averaged.
    min_replicates, max_replicates : int
    tol : float
        Standard error of a probability that needs no further replicates.
    """

    seed: int
    n_sweeps: int
    n_last_sweeps: int
    min_replicates: int
    max_replicates: int
    tol: float


def tree_annealing_work(problem, missing, n_particles, settings, n_workers=1):
    """Memory of `tree_annealing` for so many threads."""
    sizes = np.diff(problem.offsets)
    n, k, p = (missing @ sizes).max(), missing.sum(1).max(), n_particles.max()
    shapes = (
        *((n, n),) * 3,
        *((8, n), (n, sizes.max())),
        *((2, p), (settings.max_replicates, n + 2)),
    )
    couplings, base, mixed, vectors, given, weights, replicates = (
        np.zeros((n_workers, *shape)) for shape in shapes
    )
    numbers = np.zeros((n_workers, 5, n + 1), np.int64)
    labels = np.zeros((n_workers, 2, p, k), np.int64)
    return new_work(
        TreeMemory(couplings, base, mixed, vectors, given, numbers, labels, weights, replicates)
    )


# --- particles ------------------------------------------------------------------------------------


@kernel(mode="inner")
def _draw(m, k, n_particles, counter):
    """Labels of all particles, drawn from the tree."""
    first, order, parent = m.numbers[FIRST_EDGE], m.numbers[ORDER], m.numbers[PARENT]
    (seed, step), p = counter, m.vectors[PROBABILITY]
    for r in range(n_particles):
        key = row_key(seed, step, r)
        for place in range(k):
            i = order[place]
            up = m.labels[0, r, parent[i]] if place > 0 else np.int64(0)
            for a in range(first[i], first[i + 1]):
                p[a] = m.given[a, up]
            m.labels[0, r, i] = drawn(p, first[i], first[i + 1], uniform(key, i))


@kernel(mode="inner")
def _mix(m, n, beta):
    """Fields and couplings between those of the tree and those of the model."""
    for a in range(n):
        f, g = m.vectors[BASE_FIELD, a], m.vectors[MODEL_FIELD, a]
        m.vectors[MIXED_FIELD, a] = (1 - beta) * f + beta * g
        for b in range(n):
            m.mixed[a, b] = (1 - beta) * m.base[a, b] + beta * m.couplings[a, b]


@kernel(mode="inner")
def _set_residuals(m, k, n_particles):
    """Log-weight of each particle in the model, less that in the tree; returns the largest."""
    first, top = m.numbers[FIRST_EDGE], -np.inf
    field, base_field = m.vectors[MODEL_FIELD], m.vectors[BASE_FIELD]
    for r in range(n_particles):
        total = 0.0
        for i in range(k):
            a = first[i] + m.labels[0, r, i]
            total += field[a] - base_field[a]
            for j in range(i):
                b = first[j] + m.labels[0, r, j]
                total += m.couplings[a, b] - m.base[a, b]
        m.weights[0, r] = total
        top = larger(top, total)
    return top


@kernel(mode="inner")
def _set_weights(m, n_particles, step, top):
    """Weights exp(step residual), relative to the largest; their sum and the effective share."""
    total = squares = 0.0
    for r in range(n_particles):
        weight = exp(step * (m.weights[0, r] - top))
        m.weights[1, r] = weight
        total += weight
        squares += weight * weight
    return total, total * total / (n_particles * squares)


@kernel(mode="inner")
def _largest_step(m, n_particles, left, top):
    """Largest step up to `left` that keeps enough particles effective."""
    if _set_weights(m, n_particles, left, top)[1] >= MIN_EFFECTIVE_SHARE:
        return left
    low, high = 0.0, left
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2
        if _set_weights(m, n_particles, middle, top)[1] >= MIN_EFFECTIVE_SHARE:
            low = middle
        else:
            high = middle
    return low


@kernel(mode="inner")
def _resample(m, k, n_particles, total, counter):
    """Replace all particles by systematic resampling with their weights."""
    seed, step = counter
    u, source, cumulative = uniform(row_key(seed, step, 0), 0), np.int64(0), m.weights[1, 0]
    for r in range(n_particles):
        position = (r + u) * (total / n_particles)
        while cumulative <= position and source < n_particles - 1:
            source += 1
            cumulative += m.weights[1, source]
        for i in range(k):
            m.labels[1, r, i] = m.labels[0, source, i]
    for r in range(n_particles):
        for i in range(k):
            m.labels[0, r, i] = m.labels[1, r, i]


@kernel(mode="inner")
def _add(means, weight, p, start, end):
    """Add weighted probabilities of the states of one column."""
    for a in range(start, end):
        means[a] += weight * p[a]


@kernel(mode="inner")
def _sweep(m, k, n_particles, counter, means, share):
    """Draw all columns of all particles in turn; adds their weighted probabilities to `means`."""
    first, logs, p = m.numbers[FIRST_EDGE], m.vectors[LOG_WEIGHT], m.vectors[PROBABILITY]
    (seed, step), n = counter, first[k]
    for r in range(n_particles):
        key, weight = row_key(seed, step, r), share * m.weights[1, r]
        for a in range(n):
            logs[a] = m.vectors[MIXED_FIELD, a]
        for i in range(k):
            added = row(m.mixed, (first[i] + m.labels[0, r, i], 0), n)
            for a in range(n):
                logs[a] += added[a]
        for i in range(k):
            set_probabilities(logs, p, first[i], first[i + 1])
            old, new = m.labels[0, r, i], drawn(p, first[i], first[i + 1], uniform(key, i))
            _add(means, weight, p, first[i], first[i + 1])
            if new == old:
                continue
            added, taken = (
                row(m.mixed, (first[i] + new, 0), n),
                row(m.mixed, (first[i] + old, 0), n),
            )
            for a in range(n):
                logs[a] += added[a] - taken[a]
            m.labels[0, r, i] = new


# --- replicates -----------------------------------------------------------------------------------


@kernel(mode="inner")
def _correct_tree(m, k, n_particles, total, means):
    """Marginals of the tree, corrected by weighted particles that were drawn from it."""
    first, marginal = m.numbers[FIRST_EDGE], m.vectors[MARGINAL]
    for a in range(first[k]):
        means[a] = marginal[a]
    for r in range(n_particles):
        weight = m.weights[1, r] / total - 1.0 / n_particles
        for i in range(k):
            means[first[i] + m.labels[0, r, i]] += weight


@kernel(mode="inner")
def _replicate(m, k, n_particles, settings, replicate, log_partition, queue):
    """Write the probabilities of one set of particles, and its log-partition."""
    first, means = m.numbers[FIRST_EDGE], m.replicates[replicate]
    n, counter, beta, total, n_steps = first[k], replicate << 32, 0.0, 0.0, np.int64(0)
    counter += 1
    _draw(m, k, n_particles, (settings.seed, counter))
    while True:
        if stopped(queue):
            return
        top = _set_residuals(m, k, n_particles)
        n_steps += 1
        step = (
            1 - beta
            if n_steps == MAX_ANNEALING_STEPS
            else _largest_step(m, n_particles, 1 - beta, top)
        )
        total = _set_weights(m, n_particles, step, top)[0]
        log_partition += step * top + log(total / n_particles)
        if step == 1 - beta:
            break
        beta += step
        counter += 1
        _resample(m, k, n_particles, total, (settings.seed, counter))
        _mix(m, n, beta)
        for _ in range(settings.n_sweeps):
            counter += 1
            _sweep(m, k, n_particles, (settings.seed, counter), means, 0.0)
    if n_steps == 1:
        _correct_tree(m, k, n_particles, total, means)
    else:
        for a in range(n):
            means[a] = 0.0
        _mix(m, n, 1.0)
        for _ in range(settings.n_last_sweeps):
            counter += 1
            _sweep(m, k, n_particles, (settings.seed, counter), means, 1.0 / total)
    for i in range(k):
        total = 0.0
        for a in range(first[i], first[i + 1]):
            means[a] = larger(means[a], 0.0)
            total += means[a]
        for a in range(first[i], first[i + 1]):
            means[a] /= total
    means[means.shape[0] - 2] = log_partition


@kernel(mode="inner")
def _combine(m, n, n_replicates, means):
    """Weighted average of the replicates; returns the largest standard error of a probability."""
    found, states = m.replicates, m.numbers[STATE]
    partition, weight = found.shape[1] - 2, found.shape[1] - 1
    top, total, largest = found[0, partition], 0.0, 0.0
    for r in range(n_replicates):
        top = larger(top, found[r, partition])
    for r in range(n_replicates):
        found[r, weight] = exp(found[r, partition] - top)
        total += found[r, weight]
    for a in range(n):
        mean = square = 0.0
        for r in range(n_replicates):
            mean += found[r, weight] / total * found[r, a]
        for r in range(n_replicates):
            square += (found[r, weight] / total * (found[r, a] - mean)) ** 2
        means[states[a]] = mean
        largest = larger(largest, square)
    return np.sqrt(largest * n_replicates / (n_replicates - 1))


@kernel(mode="inner")
def _solve_row(m, k, n_particles, settings, means, queue):
    """Probabilities of the missing columns of one row; returns their largest standard error."""
    n, states = m.numbers[FIRST_EDGE, k], m.numbers[STATE]
    whole = is_tree(m, k)
    set_base(m, k, not whole)
    log_partition = solve_tree(m, k)
    if whole:
        for a in range(n):
            means[states[a]] = m.vectors[MARGINAL, a]
        return 0.0
    error = 1.0
    for replicate in range(settings.max_replicates):
        _replicate(m, k, n_particles, settings, replicate, log_partition, queue)
        if stopped(queue):
            break
        if replicate + 1 >= settings.min_replicates:
            error = _combine(m, n, replicate + 1, means)
            if error <= settings.tol:
                break
    return error


@kernel(mode="inner")
def _memory_of(scratch, w):
    """The memory of one thread."""
    return TreeMemory(
        scratch.couplings[w], scratch.base[w], scratch.mixed[w], scratch.vectors[w],
        scratch.given[w], scratch.numbers[w], scratch.labels[w], scratch.weights[w],
        scratch.replicates[w],
    )  # fmt: skip


@kernel(views=True)
def tree_annealing(problem, fields, missing, n_particles, settings, means, errors, work):
    """Probabilities of the states of missing columns, for each row in the queue."""
    scratch, queue = work
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= scratch.couplings.shape[0]:
        return
    m = _memory_of(scratch, w)
    r = next_task(queue)
    while r < fields.shape[0]:
        k, _ = load_columns(problem, fields[r], missing[r], m)
        span(problem.strength, m, k)
        errors[r] = _solve_row(m, k, n_particles[r], settings, means[r], queue)
        r = next_task(queue)
