"""Exact draws from Gaussians of either curvature on an interval."""

import math

import numpy as np
from numba.extending import register_jitable

from fastmf._intrinsics import fetch_and_increment, smaller
from fastmf._numba import INNER, REORDER, kernel
from fastmf._threads import in_parallel, workers_for
from fastmf.priors import _quadrature
from fastmf.priors._quadrature import NODES, WEIGHTS
from fastmf.special import exp_of_small, widen

# Draws of one task of a thread, and multiply-adds that take as long as one.
TASK_DRAWS, COST = 1024, 20_000
# Newton's method takes a few steps; bisection alone would take 50.
MAX_STEPS = 60


def draw(field, precision, lower, upper, b, a, rng):
    """Draws from the density proportional to exp((field + b) x - (precision + a) x^2 / 2).

    Raises
    ------
    ValueError
        If the density cannot be normalised.
    """
    tilted = np.broadcast_arrays(*(widen(p) for p in (field, precision, lower, upper, b, a)))
    field, precision, lower, upper, b, a = (np.ascontiguousarray(p).ravel() for p in tilted)
    infinite = _quadrature.diverges(field + b, precision + a, lower, upper)
    if infinite.any():
        i = np.argmax(infinite)
        raise ValueError(
            "sample: precision + a must be positive where a bound is infinite, and (field + b) / "
            f"(precision + a) at most {_quadrature.MAX_BOUND:g} in size, got precision + a = "
            f"{precision[i] + a[i]:g} and field + b = {field[i] + b[i]:g} on [{lower[i]:g}, "
            f"{upper[i]:g}]."
        )
    draws, queue = rng.random(field.shape), np.zeros(1, np.int64)
    n_workers = workers_for(-(-draws.size // TASK_DRAWS), COST * draws.size)
    in_parallel(_invert, (field, precision, lower, upper, (b, a), queue, draws), n_workers)
    return draws.reshape(tilted[0].shape)


@kernel
def _invert(field, precision, lower, upper, tilt, queue, draws):
    """Replace each uniform number by the quantile of the tilted density at this probability.

    Parameters
    ----------
    field, precision, lower, upper : array of shape (n_draws,)
    tilt : pair of arrays of shape (n_draws,)
        b and a.
    queue : int64 array of shape (1,)
        Next group of draws; shared by all threads that call this.
    draws : array of shape (n_draws,)
        Changed in place.
    """
    first = fetch_and_increment(queue) * TASK_DRAWS
    while first < draws.shape[0]:
        last = smaller(first + TASK_DRAWS, draws.shape[0])
        _invert_some(field, precision, lower, upper, tilt, (first, last), draws)
        first = fetch_and_increment(queue) * TASK_DRAWS


@kernel(merged=True)
def _invert_some(field, precision, lower, upper, tilt, here, draws):
    b, a = tilt
    for i in range(here[0], here[1]):
        p = _quadrature.panels(field[i], precision[i], lower[i], upper[i], b[i], a[i])
        sums = _quadrature.sums_over(p)
        mass1, mass2 = p.weight1 * sums[0], p.weight2 * sums[3]
        target = draws[i] * (mass1 + mass2)
        if target < mass1:
            t = _quantile(target / mass1, sums[0], p.linear1, p.quadratic1)
            x = p.anchor + (p.position1 + p.reach1 * t)
        else:
            t = _quantile((target - mass1) / mass2, sums[3], p.linear2, p.quadratic2)
            x = p.anchor + (p.position2 + p.reach2 * t)
        draws[i] = min(max(x, lower[i]), upper[i])


@register_jitable(**INNER, fastmath=REORDER)
def _integral(t, linear, quadratic):
    """Integral of exp(-linear t - quadratic t^2) from 0 to t."""
    total = 0.0
    for k in range(len(NODES)):
        x = t * NODES[k]
        total += WEIGHTS[k] * exp_of_small(-(linear + quadratic * x) * x)
    return t * total


@register_jitable(**INNER)
def _quantile(probability, total, linear, quadratic):
    """The t up to which the integral of exp(-linear t - quadratic t^2) is probability * total.

    Newton steps, or bisection where they would leave the bracket. The start solves
    linear t + quadratic t^2 = E for E of an exponential distribution cut at 1.
    """
    low, high = 0.0, 1.0
    drop = -math.log1p(probability * math.expm1(-(linear + quadratic)))
    root = math.sqrt(max(linear * linear + 4.0 * quadratic * drop, 0.0))
    t = 2.0 * drop / (linear + root) if linear + root > 1e-3 else probability
    t = min(t, 1.0)
    for _ in range(MAX_STEPS):
        excess = _integral(t, linear, quadratic) - probability * total
        if excess > 0.0:
            high = t
        else:
            low = t
        new = t - excess / exp_of_small(-(linear + quadratic * t) * t)
        if not low <= new <= high:
            new = 0.5 * (low + high)
        # The error of a Newton step is its size squared, times a derivative of at most 2 MAX_DROP.
        if abs(new - t) <= 1e-8 * t:
            return new
        t = new
    return t
