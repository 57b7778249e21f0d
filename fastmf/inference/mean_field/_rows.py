"""Arguments and results of all mean-field solvers: starts, external tilts, records."""

import numpy as np

from fastmf._common import arguments as check
from fastmf._outcomes import CONVERGED, messages_of
from fastmf.inference.fixed_point import FixedPoint, trace_of
from fastmf.kernels.mean_field.units import MeanFieldRecord, Tilt
from fastmf.priors._groups import (
    as_states,
    check_clamped_groups,
    column_is_group,
    column_sizes,
    has_groups,
)
from fastmf.priors._protocol import contains, n_units, sample
from fastmf.priors._queries import bounds
from fastmf.priors._values import refuse_clamped


def record_from(state, max_iter, history, first=False):
    """A record of rows that start from `state`, (4, n_rows, n_units), which is changed in place."""
    n_rows = state.shape[1]
    return MeanFieldRecord(
        state=state,
        status=np.zeros(n_rows, np.int64),
        n_iter=np.zeros(n_rows, np.int64),
        residual=np.zeros(n_rows, state.dtype),
        history=np.zeros((n_rows, max_iter) if history else (0, 0), state.dtype),
        first=np.zeros(state.shape if first else (0, 0, 0), state.dtype),
    )


def start_and_tilt(model, layout, init, field, precision, clamp):
    """Starting state, external tilt, and number of rows (None without rows)."""
    none = [None] * len(layout.bounds)

    def arrays(name, value):
        if value is None:
            return none
        parts = check.per_layer(name, value, none)
        if layout.grouped and name in ("init", "clamp"):
            parts = [as_states(name, *pair) for pair in zip(model.layers, parts, strict=True)]
        if layout.grouped and name == "init":
            parts = list(map(_uncoupled_where_missing, model.layers, parts))
        return [
            check.rows(name, part, units.stop - units.start, model.dtype, missing=name == "clamp")
            for part, units in zip(parts, layout.bounds, strict=True)
        ]

    tilts = {"field": field, "precision": precision, "clamp": clamp}
    tilts = {name: none if part is None else arrays(name, part) for name, part in tilts.items()}
    if init is None:
        mean, var = map(list, zip(*model.uncoupled_moments, strict=True))
        var = [np.where(np.isfinite(v), v, 0) for v in var]
    else:
        mean, var = _start(model, init, arrays)
    for k in range(2, len(mean)):
        if mean[k] is None:
            mean[k] = model.uncoupled_moments[k][0]
    named = [("init", mean), ("init", var), *tilts.items()]
    n_rows = check.common_rows([(name, a) for name, parts in named for a in parts])
    if clamp is not None:
        tilts["clamp"] = _clamped(model.layers, mean, tilts["clamp"], layout.grouped)

    tilt = []
    for parts, dtype in zip(tilts.values(), (model.dtype, model.dtype, np.bool_), strict=True):
        has_rows = any(part is not None and part.ndim == 2 for part in parts)
        tilt.append(np.zeros((n_rows if has_rows else 1, layout.n_units), dtype))
        layout.join(parts, tilt[-1])
    tilt = Tilt(*tilt)
    state = np.zeros((4, n_rows or 1, layout.n_units), model.dtype)
    layout.join(mean, state[0])
    layout.join(var, state[1])
    if clamp is not None:
        state[1][np.broadcast_to(tilt.clamped, state[1].shape)] = 0
    return state, tilt, n_rows


def _clamped(priors, mean, values, grouped):
    """Which units are clamped, by layer; their values replace starting means."""
    masks = list(values)
    for k, (prior, part) in enumerate(zip(priors, values, strict=True)):
        if part is None:
            continue
        masks[k] = ~np.isnan(part)
        mean[k] = np.where(masks[k], part, 0 if mean[k] is None else mean[k])
        wrong = masks[k] & np.logical_not(contains(prior, mean[k]))
        if wrong.any():
            refuse_clamped(prior, mean[k], wrong)
        if grouped:
            check_clamped_groups(prior, *np.broadcast_arrays(mean[k], masks[k]))
    return masks


def drawn_starts(model, n_rows, rng):
    """Samples of the uncoupled units of the first layer."""
    first, dtype = model.layers[0], model.dtype
    shape = (n_rows, n_units(first))
    draws = sample(first, np.zeros(shape, dtype), np.zeros(shape, dtype), check.generator(rng))
    return draws.astype(dtype)


def _highest(prior, dtype):
    """The largest value of each unit, the last state of each group."""
    largest, last = np.zeros(n_units(prior)), np.cumsum(column_sizes(prior)) - 1
    largest[last] = bounds(prior)[1][last]
    if not np.isfinite(largest).all():
        raise ValueError("init='up': needs units with a largest value.")
    return largest.astype(dtype)


def _start(model, init, arrays):
    """Lists of starting means and variances, one entry per layer."""
    if isinstance(init, str):
        check.one_of("init", init, ("up",))
        return [_highest(p, model.dtype) for p in model.layers], [None] * len(model.layers)
    if isinstance(init, FixedPoint):
        init = (init.mean, init.var)
    if not isinstance(init, tuple):
        return arrays("init", init), arrays("init", None)
    if len(init) != 2:
        raise ValueError(f"init must be an array or a pair (mean, var), got {len(init)} items.")
    mean, var = arrays("init", init[0]), arrays("init", init[1])
    if any((v < 0).any() for v in var if v is not None):
        raise ValueError("init must have variances that are not negative.")
    return mean, var


def _uncoupled_where_missing(prior, mean):
    """Starting means, where groups without a label have the means of the uncoupled ones."""
    if mean is None or not has_groups(prior) or not np.isnan(mean).any():
        return mean
    zero = mean.dtype.type(0)
    in_group = np.repeat(column_is_group(prior), column_sizes(prior))
    return np.where(np.isnan(mean) & in_group, prior.moments(zero, zero)[0], mean)


def result(layout, record, log_partition, question, single):
    """The `FixedPoint` of a record, with its `Question`; the log-partition may be None."""
    rows = 0 if single else slice(None)
    mean, var, b, a = map(layout.split, record.state[:, rows])
    answer = FixedPoint(
        mean=mean,
        var=var,
        b=b,
        a=a,
        log_partition=None if log_partition is None else log_partition[rows],
        converged=record.status[rows] == CONVERGED,
        n_iter=record.n_iter[rows],
        residual=record.residual[rows],
        message=messages_of(record.status)[rows],
        history=trace_of(record)[rows] if record.history.size else None,
    )
    answer.__dict__["_check"] = question
    return answer
