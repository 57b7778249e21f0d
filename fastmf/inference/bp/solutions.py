"""Distinct fixed points of sum-product from many starts, and their mixture.

Fixed points s with Bethe log-partitions B_s are weighted by w_s = exp(B_s) / sum_t exp(B_t), as
phases that hardly overlap: the log-partition is log sum_s exp(B_s), and marginals are averages.

Starts are messages without preference and messages of states: of random probabilities, of naive
mean-field solutions and of states of low energy, each with its opposite where units have two
values. Fixed points that are reached are left by a small distance and solved again: a point that is
no minimum of the Bethe free energy does not come back, and is no answer.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from fastmf._common import arguments as check
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.fixed_point import with_changes
from fastmf.inference.mean_field.solutions import N_CHECKED_STARTS, SPREAD, joined_rows, mixed_row
from fastmf.special import sigmoid

# Sweeps from each of the starts with which one start is compared.
MAX_CHECK_SWEEPS = 200
# Smallest probability of a state from which messages start.
MIN_START_PROBABILITY = 1e-6
# Sweeps to naive mean-field solutions and to states of low energy, which have a low temperature.
N_SWEEPS, COLD = 50, 1e-3


def options_of_checks(options):
    """Options of the mixtures with which one start is compared."""
    return BPOptions(
        n_starts=N_CHECKED_STARTS, rng=0, max_iter=MAX_CHECK_SWEEPS, tol=options.tol,
        n_threads=options.n_threads,
    )  # fmt: skip


def mixtures(options, n_rows, of_row):
    """The `Beliefs` of mixtures of fixed points, and whether each row has a stable one.

    of_row(k) gives functions solve(options, messages), which solves row k from several messages,
    and starts(n, rng), which draws them.
    """
    rng, rows = check.generator(options.rng), []
    last = replace(options, n_starts=None, messages=False, pairwise=bool(options.pairwise))
    first = replace(last, messages=True, pairwise=False)

    def move(points):
        messages = points.messages
        return (messages + SPREAD * rng.standard_normal(messages.shape)).astype(messages.dtype)

    for k in range(n_rows or 1):
        solve, starts = of_row(k)
        solves = partial(solve, first), partial(solve, last)
        mixed, solutions, stable = mixed_row(*solves, starts(options.n_starts, rng), move)
        rows.append((mixed, solutions._replace(fixed_points=None), stable))
    result, stable = joined_rows(rows, n_rows is None)
    if options.pairwise == "mean" and n_rows is not None:
        result = with_changes(result, pairwise=result.pairwise.mean(0))
    return result, stable


def random_probabilities(n_starts, n_units, rng):
    """Probabilities of 1 of two-valued units to start from: states, each with its opposite.

    Some starts have few units that are 1 and some have many, so that phases are found that differ
    in the sum of all units.
    """
    half = -(-n_starts // 2)
    states = rng.random((half, n_units)) < rng.random((half, 1))
    return np.stack([states, ~states], 1).reshape(-1, n_units)[:n_starts].astype(np.float64)


def relaxed(p, middle, step, rng):
    """Probabilities to start from: a third nearer to the middle, a third each at solutions.

    step(p, temperature) is a sweep of naive mean field.
    """
    # Opposites are one after another, and so are of the same kind.
    kinds = np.arange(len(p)) // 2 % 3
    for kind, temperature in ((1, 1.0), (2, COLD)):
        x = p[kinds == kind]
        for _ in range(N_SWEEPS):
            x = step(x, temperature)
        p[kinds == kind] = x
    random = kinds == 0
    p[random] += (middle - p[random]) * rng.random((random.sum(), 1))
    return p, kinds


def starts_of_layers(units, n_starts, rng):
    """Log-messages from visible to hidden `BinaryUnits`, the first without preference."""
    weights, (b, c) = units.weights(), units.fields

    def step(x, temperature):
        hidden = sigmoid((c + x @ weights) / temperature)
        return sigmoid((b + hidden @ weights.T) / temperature)

    p = random_probabilities(n_starts - 1, len(weights), rng)
    p, _ = relaxed(p, 0.5, step, rng)
    p = np.clip(p, MIN_START_PROBABILITY, 1 - MIN_START_PROBABILITY)[:, :, None]
    messages = np.logaddexp(np.log(1 - p), np.log(p) + weights)
    return np.concatenate([weights[None] / 2, messages])
