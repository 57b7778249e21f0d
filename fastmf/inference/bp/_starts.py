"""Where belief propagation starts: fields, messages and assignments, checked."""

import numpy as np

from fastmf._common import arguments as check
from fastmf.inference.bp._decoding import set_visible
from fastmf.inference.bp.beliefs import Beliefs


def checked_fields(model, field):
    """Checked extra fields of both layers, and the number of rows."""
    sizes = model.weights.shape
    parts = [
        check.rows("field", part, n, np.float64)
        for part, n in zip(check.per_layer("field", field, sizes), sizes, strict=True)
    ]
    names = "visible field", "hidden field"
    return parts, check.common_rows(zip(names, parts, strict=True))


def checked_init(init, algorithm, units, n_rows):
    """Initial log-messages (for mixed-product visible {0, 1} units), and the number of rows."""
    if init is None:
        return None, n_rows
    init = np.asarray(_init_of(init, algorithm))
    n, m = units.model.weights.shape
    shape = (n,) if algorithm == "mixed" else (n, m)
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
    if not np.isfinite(init).all():
        raise ValueError("init must be finite, got NaN or infinity.")
    if algorithm == "mixed":
        init = units.is_one(init)
    if init.ndim > len(shape):
        if n_rows not in (None, 1) and len(init) not in (1, n_rows):
            raise ValueError(f"the numbers of rows differ: field {n_rows}, init {len(init)}.")
        n_rows = max(n_rows or 1, len(init))
    return init, n_rows


def _init_of(init, algorithm):
    """Start of the algorithm, where `init` is an earlier result."""
    if not isinstance(init, Beliefs):
        return init
    if algorithm == "mixed":
        return init.assignment[0]
    if init.messages is None:
        raise ValueError("init must have messages: ask for them with messages=True.")
    return init.messages


def checked_restarts(options, starts, units, rng, has_init):
    """The number of restarts, and their visible {0, 1} units if they are given."""
    n_restarts, n = options.n_restarts, len(units.model.weights)
    allowed = options.algorithm != "sum" and not has_init and not options.messages
    if (n_restarts or starts is not None) and not allowed:
        raise ValueError(
            "n_restarts and starts need algorithm='max' or 'mixed', no init and messages=False."
        )
    if starts is None:
        if n_restarts:
            check.generator(rng)
        return n_restarts, None
    if n_restarts:
        raise ValueError("starts are in place of n_restarts: pass one of them.")
    starts = check.rows("starts", starts, n, np.float64)
    if starts.ndim != 2:
        raise ValueError(f"starts must have shape (n_starts, {n}), got {starts.shape}.")
    return len(starts), units.is_one(starts)


def set_start(options, units, init, messages, record, n_starts=1):
    """Initial messages, and the log-odds of the hidden beliefs that they give.

    Parameters
    ----------
    options : BPOptions
    units : BinaryUnits
    init : array or None
        Checked. None: the middle of the range of each message.
    messages : array of shape (n_rows or n_workspaces, n_visible, n_padded)
        Set if there is one entry for each row, of which the first then has the `starts` of the
        problem of sum-product; otherwise kernels set them.
    record : BPRecord
        Its hidden log-odds are the fields.
    n_starts : int
        The first of each so many rows is set, if there is no `init`.
    """
    m, rows = units.model.weights.shape[1], slice(None, None, n_starts)
    if options.algorithm == "mixed":
        set_visible(units, record, rows, _decisions(units) if init is None else init)
        return
    if init is None:
        record.hidden[rows, :m] = units.symmetric_field(1)
    if len(messages) != len(record.visible):
        return  # the kernel sets them
    is_sum, real = options.algorithm == "sum", messages.dtype.type
    if init is None:
        if not is_sum:
            messages[0, :, m:] = 0
            np.multiply(units.model.weights, real(units.factor / 2), out=messages[0, :, :m])
        messages[1:] = messages[0]
        return
    # Log-messages lie between 0 and the weight.
    scaled = units.model.weights * real(units.factor)
    logs = np.clip(init, np.minimum(scaled, 0), np.maximum(scaled, 0))
    record.hidden[:, :m] += logs.sum(-2)
    messages[:, :, m:] = 1 if is_sum else 0
    messages[:, :, :m] = np.exp(logs) if is_sum else logs


def _decisions(units):
    """Visible {0, 1} units by the means of the hidden ones, less 1/2, at messages in their middle.

    Mixed-product has decisions for messages; these do not depend on the coding of the units.
    """
    hidden, weights = np.tanh(units.symmetric_field(1) / 2) / 2, units.model.weights
    received = hidden.astype(weights.dtype) @ weights.T * weights.dtype.type(units.factor)
    return units.symmetric_field(0) + received > 0
