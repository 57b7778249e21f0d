"""Belief propagation in RBMs with categorical visible and binary hidden units."""

import numpy as np

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.bp._kernel_arguments import (
    MAX_LOG_OF_PRODUCT,
    MAX_WEIGHT,
    convergence_settings,
    record_of,
    rounding,
)
from fastmf.inference.bp.beliefs import of_record
from fastmf.kernels.bp import groups as bp_groups
from fastmf.priors._queries import binary_field, two_values
from fastmf.special import sigmoid_pair, softplus

# Largest |weight|, less the mean of the extremes of its group, for which ratios are numbers.
MAX_GROUP_WEIGHT = MAX_WEIGHT[np.dtype(np.float64)]


class GroupUnits:
    """An RBM of groups and binary hidden units as one with {0, 1} hidden units, and its fields.

    In every group and for every hidden unit of the `GroupProblem` the largest and the smallest
    weight are opposite: a gauge, which changes no probability and no log-partition. `constant`,
    (1 or n_rows,), is to be added to log-probabilities; hidden units have the values offset and
    offset + scale.
    """

    def __init__(self, model, fields):
        visible, hidden = model.layers
        low, high = two_values(hidden)
        self.model, self.offset, self.scale = model, low, high - low
        weights = model.weights.astype(np.float64)
        hidden_field, constants = binary_field(hidden)
        b, c = (
            np.atleast_2d(np.asarray(x, np.float64) + (0 if f is None else f))
            for x, f in zip((visible.field, hidden_field), fields, strict=True)
        )
        b = b + low * weights.sum(1)
        self.constant = low * c.sum(1) + constants.sum(dtype=np.float64)
        weights *= self.scale
        middle = np.maximum.reduceat(weights, visible.starts)
        middle = (middle + np.minimum.reduceat(weights, visible.starts)) / 2
        weights -= np.repeat(middle, visible.sizes, axis=0)
        c = self.scale * c + middle.sum(0)
        self.max_weight = float(abs(weights).max(initial=0))
        starts = np.append(visible.starts, len(weights)).astype(np.int64)
        exponentials = np.exp(np.minimum(weights, MAX_GROUP_WEIGHT))
        self.weights = weights
        self.problem = bp_groups.GroupProblem(exponentials, starts, b, c)


def propagate(options, model, fields, n_rows):
    """The `Beliefs` of a model with categorical visible units, by sum-product.

    Marginal MAP starts from the most probable label of each group, and moves single groups.
    """
    units = GroupUnits(model, fields)
    if units.max_weight > MAX_GROUP_WEIGHT:
        raise ValueError(
            f"weights of a group may differ by {2 * MAX_GROUP_WEIGHT / units.scale:g} at most, got "
            f"{2 * units.max_weight / units.scale:g}."
        )
    settings, record = _prepared(options, units, n_rows or 1)
    work = 10 * record.hidden.size * len(units.weights)
    n_workers = workers_for(len(record.hidden), work, options.n_threads, options.max_iter)
    workspace = _workspace(units.problem, n_workers)
    arguments = settings, units.problem, record, workspace, np.zeros(2, np.int64)
    in_parallel(bp_groups.group_propagation, arguments, n_workers)
    return _beliefs(options, units, record, n_rows is None)


def _prepared(options, units, n_rows):
    """Settings, and a record of rows at their starts."""
    (n_states, n_hidden), dtype = units.weights.shape, np.dtype(np.float64)
    rounding_error = rounding((n_states, n_hidden), dtype, units.max_weight, 1.0)
    settings = bp_groups.GroupSettings(
        **convergence_settings(options, rounding_error)._asdict(),
        max_factors=max(1, int(MAX_LOG_OF_PRODUCT[dtype] / max(0.1, units.max_weight))),
        sweep=bp_groups.sweep_address(),
    )
    record = bp_groups.GroupRecord(
        visible=np.zeros((n_rows, n_states)),
        hidden=np.broadcast_to(units.problem.hidden_field, (n_rows, n_hidden)).copy(),
        bethe=np.zeros(n_rows),
        **record_of(n_rows, options)._asdict(),
    )
    return settings, record


def _workspace(problem, n_workers):
    """Memory of the workers."""
    n_hidden, sizes = problem.exponentials.shape[1], np.diff(problem.starts)
    shapes = (len(sizes), n_hidden), (9, n_hidden), (3, int(sizes.max()))
    return bp_groups.GroupWorkspace(*(np.zeros((n_workers, *shape)) for shape in shapes))


def _climbed(units, labels):
    """Labels after moves of single groups to their best states; hidden units are summed out."""
    problem, weights, labels = units.problem, units.weights, labels.copy()
    starts = problem.starts[:-1]
    sums = problem.hidden_field + weights[starts + labels].sum(1)
    fields = np.broadcast_to(problem.visible_field, (len(labels), len(weights)))
    moving = np.arange(len(labels))
    while len(moving):
        moved = np.zeros(len(moving), bool)
        for i, first in enumerate(starts):
            group, state = slice(first, problem.starts[i + 1]), labels[moving, i]
            w, index = weights[group], np.arange(len(moving))
            without = sums[moving] - w[state]
            values = fields[moving, group] + softplus(without[:, None] + w).sum(2)
            new = values.argmax(1)
            # A gain of rounding could recur for ever.
            limit = 1e-12 * (1 + abs(values[index, state]))
            better = values[index, new] - values[index, state] > limit
            labels[moving, i] = np.where(better, new, state)
            sums[moving] = without + w[labels[moving, i]]
            moved |= better
        moving = moving[moved]
    return labels


def _beliefs(options, units, record, single):
    visible, hidden = units.model.layers
    dtype, problem = units.model.dtype, units.problem
    possible = visible.field > -np.inf
    tilt = np.where(possible, record.visible, 0) - np.where(possible, visible.field, 0)
    means, variances = visible.moments(tilt, np.zeros(()))
    p, q = sigmoid_pair(record.hidden)
    labels, decoded = visible.labels(record.visible), record.hidden
    rows = {"log_partition": record.bethe + units.constant}
    if options.decodes:
        labels = _climbed(units, labels) if options.search else labels
        states = problem.starts[:-1] + labels
        decoded = problem.hidden_field + units.weights[states].sum(1)
        fields = np.broadcast_to(problem.visible_field, record.visible.shape)
        score = np.take_along_axis(fields, states, 1).sum(1) + softplus(decoded).sum(1)
        rows = dict.fromkeys(("log_partition", "score"), score + units.constant)
        rows["local_maximum"] = np.ones(len(labels), bool) if options.search else None
    values = np.asarray(units.offset + units.scale * (decoded > 0), dtype)
    layers = {
        "mean": (means, units.offset + units.scale * p),
        "var": (variances, units.scale**2 * p * q),
        "b": (tilt, record.hidden / units.scale - binary_field(hidden)[0]),
        "assignment": (labels, values),
    }
    return of_record(record, single, dtype, layers, rows)
