"""Relaxed belief propagation in NumPy, a row at a time."""

import numpy as np

from fastmf._outcomes import CONVERGED, DIVERGED, OUT_OF_ITERATIONS

WINDOW, STRONGEST_DAMPING = 16, 0.97


def _fields(side, mean, var, field, precision):
    units = slice(side.start, side.start + side.couplings.shape[1])
    b = field[units] + (side.couplings * mean).sum(0)
    return b, precision[units] - (side.couplings**2 * var).sum(0)


def _cavities(side, mean, var, b, a):
    return b - side.couplings * mean, a + side.couplings**2 * var


def _visit(side, messages, field, precision, damping, state):
    units = slice(side.start, side.start + side.couplings.shape[1])
    b, a = _fields(side, *messages, field, precision)
    mean, var = side.prior.moments(b, a)
    change = abs(mean - state[0, units]).max()
    if not np.isfinite([mean, var]).all():
        return messages, change, False
    state[:2, units] = mean, var
    state[2:, units] = damping * state[2:, units] + (1 - damping) * np.stack([b, a])
    answers = side.prior.moments(*_cavities(side, *messages, *state[2:, units]))
    return np.stack([x.T for x in answers]), change, True


def _bethe(side, messages, field, precision):
    b, a = _fields(side, *messages, field, precision)
    whole = side.prior.log_partition(b, a).sum(dtype=np.float64)
    without = side.prior.log_partition(*_cavities(side, *messages, b, a)).sum(dtype=np.float64)
    return whole - 0.5 * (len(side.couplings) * whole - without)


def relaxed_bp(first, second, course, field, precision, queue, record, log_partition):
    """Sweep all rows to fixed points."""
    dtype = record.state.dtype.type
    n_source, n_here = first.couplings.shape
    sources = slice(first.source, first.source + n_source)
    for row in range(len(log_partition)):
        outside = field[row % len(field)], precision[row % len(precision)]
        state = record.state[:, row]
        messages = np.repeat(state[:2, sources, None], n_here, axis=2)
        damping, best, before = dtype(course.damping), np.inf, np.inf
        for sweep in range(1, course.max_iter + 1):
            share = damping if sweep > 1 else dtype(0)
            messages, change, finite = _visit(first, messages, *outside, share, state)
            if finite:
                messages, more, finite = _visit(second, messages, *outside, share, state)
                change = max(change, more)
            if len(record.history):
                record.history[row, sweep - 1] = change
            if not finite or change <= max(course.tol, 4 * course.resolution * abs(state[0]).max()):
                break
            best = min(best, change)
            if sweep % WINDOW == 0:
                if course.adaptive and best > 0.7 * before:
                    damping = min((1 + damping) / 2, dtype(STRONGEST_DAMPING))
                before, best = best, np.inf
        done = change <= max(course.tol, 4 * course.resolution * abs(state[0]).max())
        record.status[row] = (CONVERGED if done else OUT_OF_ITERATIONS) if finite else DIVERGED
        record.n_iter[row], record.residual[row] = sweep, change
        if finite:
            total = _bethe(first, messages, *outside)
            messages, *_ = _visit(first, messages, *outside, dtype(0), state.copy())
            total += _bethe(second, messages, *outside)
            log_partition[row] = total if first.start != second.start else 0.5 * total
