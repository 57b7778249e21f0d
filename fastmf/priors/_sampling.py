"""Quantiles of Gaussians of either curvature on an interval, by the panels of their quadrature.

A probability is that of one of the two panels (see `fastmf.priors._quadrature`), in which the part
t of its width is wanted up to which the integral of exp(-linear t - quadratic t^2) is a given one.
It is found by Newton's method, or bisection where that would leave the bracket, for many units at
once.
"""

import numpy as np

from fastmf._jit.intrinsics import row, smaller, widest_vectors
from fastmf._jit.kernel import REORDER, compilable, kernel
from fastmf._threads.interrupts import next_task
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.priors import _quadrature
from fastmf.priors._quadrature import (
    ARGUMENTS,
    NODE_WEIGHTS,
    NODES,
    NODES_PER_PASS,
    PANEL_SUMS,
    PANEL_UNITS,
    POINT_SUMS,
    RESULTS,
)
from fastmf.special import clip, exp, exp_of_small, log_of_normal, where, widen

# Draws of one task of a thread, and multiply-adds that take as long as one.
TASK_DRAWS, COST = 1024, 5_000
# Newton's method takes a few steps; bisection alone would take 50.
MAX_QUANTILE_STEPS = 60
# Where `fill_quantiles` finds probabilities, and leaves quantiles.
PROBABILITIES = ARGUMENTS


def quantile(field, precision, lower, upper, tilt, u):
    """Quantiles of the density proportional to exp((field + b) x - (precision + a) x^2 / 2)."""
    tilted = np.broadcast_arrays(*map(widen, (field, precision, lower, upper, *tilt, u)))
    arrays = [np.ascontiguousarray(p).ravel() for p in tilted]
    field, precision, lower, upper, b, a, u = arrays
    infinite = _quadrature.diverges(field + b, precision + a, lower, upper)
    if infinite.any():
        i = np.argmax(infinite)
        raise ValueError(
            "sample: precision + a must be positive where a bound is infinite, and (field + b) / "
            f"(precision + a) at most {_quadrature.MAX_BOUND:g} in size, got precision + a = "
            f"{precision[i] + a[i]:g} and field + b = {field[i] + b[i]:g} on [{lower[i]:g}, "
            f"{upper[i]:g}]."
        )
    slab = _quadrature.Slab(*arrays[:4], _quadrature.address_per_unit(len(u)))
    out, queue = np.empty_like(u), np.zeros(1, np.int64)
    n_workers = workers_for(-(-out.size // TASK_DRAWS), COST * out.size)
    in_parallel(_invert, (slab, b, a, u, queue, out), n_workers)
    return out.reshape(tilted[0].shape)


@kernel
def _invert(slab, b, a, u, queue, out):
    """Fill in the quantiles of tilted densities."""
    first = next_task(queue) * TASK_DRAWS
    while first < out.shape[0]:
        last = smaller(first + TASK_DRAWS, out.shape[0])
        draw_units(slab, first, b[first:last], a[first:last], u[first:last], out[first:last])
        first = next_task(queue) * TASK_DRAWS


@kernel(mode="merged")
def draw_units(slab, start, b, a, u, out):
    """Fill in the quantiles of the units `start`, ... tilted by `b` and `a`, inside kernels."""
    memory = _quadrature.block_memory()
    for first in range(0, b.shape[0], PANEL_UNITS):
        n = smaller(PANEL_UNITS, b.shape[0] - first)
        _quadrature.integrate_units(slab, start, b, a, first, n, memory)
        for i in range(n):
            memory[PROBABILITIES + i] = u[first + i]
        fill_quantiles(memory, n)
        for i in range(n):
            out[first + i] = memory[PROBABILITIES + i]


@compilable(mode="inner", fastmath=REORDER)
def _add_nodes(first, t, linear, quadratic, integral):
    """Add NODES_PER_PASS nodes of the integral of exp(-linear x - quadratic x^2) from 0 to t."""
    widest_vectors()
    for i in range(t.shape[0]):
        total = 0.0
        for k in range(NODES_PER_PASS):
            x = t[i] * NODES[first + k]
            total += NODE_WEIGHTS[first + k] * exp_of_small(-(linear[i] + quadratic[i] * x) * x)
        integral[i] += t[i] * total


@compilable(mode="inline")
def _start(fraction, linear, quadratic):
    """The solution t of linear t + quadratic t^2 = E, for E exponentially distributed below 1."""
    drop = -log_of_normal(1.0 - fraction * (1.0 - exp(-(linear + quadratic))))
    square = linear * linear + 4.0 * quadratic * drop
    root = linear + np.sqrt(where(square > 0.0, square, 0.0))
    return clip(where(root > 1e-3, 2.0 * drop / (root + 1e-300), fraction), 0.0, 1.0)


@compilable(mode="inline")
def _step(t, low, high, excess, linear, quadratic):
    """A step of Newton's method, or of bisection, where an integral is too large, and the bracket.

    Bisection where the step would leave the bracket.
    """
    low, high = where(excess > 0.0, low, t), where(excess > 0.0, t, high)
    new = t - excess / exp_of_small(-(linear + quadratic * t) * t)
    return where((low <= new) & (new <= high), new, 0.5 * (low + high)), low, high


@kernel(mode="inner")
def fill_quantiles(memory, n):
    """Replace probabilities by quantiles; by NaN where the integral of the density is infinite."""
    u = PANEL_UNITS
    value, lower, upper = (
        row(memory, (PROBABILITIES,), n),
        row(memory, (ARGUMENTS + 2 * u,), n),
        row(memory, (ARGUMENTS + 3 * u,), n),
    )
    t, low, high, goal = (
        row(memory, (RESULTS,), n),
        row(memory, (RESULTS + u,), n),
        row(memory, (RESULTS + 2 * u,), n),
        row(memory, (RESULTS + 3 * u,), n),
    )
    widest_vectors()
    linear, quadratic = row(memory, (PANEL_SUMS,), n), row(memory, (PANEL_SUMS + u,), n)
    reach, position = row(memory, (PANEL_SUMS + 4 * u,), n), row(memory, (PANEL_SUMS + 8 * u,), n)
    panels, sums = row(memory, (PANEL_SUMS,), 13 * u), row(memory, (POINT_SUMS,), 6 * u)
    for i in range(n):
        mass1 = panels[6 * u + i] * sums[i]
        mass2 = panels[7 * u + i] * sums[3 * u + i]
        wanted = value[i] * (mass1 + mass2)
        first = wanted < mass1
        fraction = clip(where(first, wanted, wanted - mass1) / where(first, mass1, mass2), 0.0, 1.0)
        linear[i] = where(first, panels[i], panels[2 * u + i])
        quadratic[i] = where(first, panels[u + i], panels[3 * u + i])
        reach[i] = where(first, panels[4 * u + i], panels[5 * u + i])
        position[i] = where(first, panels[8 * u + i], panels[9 * u + i])
        goal[i] = fraction * where(first, sums[i], sums[3 * u + i])
        t[i], low[i], high[i] = _start(fraction, linear[i], quadratic[i]), 0.0, 1.0
    excess = row(memory, (POINT_SUMS,), n)
    for _ in range(MAX_QUANTILE_STEPS):
        moving = 0
        for i in range(n):
            excess[i] = -goal[i]
        for node in range(0, len(NODES), NODES_PER_PASS):
            _add_nodes(node, t, linear, quadratic, excess)
        for i in range(n):
            new, low[i], high[i] = _step(t[i], low[i], high[i], excess[i], linear[i], quadratic[i])
            # The error of a Newton step is its size squared, times a derivative of 2 MAX_DROP.
            moving += 1 if abs(new - t[i]) > 1e-8 * t[i] else 0
            t[i] = new
        if moving == 0:
            break
    for i in range(n):
        x = panels[10 * u + i] + (position[i] + reach[i] * t[i])
        value[i] = where(panels[11 * u + i] > 0.0, np.nan, clip(x, lower[i], upper[i]))
