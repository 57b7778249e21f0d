"""Where belief propagation starts: fields and first messages, checked."""

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.arguments import generator
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


def checked_start(init, algorithm, bits, n, m, n_rows):
    """Starting log-ratios (or visible bits), and the number of rows."""
    if init is None:
        return None, n_rows
    if isinstance(init, Beliefs):
        if algorithm == "mixed":
            init = init.assignment[0]
        elif init.messages is None:
            raise ValueError("init must have messages: ask for them with messages=True.")
        else:
            init = init.messages
    start = np.asarray(init)
    shape = (n,) if algorithm == "mixed" else (n, m)
    if start.dtype.kind not in "fiub":
        raise TypeError(f"init must be an array of real numbers, got dtype {start.dtype}.")
    if start.shape[-len(shape) :] != shape or start.ndim not in (len(shape), len(shape) + 1):
        listed = ", ".join(map(str, shape))
        raise ValueError(
            f"init must have shape ({listed}{',' * (len(shape) == 1)}) or (n_rows, {listed}), "
            f"got {start.shape}."
        )
    if start.ndim > len(shape) and not len(start):
        raise ValueError("init must have at least one row.")
    if not np.isfinite(start).all():
        raise ValueError("init must be finite, got NaN or infinity.")
    if algorithm == "mixed":
        start = start > bits.offsets[0] + bits.scales[0] / 2
    if start.ndim > len(shape):
        if n_rows not in (None, 1) and len(start) not in (1, n_rows):
            raise ValueError(f"the numbers of rows differ: field {n_rows}, init {len(start)}.")
        n_rows = max(n_rows or 1, len(start))
    return start, n_rows


def checked_restarts(n_restarts, starts, bits, n, rng, allowed):
    """The number of restarts, and the bits of those that are given."""
    n_restarts = check.count("n_restarts", n_restarts, 0)
    if (n_restarts or starts is not None) and not allowed:
        raise ValueError(
            "n_restarts and starts need algorithm='max' or 'mixed', no init and messages=False."
        )
    if starts is None:
        if n_restarts:
            generator(rng)
        return n_restarts, None
    if n_restarts:
        raise ValueError("starts are in place of n_restarts: pass one of them.")
    starts = check.rows("starts", starts, n, np.float64)
    if starts.ndim != 2:
        raise ValueError(f"starts must have shape (n_starts, {n}), got {starts.shape}.")
    return len(starts), starts > bits.offsets[0] + bits.scales[0] / 2


def set_start(kind, model, bits, init, ratios, record):
    """Messages to start from, and the hidden beliefs that belong to them."""
    m = model.weights.shape[1]
    if kind == bp_types.MIXED:
        if init is not None:
            record.visible[:] = np.where(init, 1.0, -1.0)
            record.hidden[:, :m] += (init @ model.weights.astype(np.float64)) * bits.factor
        return
    if len(ratios) == len(record.visible):  # each row has its own, and goes on from what is there
        ratios[:] = 1 if kind == bp_types.SUM else 0
    if init is not None:
        # Messages lie between 1 and exp(weight).
        scaled = model.weights * ratios.dtype.type(bits.factor)
        logs = np.clip(init, np.minimum(scaled, 0), np.maximum(scaled, 0))
        record.hidden[:, :m] += logs.sum(-2)
        ratios[:, :, :m] = np.exp(logs) if kind == bp_types.SUM else logs
