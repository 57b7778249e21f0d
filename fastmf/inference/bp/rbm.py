"""Belief propagation in RBMs of binary units: rows from their starts to their ends.

The equations of messages, cavities, beliefs and the Bethe free energy are at the head of
`fastmf.kernels.bp.belief_propagation`.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.memory import borrowed
from fastmf._threads.workers import in_parallel
from fastmf.inference.bp._kernel_arguments import (
    message_dtype,
    message_layout,
    new_workspaces,
    prepared,
)
from fastmf.inference.bp._options import MAX_BYTES
from fastmf.inference.bp.beliefs import Beliefs, log_messages, pair_products
from fastmf.kernels.bp import belief_propagation as bp_kernels
from fastmf.kernels.bp.messages import BPRecord


class Ends(NamedTuple):
    """Rows that have ended, and their expected products and log-messages if asked for."""

    record: BPRecord
    pairs: np.ndarray | None
    messages: np.ndarray | None


def propagated(options, units, n_rows, init=None, assignments=()):
    """Iterate messages to the `Ends` of all rows.

    Each row runs from `init` (log-messages, or visible {0, 1} units where these are decoded) and
    from each of the assignments; its runs lie one after another.
    """
    size = max(1, MAX_BYTES // (8 * max(1, units.model.weights.size)))
    if options.pairwise != "mean" or n_rows <= size:
        return _propagated(options, units, n_rows, init, assignments)
    # Pairs need the messages of all rows, which may not fit in memory.
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
    # Beside the exponentials; rows with messages of their own start from them, others from a copy.
    n_arrays = 1 + n_messages + (n_messages != n_rows)
    with borrowed((n_arrays, *pair_shape), dtype) as memory:
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
        pairs = messages = None
        if options.pairwise:
            pairs = pair_products(options, units, problem, ratios, record)
        if options.messages:
            messages = log_messages(options, units, ratios)
    return Ends(record, pairs, messages)


# --- where rows start -----------------------------------------------------------------------------


def checked_fields(model, field):
    """Checked extra fields of both layers, and the number of rows."""
    sizes = model.weights.shape
    parts = [
        check.rows("field", part, n, np.float64)
        for part, n in zip(check.per_layer("field", field, sizes), sizes, strict=True)
    ]
    names = "visible field", "hidden field"
    return parts, check.common_rows(zip(names, parts, strict=True))


def checked_init(init, shape, n_rows, smallest=None):
    """Values to start from, finite or the smallest, and the number of rows, None without rows."""
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
    """Log-messages to start from, of an array or an earlier result."""
    if not isinstance(init, Beliefs):
        return init
    if init.messages is None:
        raise ValueError("init must have messages: ask for them with pairwise=True.")
    return init.messages


def _set_messages(options, units, init, messages, start, record):
    """Messages that the kernel does not set, and the log-odds of hidden units that they give."""
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
        _set_visible(units, record, first, _decisions(units)[first] if init is None else init)
    for k, visible in enumerate(assignments, 1):
        _set_visible(units, record, slice(k, None, n_starts), visible)


def _set_visible(units, record, rows, visible):
    """Start some rows from visible {0, 1} units: one assignment each, or the same for all."""
    weights = units.model.weights
    record.visible[rows] = np.where(visible, 1.0, -1.0)
    sums = visible.astype(weights.dtype) @ weights
    record.hidden[rows, : weights.shape[1]] += sums.astype(np.float64) * units.factor


def _decisions(units):
    """Visible {0, 1} units by the means of the hidden ones, less 1/2, at messages in their middle.

    Mixed-product has decisions for messages; these do not depend on the coding of the units.
    """
    hidden, weights = np.tanh(units.symmetric_field(1) / 2) / 2, units.model.weights
    received = hidden.astype(weights.dtype) @ weights.T * weights.dtype.type(units.factor)
    return units.symmetric_field(0) + received > 0
