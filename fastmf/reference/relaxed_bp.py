"""NumPy twin of `fastmf.kernels.relaxed_bp`, a row at a time.

The message from unit j to unit i is a mean and a variance, the moments of j without the message of
i (its cavity):

    b_i = field_i + sum_j W_ij m_ji          b_ij = b_i - W_ij m_ji
    a_i = precision_i - sum_j W_ij^2 v_ji    a_ij = a_i + W_ij^2 v_ji
    (m_i, v_i) = moments(b_i, a_i)           (m_ij, v_ij) = moments(b_ij, a_ij)
    log Z = sum_i log Z_i - 1/2 sum_i sum_j (log Z_i - log Z_ij)

where index ij is the message from i to j. The messages into a layer are arrays (sources, units).
"""

import numpy as np

from fastmf._outcomes import CONVERGED, DIVERGED, OUT_OF_ITERATIONS
from fastmf.reference.units import log_partition as log_partition_of
from fastmf.reference.units import moments

# As in `fastmf.kernels.mean_field_types`, which a reference does not import.
WINDOW_SWEEPS, MAX_DAMPING = 16, 0.97


def _tilts(layer, mean, var, external):
    units = slice(layer.start, layer.start + layer.couplings.shape[1])
    field, precision = external
    b = field[units] + (layer.couplings * mean).sum(0)
    return b, precision[units] - (layer.couplings**2 * var).sum(0)


def _cavities(layer, mean, var, b, a):
    return b - layer.couplings * mean, a + layer.couplings**2 * var


def _update(layer, messages, external, damping, state):
    units = slice(layer.start, layer.start + layer.couplings.shape[1])
    b, a = _tilts(layer, *messages, external)
    mean, var = moments(layer.units.prior, b, a)
    change = abs(mean - state[0, units]).max()
    if not np.isfinite([mean, var]).all():
        return messages, change, False
    state[:2, units] = mean, var
    state[2:, units] = damping * state[2:, units] + (1 - damping) * np.stack([b, a])
    outgoing = moments(layer.units.prior, *_cavities(layer, *messages, *state[2:, units]))
    return np.stack([x.T for x in outgoing]), change, True


def _bethe_terms(layer, messages, external):
    b, a = _tilts(layer, *messages, external)
    cavity_tilts = _cavities(layer, *messages, b, a)
    whole, cavities = (
        log_partition_of(layer.units.prior, *tilts).sum(dtype=np.float64)
        for tilts in ((b, a), cavity_tilts)
    )
    return whole - 0.5 * (len(layer.couplings) * whole - cavities)


def relaxed_bp(first, second, settings, field, precision, work, record, log_partition):
    """Iterate all rows to fixed points."""
    n_source, n_units = first.couplings.shape
    sources = slice(first.source, first.source + n_source)
    for row in range(len(log_partition)):
        external = field[row % len(field)], precision[row % len(precision)]
        state = record.state[:, row]
        messages = np.repeat(state[:2, sources, None], n_units, axis=2)
        messages, status = _iterate(first, second, settings, external, row, record, messages)
        record.status[row] = status
        if status != DIVERGED:
            total = _bethe_terms(first, messages, external)
            messages, *_ = _update(first, messages, external, state.dtype.type(0), state.copy())
            total += _bethe_terms(second, messages, external)
            log_partition[row] = total if first.start != second.start else 0.5 * total


def _iterate(first, second, settings, external, row, record, messages):
    state, dtype = record.state[:, row], record.state.dtype.type
    damping, min_change, last_min_change = dtype(settings.damping), np.inf, np.inf
    for sweep in range(1, settings.max_iter + 1):
        damping_here = damping if sweep > 1 else dtype(0)
        messages, change, finite = _update(first, messages, external, damping_here, state)
        if finite:
            messages, more, finite = _update(second, messages, external, damping_here, state)
            change = max(change, more)
        if len(record.history):
            record.history[row, sweep - 1] = change
        converged = change <= max(settings.tol, 4 * settings.resolution * abs(state[0]).max())
        record.n_iter[row], record.residual[row] = sweep, change
        if not finite or converged:
            break
        min_change = min(min_change, change)
        if sweep % WINDOW_SWEEPS == 0:
            if settings.adaptive and min_change > 0.7 * last_min_change:
                damping = min((1 + damping) / 2, dtype(MAX_DAMPING))
            last_min_change, min_change = min_change, np.inf
    if not finite:
        return messages, DIVERGED
    return messages, CONVERGED if converged else OUT_OF_ITERATIONS
