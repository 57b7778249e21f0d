"""Where belief propagation starts: fields, messages and assignments, checked."""

import numpy as np

from fastmf._common import arguments as check
from fastmf.inference.bp.beliefs import Beliefs
from fastmf.kernels import bp_types


def checked_fields(model, field):
    """Checked extra fields of both layers, and the number of rows."""
    if not hasattr(model, "layers") or len(model.layers) != 2:
        raise TypeError(f"model must be an RBM, got {type(model).__name__}.")
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
    """What the algorithm starts from, where `init` is an earlier result."""
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


def set_start(options, units, init, messages, record):
    """Initial messages, and the log-odds of the hidden beliefs that they give."""
    m = units.model.weights.shape[1]
    algorithm = options.kernel_algorithm
    if algorithm == bp_types.MIXED_PRODUCT:
        if init is not None:
            record.visible[:] = np.where(init, 1.0, -1.0)
            record.hidden[:, :m] += (init @ units.model.weights.astype(np.float64)) * units.factor
        return
    if len(messages) == len(record.visible):  # the kernel then starts from these messages
        messages[:] = 1 if algorithm == bp_types.SUM_PRODUCT else 0
    if init is not None:
        # Messages lie between 1 and exp(weight).
        scaled = units.model.weights * messages.dtype.type(units.factor)
        logs = np.clip(init, np.minimum(scaled, 0), np.maximum(scaled, 0))
        record.hidden[:, :m] += logs.sum(-2)
        messages[:, :, :m] = np.exp(logs) if algorithm == bp_types.SUM_PRODUCT else logs
