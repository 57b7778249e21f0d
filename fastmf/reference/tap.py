"""NumPy twin of `fastmf.kernels.tap`: all rows at once, less those that are finished."""

import numpy as np

from fastmf._outcomes import CONVERGED, CYCLING, DIVERGED, OUT_OF_ITERATIONS, RUNNING
from fastmf.priors._protocol import take
from fastmf.reference.product import unpacked

WINDOW = 16
STRONGEST_DAMPING = 0.97
ONSET = 0.05
MOMENTUM = 0.9


class Rows:
    """The rows still being swept: `index` says which, every other array holds just these."""

    def __init__(self, settings, tilt, record):
        n_rows, n_units = record.state.shape[1:]
        self.index = np.arange(n_rows)
        self.mean, self.var, self.b, self.a = (part.copy() for part in record.state)
        self.b[:], self.a[:] = 0, 0
        self.step = np.zeros_like(self.mean)
        self.third = np.zeros_like(self.mean) if settings.order == 3 else self.mean[:, :0]
        self.field, self.precision, self.clamped = (
            np.broadcast_to(part, (n_rows, n_units)).copy() if len(part) == 1 else part
            for part in tilt
        )
        self.sweep = np.zeros(n_rows, int)
        self.accelerated, self.oscillating = np.zeros((2, n_rows), bool)
        self.damping, self.momentum = np.full(n_rows, settings.damping), np.zeros(n_rows)
        self.last_size, self.swing = np.zeros(n_rows), np.zeros(n_rows)
        self.best, self.best_before = np.full(n_rows, np.inf), np.full(n_rows, np.inf)
        self.start_sweep()

    def start_sweep(self):
        """Forget what was measured in the last sweep."""
        n = len(self.index)
        self.finite = np.ones(n, bool)
        self.residual, self.scale, self.size, self.along = np.zeros((4, n))

    def keep(self, rows):
        """Leave out all but these rows."""
        for name, part in vars(self).items():
            if len(part) == len(rows):
                setattr(self, name, part[rows])


def tap(layers, visits, block, settings, tilt, seats, queue, record):
    """Sweep every row of `record` to its fixed point of the mean-field equations."""
    dense = [
        [unpacked(panels, layer.n_units) if len(panels) else None for panels in layer[4:7]]
        for layer in layers
    ]
    stretches = _stretches(layers, visits)
    rows = Rows(settings, tilt, record)
    if settings.order == 3:
        for layer in layers:
            units = slice(layer.start, layer.start + layer.n_units)
            rows.third[:, units] = layer.prior.third_cumulant(rows.mean[:, units])[0]
    n_sweeps = 0
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        while len(rows.index):
            rows.start_sweep()
            # The second sweep is the first with variances everywhere.
            fresh = n_sweeps % settings.onsager_every == 0 or n_sweeps == 1
            for which, first, last in stretches:
                layer = layers[which]
                if settings.one_by_one:
                    for unit in range(first, last):
                        _visit(layer, dense[which], rows, unit, unit + 1, fresh, settings)
                else:
                    _visit(layer, dense[which], rows, first, last, fresh, settings)
            status = _judge(rows, fresh, settings, record)
            _leave(rows, status, record)
            rows.keep(status == RUNNING)
            n_sweeps += 1


def _stretches(layers, visits):
    """The visits as ranges of units, neighbours joined where that changes nothing."""
    joined = []
    for which, first_panel, last_panel in visits:
        layer = layers[which]
        width = layer.couplings.shape[2]
        first, last = first_panel * width, min(last_panel * width, layer.n_units)
        sees_itself = layer.source < layer.start + layer.n_units and (
            layer.start < layer.source + layer.couplings.shape[1]
        )
        if joined and joined[-1][0] == which and joined[-1][2] == first and not sees_itself:
            joined[-1][2] = last
        else:
            joined.append([which, first, last])
    return joined


def _visit(layer, dense, rows, first, last, fresh, settings):
    """New moments of the layer's units first, ..., last - 1 in all rows."""
    couplings, squares, cubes = dense
    prior = take(layer.prior, slice(first, last))
    units = slice(layer.start + first, layer.start + last)
    source = slice(layer.source, layer.source + len(couplings))
    mean, var = rows.mean[:, units], rows.var[:, units]
    a, b = rows.a[:, units], rows.b[:, units]

    if settings.order >= 2 and fresh:
        np.matmul(rows.var[:, source], squares[:, first:last], out=a)
        np.negative(a, out=a)
    np.matmul(rows.mean[:, source], couplings[:, first:last], out=b)
    b += a * mean
    if settings.order == 3:
        cubic = rows.third[:, source] @ cubes[:, first:last]
        b += cubic * prior.third_cumulant(mean)[1] / 6
    if len(rows.field):
        b += rows.field[:, units]
    tilt_a = a + rows.precision[:, units] if len(rows.precision) else a
    new_mean, new_var = prior.moments(b, tilt_a)
    if len(rows.clamped):
        held = rows.clamped[:, units]
        new_mean, new_var = np.where(held, mean, new_mean), np.where(held, var, new_var)

    ok = np.isfinite(new_mean).all(1) & np.isfinite(new_var).all(1)
    rows.finite &= ok
    new_mean = np.where(ok[:, None], new_mean, mean)
    new_var = np.where(ok[:, None], new_var, var)
    share = (1 - rows.damping)[:, None].astype(mean.dtype)
    implicit = (rows.accelerated | rows.oscillating)[:, None]
    share = np.where(implicit, share / (1 - a * new_var / 2), share)
    change = new_mean - mean
    np.maximum(rows.residual, abs(change).max(1), out=rows.residual)
    np.maximum(rows.scale, abs(new_mean).max(1), out=rows.scale)
    change *= share
    step = rows.step[:, units]
    rows.size += np.einsum("ij,ij->i", change, change)
    rows.along += np.einsum("ij,ij->i", change, step)
    step *= rows.momentum[:, None].astype(mean.dtype)
    step += change
    mean += change
    var += share * (new_var - var)
    if settings.order == 3:
        rows.third[:, units] = prior.third_cumulant(mean)[0]


def _judge(rows, fresh, settings, record):
    """Status of each row after a sweep; oscillating rows are damped, the others accelerated."""
    rows.sweep += 1
    residual = rows.residual
    if len(record.history):
        record.history[rows.index, rows.sweep - 1] = residual
    lengths = np.sqrt(rows.size * rows.last_size)
    cosine = np.divide(rows.along, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    rows.swing += 0.1 * (cosine - rows.swing)
    np.minimum(rows.best, residual, out=rows.best)

    rounding = 4 * settings.resolution * rows.scale
    converged = fresh & (residual <= np.maximum(settings.tol, rounding))
    spent = rows.sweep >= settings.max_iter
    cycling = (rows.swing < 0.9) & (rows.best > rows.best_before / 2)
    status = np.where(spent, np.where(cycling, CYCLING, OUT_OF_ITERATIONS), RUNNING)
    status = np.where(rows.finite, np.where(converged, CONVERGED, status), DIVERGED)

    window = rows.sweep % WINDOW == 0
    straight = np.where(rows.accelerated, 0.5, 0.9)
    stuck = (rows.best > 0.95 * rows.best_before) & (rows.swing < straight)
    swinging = (rows.best > 0.5 * rows.best_before) & (rows.swing < 0)
    if settings.adaptive:
        seen = window & (stuck | swinging)
        again = seen & (rows.oscillating | (settings.order < 2))
        stronger = np.minimum((1 + rows.damping) / 2, STRONGEST_DAMPING)
        rows.damping = np.where(again, stronger, rows.damping)
        rows.oscillating = rows.oscillating | seen
    rows.best_before = np.where(window, rows.best, rows.best_before)
    rows.best = np.where(window, np.inf, rows.best)

    momentum = rows.momentum
    rows.last_size = rows.size + momentum * (2 * rows.along + momentum * rows.last_size)
    rows.accelerated = (rows.sweep >= settings.accelerate_after) & (residual < ONSET)
    rows.momentum = np.where(rows.accelerated & (cosine > 0), (momentum + MOMENTUM) / 2, 0)
    part = np.where(status == RUNNING, rows.momentum, 0)
    rows.mean += part[:, None].astype(rows.mean.dtype) * rows.step
    return status


def _leave(rows, status, record):
    """Write the rows that have ended to the record."""
    ended = status != RUNNING
    index = rows.index[ended]
    for part, values in zip(record.state, (rows.mean, rows.var, rows.b, rows.a), strict=True):
        part[index] = values[ended]
    if len(rows.precision):
        record.state[3, index] += rows.precision[ended]
    record.status[index] = status[ended]
    record.n_iter[index] = rows.sweep[ended]
    record.residual[index] = rows.residual[ended]
