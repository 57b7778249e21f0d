"""Belief propagation in RBMs with binary hidden units: starts, iterations and results of rows.

The equations of messages, cavities, beliefs and the Bethe free energy are at the head of
`fastmf.kernels.bp.belief_propagation`, for {0, 1} units u. Binary units are x = offset + scale * u:
with offsets o and scales s of the two layers, weights W and fields b, c of the model, the {0, 1}
units have weights s_v s_h W and fields s_v (b + o_h W 1) and s_h (c + o_v W' 1).
"""

import math
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.memory import aligned, check_available
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.bp._options import (
    MAX_BYTES,
    MAX_LOG_OF_PRODUCT,
    MAX_WEIGHT,
    convergence_settings,
    message_dtype,
    message_layout,
    new_workspaces,
    prepared,
    record_of,
    rounding,
)
from fastmf.inference.bp.beliefs import Beliefs, log_messages, of_record, pair_products
from fastmf.kernels.bp import belief_propagation as bp_kernels
from fastmf.kernels.bp import groups as bp_groups
from fastmf.kernels.bp.messages import BPRecord
from fastmf.priors._queries import binary_field, two_values
from fastmf.special import sigmoid_pair, softplus


class Ends(NamedTuple):
    """Records of rows that have ended; expected products and log-messages if asked for."""

    record: BPRecord
    pairs: np.ndarray | None
    messages: np.ndarray | None


def propagated(options, units, n_rows, init=None, assignments=()):
    """Iterate the messages of all rows to their `Ends`.

    Each row is solved from `init` (log-messages, or visible {0, 1} units if these are decoded) and
    from each of the assignments; the runs of a row are adjacent.
    """
    size = max(1, MAX_BYTES // (8 * max(1, units.model.weights.size)))
    if options.pairwise != "mean" or n_rows <= size:
        return _propagated(options, units, n_rows, init, assignments)
    # Pairs need the messages of each row, which may not fit in memory for all rows together.
    options, ends = replace(options, history=bool(options.history_length(n_rows))), []
    for first in range(0, n_rows, size):
        rows = np.arange(first, min(first + size, n_rows))
        start = init[rows] if init is not None and len(init) == n_rows and init.ndim == 3 else init
        ends.append(_propagated(options, units.of_rows(rows), len(rows), start))
    record = BPRecord(*map(np.concatenate, zip(*(end.record for end in ends), strict=True)))
    pairs = sum(end.pairs * (len(end.record.status) / n_rows) for end in ends)
    return Ends(record, pairs, None)


def _propagated(options, units, n_rows, init=None, assignments=()):
    """Iterate the messages of rows that fit in memory together."""
    n_starts = 1 + len(assignments)
    n_rows = n_rows * n_starts
    if n_starts > 1:
        units = units.of_rows(np.arange(n_rows) // n_starts)
    dtype = message_dtype(options, units)
    has_init = init is not None and not options.decodes and init.ndim == 3
    n_workers, (n_messages, *pair_shape) = message_layout(options, units, n_rows, has_init)
    # Exponentials, messages, and starting messages unless each row has stored messages.
    n_arrays = 1 + n_messages + (n_messages != n_rows)
    shape = tuple(map(int, (n_arrays, *pair_shape)))
    check_available(
        math.prod(shape) * np.dtype(dtype).itemsize, f"an array of shape {shape} for this solve",
        "solve fewer rows at a time, use fewer threads or a float32 model, and do without what "
        "keeps the messages of every row (messages, pairwise, init)",
    )  # fmt: skip
    memory = aligned(shape, dtype)
    ratios, start = memory[1:][:n_messages], memory[1 if n_messages == n_rows else -1]
    settings, problem, record = prepared(options, units, dtype, n_rows, (memory[0], start))
    if options.decodes:
        _set_assignments(options, units, record, init, assignments)
    elif init is None:
        record.hidden[:, : units.model.n_hidden] = units.symmetric_field(1)
    _set_messages(options, units, None if options.decodes else init, ratios, start, record)
    workspaces = new_workspaces(n_workers, record, dtype, settings.algorithm)
    arguments = settings, problem, ratios, record, workspaces, np.zeros(2, np.int64)
    in_parallel(bp_kernels.belief_propagation, arguments, n_workers)
    pairs = pair_products(options, units, problem, ratios, record) if options.pairwise else None
    return Ends(record, pairs, log_messages(options, units, ratios) if options.messages else None)


# --- where rows start -----------------------------------------------------------------------------


def checked_fields(model, field):
    """Check additional fields of both layers, and return them with the number of rows."""
    sizes = model.weights.shape
    parts = [
        check.rows("field", part, n, np.float64)
        for part, n in zip(check.per_layer("field", field, sizes), sizes, strict=True)
    ]
    names = "visible field", "hidden field"
    return parts, check.common_rows(zip(names, parts, strict=True))


def checked_init(init, shape, n_rows, smallest=None):
    """Check starting values, finite or `smallest`; return them and n_rows, None without rows."""
    init = np.asarray(init)
    if init.dtype.kind not in "fiub":
        raise TypeError(f"init must be an array of real numbers, got dtype {init.dtype}.")
    if init.shape[-len(shape) :] != shape or init.ndim not in (len(shape), len(shape) + 1):
        listed = ", ".join(map(str, shape))
        raise ValueError(
            f"init must have shape ({listed}{',' * (len(shape) == 1)}) or (n_rows, {listed}), "
            f"got {init.shape}."
        )
    if init.ndim > len(shape) and not len(init):
        raise ValueError("init must have at least one row.")
    if not (np.isfinite(init) | (init == smallest)).all():
        raise ValueError("init must be finite, got NaN or infinity.")
    if init.ndim > len(shape):
        if n_rows not in (None, 1) and len(init) not in (1, n_rows):
            raise ValueError(f"the numbers of rows differ: field {n_rows}, init {len(init)}.")
        n_rows = max(n_rows or 1, len(init))
    return init, n_rows


def messages_of(init):
    """Return starting log-messages from an array or an earlier result."""
    if not isinstance(init, Beliefs):
        return init
    if init.messages is None:
        raise ValueError("init must have messages: ask for them with pairwise=True.")
    return init.messages


def _set_messages(options, units, init, messages, start, record):
    """Set messages that the kernel does not initialise, and the log-odds of hidden units."""
    m, real = units.model.n_hidden, messages.dtype.type
    if init is not None:
        # Log-messages lie between 0 and the weight.
        scaled = units.model.weights * real(units.factor)
        logs = np.clip(init, np.minimum(scaled, 0), np.maximum(scaled, 0))
        record.hidden[:, :m] += logs.sum(-2)
        given = start if init.ndim == 2 else messages
        given[..., m:] = 1
        given[..., :m] = np.exp(logs)
        if init.ndim == 3:
            return
    if options.algorithm == "mixed" or len(messages) != len(record.visible):
        return
    if options.algorithm != "sum":
        messages[0, :, m:] = 0
        np.multiply(units.model.weights, real(units.factor / 2), out=messages[0, :, :m])
    messages[1:] = messages[0]


def _set_assignments(options, units, record, init, assignments):
    """Start the first run of each row from `init`, and further runs from the assignments."""
    n_starts = 1 + len(assignments)
    first = slice(0, None, n_starts)
    if init is None and options.algorithm == "max":
        record.hidden[first, : units.model.n_hidden] = units.symmetric_field(1)[first]
    else:
        if init is None:
            # Decide visible {0, 1} units by the means of hidden units, minus 1/2, at neutral
            # messages. These are the messages of mixed-product, which do not depend on the coding.
            hidden, weights = np.tanh(units.symmetric_field(1) / 2) / 2, units.model.weights
            received = hidden.astype(weights.dtype) @ weights.T * weights.dtype.type(units.factor)
            init = (units.symmetric_field(0) + received > 0)[first]
        _set_visible(units, record, first, init)
    for k, visible in enumerate(assignments, 1):
        _set_visible(units, record, slice(k, None, n_starts), visible)


def _set_visible(units, record, rows, visible):
    """Start some rows from visible {0, 1} units: one assignment each, or the same for all."""
    weights = units.model.weights
    record.visible[rows] = np.where(visible, 1.0, -1.0)
    sums = visible.astype(weights.dtype) @ weights
    record.hidden[rows, : weights.shape[1]] += sums.astype(np.float64) * units.factor


def _check_fields(fields, dtype):
    """Raise ValueError if sums of up to 1 / eps fields may overflow."""
    limit = np.finfo(dtype).max * np.finfo(dtype).eps
    for max_field in (abs(field).max(initial=0) for field in fields):
        if not max_field <= limit:  # NaN, too
            raise ValueError(
                f"field and the units' own must add up to {limit:.2g} at most in {dtype}, "
                f"got {max_field:g}."
            )


class BinaryUnits:
    """An RBM of binary units, and fields of rows, as an RBM of {0, 1} units.

    The {0, 1} units have `factor` times the weights of the model, and total fields of shape
    (1 or n_rows, n_units); `constant`, (1 or n_rows,), is to be added to log-probabilities.
    `prior_fields` b of the priors are exp(b x + constant) at the two values of x.
    """

    def __init__(self, model, fields):
        values = [two_values(prior) for prior in model.layers]
        self.model = model
        self.offsets = tuple(low for low, _ in values)
        self.scales = tuple(high - low for low, high in values)
        self.factor = self.scales[0] * self.scales[1]
        self.max_weight = self.factor * model._max_weight
        self.prior_fields, constants = zip(*map(binary_field, model.layers), strict=True)
        pairs = zip(self.prior_fields, fields, strict=True)
        total = tuple(np.array(b if x is None else b + x, np.float64, ndmin=2) for b, x in pairs)
        _check_fields(total, model.dtype)
        (o_v, o_h), (s_v, s_h), (b, c) = self.offsets, self.scales, total
        self._own_fields = total
        rows = model.weights.sum(1, dtype=np.float64) if o_h else 0.0
        columns = model.weights.sum(0, dtype=np.float64) if o_v else 0.0
        self.fields = s_v * (b + o_h * rows), s_h * (c + o_v * columns)
        self.constant = o_v / s_v * self.fields[0].sum(1) + o_h * c.sum(1)
        self.constant += sum(x.sum(dtype=np.float64) for x in constants)

    def weights(self):
        """Weights of the {0, 1} units in float64, a new array."""
        weights = self.model.weights.astype(np.float64)
        weights *= self.factor
        return weights

    def symmetric_field(self, layer):
        """Return the log-odds of the units of a layer if all messages are neutral.

        A neutral message is W / 2, for couplings W of {0, 1} units: the message of a unit that is 0
        or 1 with equal probabilities. So these log-odds do not depend on which value is called 1;
        for spins they are twice the field of the model.
        """
        # Not from `fields`: the middle of a spin is 0, so that its weights drop out exactly.
        middle = self.offsets[1 - layer] + self.scales[1 - layer] / 2
        field = self._own_fields[layer]
        if middle:
            model = self.model
            field = field + middle * (model._column_sums if layer else model.weights.sum(1))
        return self.scales[layer] * field

    def of_rows(self, rows):
        """Select the fields of some rows; fields that all rows share stay shared."""
        units = copy(self)
        for name in ("fields", "_own_fields"):
            parts = (f if len(f) == 1 else f[rows] for f in getattr(self, name))
            setattr(units, name, tuple(parts))
        return units

    def means(self, pairs):
        """Compute means and variances of the model's units from probabilities of 1 and 0."""
        layers = list(zip(pairs, self.offsets, self.scales, strict=True))
        means = [low * q + (low + s) * p for (p, q), low, s in layers]
        return means, [s * s * p * q for (p, q), _, s in layers]

    def values(self, layers):
        """Convert {0, 1} units of both layers to values of the model."""
        layers = zip(layers, self.offsets, self.scales, strict=True)
        return tuple((low + s * part).astype(self.model.dtype) for part, low, s in layers)

    def is_one(self, visible):
        """Convert values of the visible units of the model to {0, 1} units, as booleans."""
        return visible > self.offsets[0] + self.scales[0] / 2


# Largest |weight|, minus the mean of the extremes of its group, for which ratios do not overflow.
MAX_GROUP_WEIGHT = MAX_WEIGHT[np.dtype(np.float64)]


class GroupUnits:
    """An RBM of groups and binary hidden units, and fields of rows, with {0, 1} hidden units.

    The gauge of the `GroupProblem` makes the largest and the smallest weight of each group and
    hidden unit opposite, which changes no probability and no log-partition. `constant`,
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
    """Solve a model with categorical visible units by sum-product, and return its `Beliefs`.

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
    """Make the settings, and the initial record of rows."""
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
    """Allocate the memory of the workers."""
    n_hidden, sizes = problem.exponentials.shape[1], np.diff(problem.starts)
    shapes = (len(sizes), n_hidden), (9, n_hidden), (3, int(sizes.max()))
    return bp_groups.GroupWorkspace(*(np.zeros((n_workers, *shape)) for shape in shapes))


def _climbed(units, labels):
    """Move single groups to their best states, with hidden units summed out; return the labels."""
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
            # Without a limit, gains by rounding could recur for ever.
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
