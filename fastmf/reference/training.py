"""NumPy twin of `fastmf.kernels.training`, where the phases are described."""

import numpy as np

from fastmf._intrinsics import view
from fastmf.priors._compiled import LOG_PARTITION
from fastmf.reference.ascent import ascend
from fastmf.reference.random import uniforms
from fastmf.reference.tap import tap
from fastmf.reference.units import log_partition, moments

# Rows of the statistics of units.
FIRST, SECOND, NONZERO = 4, 5, 6


def train(batches, parameters, solver, settings, statistics, scratch, queues, workers):
    """Take steps of learning, one for each row of `batches.rows`."""
    weights, width = parameters.weights, scratch.slab.shape[1]
    n_visible, layers = len(weights), solver.sweep.layers.of_model
    for step, seed in enumerate(batches.seeds):
        if parameters.diverged[0]:
            return
        X = _batch(batches, step, weights)
        fields = X @ weights
        mean, var = moments(layers[1].prior, fields, weights.dtype.type(0))
        of_data = np.hstack([X, mean]), np.hstack([0 * X, var]), fields
        states = statistics.model.state
        if not settings.persistent:
            states[:] = 0
            states[0, :, :n_visible] = X[np.arange(states.shape[1]) % len(X)]
        if settings.solved:
            tap(*solver, queues, statistics.model)
        else:
            _sample(weights, layers, settings, seed, states[0])
        by_fields = _ascend(weights, parameters, settings, of_data[0], states, statistics, layers)
        if settings.tilts_kept:
            _compare_averages(*of_data, states, statistics, solver.sweep.layers)
        else:
            _move_fields(by_fields, parameters, settings)
        _pack(weights, width, parameters.copies, settings.order)


def _batch(batches, step, weights):
    """The rows of data of one batch."""
    rows, n_visible = batches.rows[step], len(weights)
    if batches.data[0]:
        return view(batches.data[0], (rows.max() + 1, n_visible), weights)[rows]
    X, sparse = np.zeros((len(rows), n_visible), weights.dtype), batches.sparse
    for r, x in enumerate(X, step * len(rows)):
        stored = slice(sparse.ends[r - 1] if r else 0, sparse.ends[r])
        x[sparse.columns[stored]] = sparse.values[stored]
    return X


def _sample(weights, layers, settings, seed, states):
    """Samples of the visible units, and means of the hidden ones given these."""
    n_visible, zero = len(weights), weights.dtype.type(0)
    v, (visible, hidden) = states[:, :n_visible], (layer.prior for layer in layers)
    for sweep in range(settings.n_sweeps):
        for step, (low, high), prior, matrix in (
            (2 * sweep + 1, settings.values[1], hidden, weights),
            (2 * sweep + 2, settings.values[0], visible, weights.T),
        ):
            mean = moments(prior, v @ matrix, zero)[0]
            below = low + (high - low) * uniforms(seed, step, mean.shape) < mean
            v = np.where(below, high, low).astype(weights.dtype)
    states[:] = np.hstack([v, moments(hidden, v @ weights, zero)[0]])


def _ascend(weights, parameters, settings, of_data, states, statistics, layers):
    """The update of couplings; returns the gradient by the fields."""
    n_visible, of_model = len(weights), states[0]
    bounds = slice(None, n_visible), slice(n_visible, None)
    parts = [(of_data, 1 / len(of_data), 0), (of_model, -1 / len(of_model), 0)]
    if settings.order >= 2:
        parts.append((states[1], -1 / len(of_model), 1))
    if settings.order == 3:
        third = [
            layer.prior.third_cumulant(of_model[:, b])[0]
            for layer, b in zip(layers, bounds, strict=True)
        ]
        parts.append((np.hstack(third), -0.5 / len(of_model), 2))
    gradient = sum(
        scale * weights**power * (x[:, bounds[0]].T @ x[:, bounds[1]]) for x, scale, power in parts
    )
    statistics.units[FIRST] = of_data.mean(0) - of_model.mean(0)
    sizes = weights.shape
    by_fields = np.repeat(settings.tilts, sizes) * statistics.units[FIRST]
    offsets = settings.centred * np.repeat(settings.tilts[::-1], sizes) * of_data.mean(0)
    centring = [np.stack([offsets[b], by_fields[b]]) for b in bounds]
    row_sums = np.empty((2, n_visible), weights.dtype)
    ascend(
        weights, gradient, parameters.velocity, settings.ascent, centring, None, row_sums, weights
    )
    by_fields -= np.append(row_sums[0], offsets[bounds[0]] @ gradient)
    if not row_sums[1].max() < settings.max_weight**2:
        parameters.diverged[0] = 1
    return by_fields


def _move_fields(by_fields, parameters, settings):
    """The update of fields."""
    fields, velocity, limits = parameters.fields
    velocity *= settings.ascent.momentum
    velocity += settings.ascent.rate * by_fields
    np.clip(fields + velocity, -limits, limits, out=fields)


def _compare_averages(mean, var, fields, states, statistics, layers):
    """Differences between data and model of averages of x^2, and of whether x is not 0."""
    n_visible = layers.of_model[0].n_units
    of_model = states[1] + states[0] ** 2
    statistics.units[SECOND] = (var + mean**2).mean(0) - of_model.mean(0)
    for k, layer in enumerate(layers.of_model):
        if layers[k, LOG_PARTITION] == 0:
            continue
        here = slice(n_visible) if k == 0 else slice(n_visible, None)
        log_z = log_partition(layer.prior, states[2][:, here], states[3][:, here])
        of_data = mean[:, here] != 0
        if k == 1:
            of_data = -np.expm1(-log_partition(layer.prior, fields, fields.dtype.type(0)))
        statistics.units[NONZERO, here] = of_data.mean(0) + np.expm1(-log_z).mean(0)


def _pack(weights, width, copies, n_powers):
    """Fill in the packed copies of weights and of their powers."""
    for matrix, (*addresses, n_source, first) in zip((weights, weights.T), copies, strict=True):
        n_rows, n_columns = matrix.shape
        for power in range(n_powers if addresses[0] else 0):
            for column in range(0, n_columns, width):
                panels = view(addresses[power], (column // width + 1, n_source, width), weights)
                here = matrix[:, column : column + width] ** (power + 1)
                panels[-1, first : first + n_rows, : here.shape[1]] = here
