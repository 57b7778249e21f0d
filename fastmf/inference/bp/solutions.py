"""Distinct fixed points of sum-product from many starts, and their mixture.

Fixed points s with Bethe log-partitions B_s are treated as phases that hardly overlap, with weights
w_s = exp(B_s) / sum_t exp(B_t): the log-partition is log sum_s exp(B_s); marginals are averages.

Starts are neutral messages, and messages computed from probabilities of states: random ones, naive
mean-field solutions and states of low energy, each with its opposite where units have two values.
Each fixed point is perturbed and solved again. One that is no minimum of the Bethe free energy is
unstable, and is left out.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from fastmf._common import arguments as check
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.fixed_point import with_changes
from fastmf.inference.mean_field.solutions import N_CHECKED_STARTS, SPREAD, joined_rows, mixed_row
from fastmf.special import sigmoid

# Maximum number of sweeps of alternative methods in checks. It limits the time: the tests have the
# same verdicts with half and twice this number.
MAX_CHECK_SWEEPS = 200
# Smallest probability of a state from which messages start.
MIN_START_PROBABILITY = np.finfo(np.float32).eps
# Sweeps of naive mean field that make starts, for speed, and the temperature for states of low
# energy, at which these are nearly certain.
N_SWEEPS, COLD = 50, 1e-3


def mixture_of_checks(solve, options, model, **tilts):
    """Solve a model from the starts with which the checks compare answers."""
    starts = {"n_starts": N_CHECKED_STARTS, "rng": 0, "max_iter": MAX_CHECK_SWEEPS}
    options = BPOptions(**starts, tol=options.tol, n_threads=options.n_threads)
    return solve(options, model, **tilts)


def mixtures(options, prior, n_rows, of_row):
    """Return the `Beliefs` of mixtures of fixed points, and whether each row has a stable one.

    of_row(k) returns functions solve(options, messages), which solves row k from several messages,
    and starts(n, rng), which draws such messages.
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
        mixed, solutions, stable = mixed_row(prior, *solves, starts(options.n_starts, rng), move)
        rows.append((mixed, solutions._replace(fixed_points=None), stable))
    result, stable = joined_rows(rows, n_rows is None)
    if options.pairwise == "mean" and n_rows is not None:
        result = with_changes(result, pairwise=result.pairwise.mean(0))
    return result, stable


def random_probabilities(n_starts, n_units, rng):
    """Draw starting probabilities of two-valued units: random states, each with its opposite.

    The fraction of units that are 1 is random, too, so that phases that differ in the sum of all
    units are reached.
    """
    half = -(-n_starts // 2)
    states = rng.random((half, n_units)) < rng.random((half, 1))
    return np.stack([states, ~states], 1).reshape(-1, n_units)[:n_starts].astype(np.float64)


def relaxed(p, middle, step, rng):
    """Move a third of the starts towards the middle, and a third each to mean-field solutions.

    step(p, temperature) is a sweep of naive mean field, here at temperature 1 and a low one.
    """
    # A state and its opposite are adjacent, and of the same kind.
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
    """Return starting log-messages from visible to hidden `BinaryUnits`, the first neutral."""
    weights, (b, c) = units.weights(), units.fields

    def step(x, temperature):
        hidden = sigmoid((c + x @ weights) / temperature)
        return sigmoid((b + hidden @ weights.T) / temperature)

    p = random_probabilities(n_starts - 1, len(weights), rng)
    p, _ = relaxed(p, 0.5, step, rng)
    p = np.clip(p, MIN_START_PROBABILITY, 1 - MIN_START_PROBABILITY)[:, :, None]
    messages = np.logaddexp(np.log(1 - p), np.log(p) + weights)
    return np.concatenate([weights[None] / 2, messages])
