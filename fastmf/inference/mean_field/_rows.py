"""Arguments and results of all mean-field solvers: starts, external tilts, records."""

import numpy as np

from fastmf._common import arguments as check
from fastmf._outcomes import is_converged, messages_of
from fastmf.inference.fixed_point import FixedPoint, trace_of
from fastmf.kernels.mean_field.arguments import MeanFieldRecord, Tilt
from fastmf.priors._groups import (
    as_states,
    check_clamped_groups,
    column_is_group,
    column_sizes,
    has_groups,
)
from fastmf.priors._protocol import contains, n_units, sample
from fastmf.priors._values import refuse_clamped


def record_from(state, max_iter, history):
    """A record of rows that start from `state`, (4, n_rows, n_units), which is changed in place."""
    n_rows = state.shape[1]
    return MeanFieldRecord(
        state=state,
        status=np.zeros(n_rows, np.int64),
        n_iter=np.zeros(n_rows, np.int64),
        residual=np.zeros(n_rows, state.dtype),
        history=np.zeros((n_rows, max_iter) if history else (0, 0), state.dtype),
    )


def start_and_tilt(model, layout, init, field, precision, clamp):
    """Starting state, external tilt, and number of rows (None without rows)."""
    sizes = [units.stop - units.start for units in layout.bounds]
    dtype = model.dtype

    def arrays(name, value, missing=False):
        if value is None:
            return [None] * len(sizes)
        parts = check.per_layer(name, value, sizes)
        if name in ("init", "clamp"):
            parts = [as_states(name, *pair) for pair in zip(model.layers, parts, strict=True)]
        if name == "init":
            parts = list(map(_uncoupled_where_missing, model.layers, parts))
        return [
            check.rows(name, part, n, dtype, missing=missing)
            for part, n in zip(parts, sizes, strict=True)
        ]

    field, precision = arrays("field", field), arrays("precision", precision)
    clamp = arrays("clamp", clamp, missing=True)
    mean, var = _start(model, init, arrays)
    for k in range(2, len(sizes)):
        if mean[k] is None:
            mean[k] = model.uncoupled_moments[k][0]
    named = [("init", mean), ("init", var), ("field", field)]
    named += [("precision", precision), ("clamp", clamp)]
    n_rows = check.common_rows([(name, a) for name, parts in named for a in parts])

    masks = []
    for k, part in enumerate(clamp):
        if part is None:
            masks.append(None)
            continue
        masks.append(~np.isnan(part))
        mean[k] = np.where(masks[k], part, 0 if mean[k] is None else mean[k])
        wrong = masks[k] & np.logical_not(contains(model.layers[k], mean[k]))
        if wrong.any():
            refuse_clamped(model.layers[k], mean[k], wrong)
    for prior, x, mask in zip(model.layers, mean, masks, strict=True):
        if mask is not None and has_groups(prior):
            start = np.zeros(n_units(prior)) if x is None else x
            check_clamped_groups(prior, *np.broadcast_arrays(start, mask))
    tilt = Tilt(
        field=_tilt_rows(layout, field, n_rows, dtype),
        precision=_tilt_rows(layout, precision, n_rows, dtype),
        clamped=_tilt_rows(layout, masks, n_rows, bool),
    )
    state = np.zeros((4, n_rows or 1, layout.n_units), dtype)
    layout.join(mean, state[0])
    layout.join(var, state[1])
    if tilt.clamped.any():
        state[1][np.broadcast_to(tilt.clamped, state[1].shape)] = 0
    return state, tilt, n_rows


def drawn_starts(model, n_rows, rng):
    """Samples of the uncoupled units of the first layer."""
    first, dtype = model.layers[0], model.dtype
    shape = (n_rows, n_units(first))
    draws = sample(first, np.zeros(shape, dtype), np.zeros(shape, dtype), check.generator(rng))
    return draws.astype(dtype)


def _start(model, init, arrays):
    """Lists of starting means and variances, one entry per layer."""
    if init is None:
        mean, var = zip(*model.uncoupled_moments, strict=True)
        return list(mean), [np.where(np.isfinite(v), v, 0) for v in var]
    if isinstance(init, FixedPoint):
        init = (init.mean, init.var)
    if isinstance(init, tuple):
        if len(init) != 2:
            raise ValueError(f"init must be an array or a pair (mean, var), got {len(init)} items.")
        mean, var = arrays("init", init[0]), arrays("init", init[1])
        if any((v < 0).any() for v in var if v is not None):
            raise ValueError("init must have variances that are not negative.")
        return mean, var
    return arrays("init", init), [None] * len(model.layers)


def _uncoupled_where_missing(prior, mean):
    """Starting means, where groups without a label have the means of the uncoupled ones."""
    if mean is None or not has_groups(prior) or not np.isnan(mean).any():
        return mean
    zero = mean.dtype.type(0)
    in_group = np.repeat(column_is_group(prior), column_sizes(prior))
    return np.where(np.isnan(mean) & in_group, prior.moments(zero, zero)[0], mean)


def _tilt_rows(layout, parts, n_rows, dtype):
    """The parts of all layers in one array, with one or `n_rows` rows."""
    if all(part is None for part in parts):
        return np.zeros((1, layout.n_units), dtype)
    has_rows = any(part is not None and part.ndim == 2 for part in parts)
    return layout.join(parts, np.zeros((n_rows if has_rows else 1, layout.n_units), dtype))


def result(layout, record, log_partition, single):
    """The `FixedPoint` of a record; the log-partition may be None."""
    rows = 0 if single else slice(None)
    mean, var, b, a = map(layout.split, record.state[:, rows])
    return FixedPoint(
        mean=mean,
        var=var,
        b=b,
        a=a,
        log_partition=None if log_partition is None else log_partition[rows],
        converged=is_converged(record.status[rows]),
        n_iter=record.n_iter[rows],
        residual=record.residual[rows],
        message=messages_of(record.status)[rows],
        history=trace_of(record)[rows] if record.history.size else None,
    )
