"""NumPy twin of `fastmf.kernels.mean_field.relaxed_bp`, a row at a time.

The messages into a layer are arrays (sources, units).
"""

import numpy as np

from fastmf._outcomes import (
    CONVERGED,
    DIVERGED,
    MAX_DAMPING,
    MEAN_ROUNDING,
    OUT_OF_ITERATIONS,
    SMALLEST_NORMAL,
    VAR_ROUNDING,
    WINDOW_SWEEPS,
)
from fastmf.reference.units import log_partition as log_partition_of
from fastmf.reference.units import moments


class Measures:
    """Largest changes in a sweep: see `fastmf.kernels.mean_field.relaxed_bp`."""

    def __init__(self):
        self.marginal = self.mean = self.var = self.scale = self.effect = self.var_effect = 0.0
        self.finite = True

    def add(self, **changes):
        """Replace measures by the largest of these values, if larger."""
        for name, values in changes.items():
            setattr(self, name, max(getattr(self, name), float(abs(values).max())))

    def residual(self):
        """Return the largest change of a mean or variance."""
        return max(self.marginal, self.mean, self.var)

    def converged(self, damping, settings):
        """Return whether marginal means, and whether all measures, have converged."""
        rounding = MEAN_ROUNDING * settings.resolution * self.scale
        var_tol = max(settings.tol, VAR_ROUNDING * settings.resolution)
        steepness = (1 + damping) / (1 - damping)
        settled = steepness * self.marginal <= max(settings.tol, rounding)
        sent = steepness * self.mean <= max(rounding, var_tol)
        small = self.marginal <= rounding or self.effect <= var_tol
        still = steepness * self.var <= var_tol and self.var_effect <= var_tol
        return settled, settled and sent and still and small


def _tilts(layer, mean, var, external):
    units = slice(layer.start, layer.start + layer.couplings.shape[1])
    field, precision = external
    b = field[units] + (layer.couplings * mean).sum(0)
    return b, precision[units] - (layer.couplings**2 * var).sum(0)


def _cavities(layer, mean, var, b, a):
    return b - layer.couplings * mean, a + layer.couplings**2 * var


def _update(layer, messages, external, damping, state, damped):
    """Update moments and tilts of a layer; return its messages, None if moments do not exist."""
    units = slice(layer.start, layer.start + layer.couplings.shape[1])
    b, a = _tilts(layer, *messages, external)
    mean, var = moments(layer.units.prior, b, a)
    if not np.isfinite([mean, var]).all():
        return None
    state[:, units] = mean, var, b, a
    damped[:, units] = damping * damped[:, units] + (1 - damping) * np.stack([b, a])
    outgoing = moments(layer.units.prior, *_cavities(layer, *messages, *damped[:, units]))
    return np.stack([x.T for x in outgoing])


def _measure(measures, layer, old, state, sent, damping, precision):
    """Add the changes of a layer and of its messages to the measures of a sweep."""
    units = slice(layer.start, layer.start + layer.couplings.shape[1])
    change, var_change, _, _ = state[:, units] - old[:, units]
    mean, var, _, a = state[:, units]
    # Changes of variances above 1 are relative, changes of means are in standard deviations.
    scale = np.maximum(1, var)
    measures.add(marginal=change / np.sqrt(scale), var=var_change / scale)
    measures.add(scale=np.maximum(abs(mean) / np.sqrt(scale), np.minimum(1, var)))
    measures.add(effect=change**2 / np.maximum(var, SMALLEST_NORMAL))
    measures.add(var_effect=((a - precision[units]) * var_change) ** 2)
    mean_change, var_change = (new - old for new, old in zip(*sent, strict=True))
    undamped = 1 - damping
    measures.add(mean=mean_change / undamped / np.sqrt(scale)[:, None])
    measures.add(var=var_change / undamped / scale[:, None])


def _bethe_terms(layer, messages, external):
    b, a = _tilts(layer, *messages, external)
    cavity_tilts = _cavities(layer, *messages, b, a)
    of_marginals, cavities = (
        log_partition_of(layer.units.prior, *tilts).sum(dtype=np.float64)
        for tilts in ((b, a), cavity_tilts)
    )
    return of_marginals - 0.5 * (len(layer.couplings) * of_marginals - cavities)


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
            zero = state.dtype.type(0)
            messages = _update(first, messages, external, zero, state.copy(), state[2:].copy())
            total += _bethe_terms(second, messages, external)
            log_partition[row] = total if first.start != second.start else 0.5 * total


def _iterate(first, second, settings, external, row, record, messages):
    state, dtype = record.state[:, row], record.state.dtype.type
    damping, min_change, last_min_change = dtype(settings.damping), np.inf, np.inf
    n, damped = first.couplings.shape[1], state[2:].copy()
    start = state[:2, first.start : first.start + n]
    # The last messages of each of the two layers.
    sent = [np.repeat(start[:, :, None], len(first.couplings), axis=2), messages]
    for sweep in range(1, settings.max_iter + 1):
        measures, old_share = Measures(), damping if sweep > 1 else dtype(0)
        for k, layer in enumerate((first, second)):
            old = state.copy()
            new = _update(layer, messages, external, old_share, state, damped)
            measures.finite = new is not None
            if new is None:
                break
            _measure(measures, layer, old, state, (new, sent[k]), old_share, external[1])
            sent[k] = messages = new
        if len(record.history):
            record.history[row, sweep - 1] = measures.residual()
        settled, converged = measures.converged(float(old_share), settings)
        record.n_iter[row], record.residual[row] = sweep, measures.residual()
        if not measures.finite or converged:
            break
        min_change = min(min_change, measures.residual() if settled else measures.marginal)
        if sweep % WINDOW_SWEEPS == 0:
            slowest = 1.0 if settled else 0.7
            if settings.adaptive and min_change > slowest * last_min_change:
                damping = min((1 + damping) / 2, dtype(MAX_DAMPING))
            last_min_change, min_change = min_change, np.inf
    if not measures.finite:
        return messages, DIVERGED
    return messages, CONVERGED if converged else OUT_OF_ITERATIONS
