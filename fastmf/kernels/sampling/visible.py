"""Gibbs sampling and annealing of fully visible machines of two-valued units and groups of states.

At beta the log-weight of a state is that of the uncoupled units plus

    beta x'Jx / 2 + (1 - beta) c.x,

so that a step from beta to beta' adds (beta' - beta) (x'Jx / 2 - c.x) to the log importance weight,
and a sweep at beta' follows, one unit or group after the other. The fields J x are kept, and change
only where a unit does. A unit is drawn from a uniform number of its own: see
`fastmf.kernels.sampling.random`.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, larger, row
from fastmf._jit.kernel import REORDER, kernel
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.linear.work import new_work
from fastmf.kernels.sampling.random import row_key, uniform
from fastmf.special import exp

# Planes of scratch memory.
FIELDS, UNIT_LOGS, CHANCES = range(3)


class VisibleUnits(NamedTuple):
    """Columns of data: two-valued units, and groups of states."""

    # int64 (n_columns + 1,): first unit of each column; of a group it has more than one
    first: np.ndarray
    low: np.ndarray  # float64 (n_units,): the two values; 0 and 1 in groups
    high: np.ndarray  # float64 (n_units,)
    field: np.ndarray  # float64 (n_units,): fields of the uncoupled units


class TiltedBetas(NamedTuple):
    """The distributions between uncoupled units and the model."""

    tilt: np.ndarray  # float64 (n_units,): the tilt c of the uncoupled units
    # float64 (n_steps + 1,): rising or falling, or all 1 for Gibbs sampling of the model
    betas: np.ndarray


def visible_work(n_units, n_workers=1):
    """Memory of `anneal_visible` for some threads."""
    return new_work(np.zeros((n_workers, 3, n_units)))


@kernel(mode="inner", fastmath=REORDER)
def _add_row(couplings, i, change, fields):
    """Add to the fields what a change of unit i adds."""
    n = fields.shape[0]
    values = row(couplings, (i, 0), n)
    for j in range(n):
        fields[j] += change * values[j]


@kernel(mode="inner")
def _set_fields(couplings, x, fields):
    """The fields of all units, J x."""
    for i in range(x.shape[0]):
        fields[i] = 0.0
    for i in range(x.shape[0]):
        if x[i] != 0:
            _add_row(couplings, i, np.float64(x[i]), fields)


@kernel(mode="inner")
def _change(couplings, i, new, x, fields):
    """Give a unit its new value."""
    change = new - x[i]
    if change != 0:
        x[i] = new
        _add_row(couplings, i, change, fields)


@kernel(mode="inner")
def _set_probabilities(logs, out, start, end):
    """Write normalised exp(logs) of states."""
    top, total = logs[start], 0.0
    for a in range(start + 1, end):
        top = larger(top, logs[a])
    for a in range(start, end):
        out[a] = exp(logs[a] - top)
        total += out[a]
    for a in range(start, end):
        out[a] /= total


@kernel(mode="inner")
def _drawn(p, start, end, u):
    """The label whose cumulative probability is the first above a uniform number."""
    label, below = np.int64(0), p[start]
    while start + label + 1 < end and below <= u:
        label += 1
        below += p[start + label]
    return label


@kernel(mode="inner")
def _sweep(couplings, units, path, beta, key, x, memory):
    """Draw all columns of one chain in turn."""
    n = x.shape[0]
    fields, logs = row(memory, (FIELDS, 0), n), row(memory, (UNIT_LOGS, 0), n)
    p = row(memory, (CHANCES, 0), n)
    for c in range(units.first.shape[0] - 1):
        first, last = units.first[c], units.first[c + 1]
        u = uniform(key, first)
        for i in range(first, last):
            logs[i] = beta * fields[i] + (1 - beta) * path.tilt[i] + units.field[i]
        if last - first == 1:
            low, high = units.low[first], units.high[first]
            is_high = u * (1 + exp((low - high) * logs[first])) < 1
            _change(couplings, first, high if is_high else low, x, fields)
            continue
        _set_probabilities(logs, p, first, last)
        state = first + _drawn(p, first, last, u)
        for i in range(first, last):
            _change(couplings, i, 1.0 if i == state else 0.0, x, fields)


@kernel(mode="inner")
def _log_ratio(fields, tilt, x):
    """x'Jx / 2 - c.x of one chain."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * (fields[i] / 2 - tilt[i])
    return total


@kernel(views=True)
def anneal_visible(couplings, units, path, seeds, x, log_weights, work):
    """Take the chains in the queue along the path, and add up their log importance weights."""
    (scratch, queue), n = work, x.shape[1]
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= scratch.shape[0]:
        return
    memory = scratch[w]
    fields = row(memory, (FIELDS, 0), n)
    r = next_task(queue)
    while r < x.shape[0]:
        chain = row(x, (r, 0), n)
        _set_fields(couplings, chain, fields)
        for step in range(1, path.betas.shape[0]):
            if stopped(queue):
                return
            old, new = path.betas[step - 1], path.betas[step]
            log_weights[r] += (new - old) * _log_ratio(fields, path.tilt, chain)
            key = row_key(seeds[step - 1], 0, r)
            _sweep(couplings, units, path, new, key, chain, memory)
        r = next_task(queue)
