"""NumPy twin of `fastmf.kernels.training.train`, where the phases are described."""

from types import SimpleNamespace

import numpy as np

from fastmf._jit.intrinsics import view
from fastmf.priors._compiled import LOG_PARTITION
from fastmf.reference.mean_field.tap import tap
from fastmf.reference.sampling.random import uniforms
from fastmf.reference.training.ascent import ascend
from fastmf.reference.training.groups import effects, repack, second_moments
from fastmf.reference.units import draws, log_partition, moments

# Rows of the statistics of units.
FIRST, SECOND, NONZERO = 4, 5, 6


def train(batches, parameters, solvers, settings, statistics, scratch, queues, workers):
    """Take steps of learning, one for each row of `batches.rows`."""
    couplings, layers = parameters.couplings.owners, solvers[0].sweep.layers
    weights, states = [arrays[0] for arrays in couplings], statistics.model.state
    bounds = [slice(la.start, la.start + la.n_units) for la in layers.of_model]
    for step, seed in enumerate(batches.seeds):
        if parameters.diverged[0]:
            return
        X = _batch(batches, step, weights[0])
        if not settings.persistent:
            states[:] = 0
            states[0, :, bounds[0]] = X[np.arange(states.shape[1]) % len(X)]
            for units in bounds[2:]:
                states[0, :, units] = statistics.uncoupled[0, units]
        of_data = _given_data(X, weights, bounds, layers, solvers[1], statistics, queues)
        if settings.solved:
            tap(*solvers[0], queues, statistics.model)
        else:
            _sample(weights, layers.of_model, bounds, settings.n_sweeps, seed, states)
        statistics.units[FIRST] = of_data[0].mean(0) - states[0].mean(0)
        if settings.tilts_kept:
            _compare_averages(of_data, states, settings.solved, statistics, bounds, layers)
        rate, given = batches.rates[step], (of_data, states, statistics, layers)
        by_fields = _ascend(couplings, parameters, rate, settings, *given)
        if not settings.tilts_kept:
            _move_fields(by_fields, parameters, rate, settings)
        if layers.groups:
            repack(weights[0], layers, settings.order)
        for matrix, copies in zip(weights, parameters.copies, strict=True):
            _pack(matrix, scratch.slab.shape[1], copies[:2], settings.order)
            if copies[3, 0]:
                _pack(matrix, scratch.slab.shape[1], copies[2:], settings.order)


def _given_data(X, weights, bounds, layers, solver, statistics, queues):
    """Means, variances, and tilts b and a of all units given the rows of data."""
    found = np.zeros((4, len(X), max(units.stop for units in bounds)), X.dtype)
    found[0, :, bounds[0]], fields = X, X @ weights[0]
    if len(weights) == 1:
        hidden = moments(layers.of_model[1].prior, fields, X.dtype.type(0))
        found[:3, :, bounds[1]] = *hidden, fields
        return found
    posterior, solution = solver.sweep.layers.of_model, statistics.posterior.state
    solution[:], statistics.data_fields[:] = 0, 0
    statistics.data_fields[:, : len(weights[0][0])] = fields
    for units, layer in zip(bounds[1:], posterior, strict=True):
        here = slice(layer.start, layer.start + layer.n_units)
        solution[:2, :, here] = statistics.uncoupled[:, None, units]
    tap(*solver, queues, statistics.posterior)
    for units, layer in zip(bounds[1:], posterior, strict=True):
        found[:, :, units] = solution[:, :, layer.start : layer.start + layer.n_units]
    return found


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


def _sample(weights, layers, bounds, n_sweeps, seed, states):
    """Samples of the even layers, and moments and fields of the odd ones given these."""
    n_even, x = bounds[1].start, states[0].copy()

    def fields(k):
        below = x[:, bounds[k - 1]] @ weights[k - 1] if k else 0
        above = x[:, bounds[k + 1]] @ weights[k].T if k < len(weights) else 0
        return below + above

    for step in range(1, 2 * n_sweeps + 1):
        parity = step % 2
        start, n_units = (n_even, x.shape[1] - n_even) if parity else (0, n_even)
        u = uniforms(seed, step, (len(x), n_units))
        for k in range(parity, len(layers), 2):
            numbers = u[:, bounds[k].start - start : bounds[k].stop - start]
            x[:, bounds[k]] = draws(layers[k].prior, fields(k), numbers)
    states[0, :, :n_even] = x[:, :n_even]
    for k in range(1, len(layers), 2):
        b = fields(k)
        states[:3, :, bounds[k]] = *moments(layers[k].prior, b, b.dtype.type(0)), b


def _ascend(couplings, parameters, rate, settings, of_data, states, statistics, layers):
    """The update of couplings; returns the gradient by the fields."""
    gradients, n_rows, n_starts = statistics.units[FIRST].copy(), of_data.shape[1], states.shape[1]
    means, second = of_data[0].mean(0), states[1]
    matrices = [matrix for matrix, _ in parameters.preconditioners.owners]
    for matrix, layer in zip(matrices, layers.of_model, strict=True):
        if matrix.size:
            here = slice(layer.start, layer.start + layer.n_units)
            gradients[here] = matrix @ gradients[here]
    if layers.groups:
        all_units = [slice(la.start, la.start + la.n_units) for la in layers.of_model]
        second = second_moments(states, layers, all_units)
    for k, ((weights, velocity, *_), *sides) in enumerate(
        zip(couplings, layers.of_model[:-1], layers.of_model[1:], strict=True)
    ):
        bounds = [slice(side.start, side.start + side.n_units) for side in sides]
        parts = [(of_data[0], 1 / n_rows, 0), (states[0], -1 / n_starts, 0)]
        if settings.order >= 2:
            parts += [(of_data[1], 1 / n_rows, 1)] if k else []
            parts.append((second, -1 / n_starts, 1))
        gradient = sum(
            scale * weights**power * (x[:, bounds[0]].T @ x[:, bounds[1]])
            for x, scale, power in parts
        )
        if layers.groups and settings.order >= 2:
            gradient += effects(weights, states, second, layers, bounds)
        cubic = [(states[0], -0.5 / n_starts)] + ([(of_data[0], 0.5 / n_rows)] if k else [])
        for x, scale in cubic if settings.order == 3 else []:
            third = [
                side.prior.third_cumulant(x[:, here])[0]
                for side, here in zip(sides, bounds, strict=True)
            ]
            gradient += scale * weights**2 * (third[0].T @ third[1])
        centred = settings.centred[k : k + 2]
        offsets = [tilt * means[here] for tilt, here in zip(centred[::-1], bounds, strict=True)]
        by_fields = [
            tilt * statistics.units[FIRST, here] for tilt, here in zip(centred, bounds, strict=True)
        ]
        centring = [np.stack(side) for side in zip(offsets, by_fields, strict=True)]
        row_sums = np.empty((2, len(weights)), weights.dtype)
        l2, l1 = settings.decay[0], settings.l1
        if matrices[k].size:
            gradient -= l2 * weights + settings.decay[1] * np.sign(weights)
            gradient -= np.outer(offsets[0], by_fields[1]) + np.outer(by_fields[0], offsets[1])
            gradient = matrices[k] @ gradient @ matrices[k + 1]
            l2 = 0
            centring = [np.stack([offset, 0 * offset]) for offset in offsets]
        ascent = SimpleNamespace(rate=rate, momentum=settings.momentum, l2=l2, l1=l1)
        ascend(weights, gradient, velocity, ascent, centring, None, row_sums, weights)
        gradients[bounds[0]] -= row_sums[0]
        gradients[bounds[1]] -= offsets[0] @ gradient
        if not row_sums[1].max() < settings.max_weight**2:
            parameters.diverged[0] = 1
    return gradients


def _move_fields(by_fields, parameters, rate, settings):
    """The update of fields."""
    fields, velocity, limits = parameters.fields
    velocity *= settings.momentum
    velocity += rate * by_fields
    np.clip(fields + velocity, -limits, limits, out=fields)


def _compare_averages(of_data, states, solved, statistics, bounds, layers):
    """Differences between data and model of averages of x^2, and of whether x is not 0."""
    squares = [(of[1] + of[0] ** 2).mean(0) for of in (of_data, states)]
    statistics.units[SECOND] = squares[0] - squares[1]
    for k, (here, layer) in enumerate(zip(bounds, layers.of_model, strict=True)):
        if layers[k, LOG_PARTITION] == 0:
            continue
        nonzero = [
            -np.expm1(-log_partition(layer.prior, of[2][:, here], of[3][:, here])).mean(0)
            for of in (of_data, states)
        ]
        if k == 0:
            nonzero[0] = (of_data[0][:, here] != 0).mean(0)
        if k % 2 == 0 and not solved:
            nonzero[1] = (states[0][:, here] != 0).mean(0)
        statistics.units[NONZERO, here] = nonzero[0] - nonzero[1]


def _pack(weights, width, copies, n_powers):
    """Fill in the packed copies of weights and of their powers."""
    for matrix, (*addresses, n_source, first) in zip((weights, weights.T), copies, strict=True):
        n_rows, n_columns = matrix.shape
        for power in range(n_powers if addresses[0] else 0):
            for column in range(0, n_columns, width):
                panels = view(addresses[power], (column // width + 1, n_source, width), weights)
                here = matrix[:, column : column + width] ** (power + 1)
                panels[-1, first : first + n_rows, : here.shape[1]] = here
