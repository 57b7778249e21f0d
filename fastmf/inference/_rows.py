"""What all mean-field solvers do around their kernels: options, starts and tilts, results."""

import numpy as np

from fastmf.inference import _arguments as check
from fastmf.inference.fixed_point import FixedPoint
from fastmf.kernels.vocabulary import CONVERGED, CYCLING, DIVERGED, OUT_OF_SWEEPS, Record, Tilt
from fastmf.priors._protocol import contains, n_units, sample

_MESSAGES = {
    CONVERGED: "converged",
    OUT_OF_SWEEPS: "not converged: max_iter sweeps done while still moving; raise max_iter",
    CYCLING: "not converged: cycling; leave damping=None, or raise damping or max_iter",
    DIVERGED: "diverged: the moments of a unit do not exist (its tilted precision is not positive, "
    "or its mean grows without bound)",
}
# Indexed by the status of rows.
MESSAGES = np.array([_MESSAGES.get(status, "") for status in range(max(_MESSAGES) + 1)])


def iteration(damping, tol, max_iter, n_threads):
    """Checked options that every iteration has."""
    if damping is not None:
        damping = check.number("damping", damping, 0, 1, below=True)
    tol = check.number("tol", tol, 0, np.inf)
    max_iter = check.count("max_iter", max_iter)
    if n_threads is not None:
        n_threads = check.count("n_threads", n_threads)
    return damping, tol, max_iter, n_threads


def record_from(state, max_iter, history):
    """A record of rows that start from this state, (4, n_rows, n_units), and change it."""
    n_rows = state.shape[1]
    return Record(
        state=state,
        status=np.zeros(n_rows, np.int64),
        n_iter=np.zeros(n_rows, np.int64),
        residual=np.zeros(n_rows, state.dtype),
        history=np.zeros((n_rows, max_iter) if history else (0, 0), state.dtype),
    )


def start_and_tilt(model, layout, init, field, precision, clamp, rng):
    """A state with means and variances to start from, the tilt from outside, the number of rows."""
    sizes = [n_units(prior) for prior in model.layers]
    dtype = model.dtype

    def arrays(name, value, missing=False):
        parts = check.per_layer(name, value, sizes)
        return [
            check.rows(name, part, n, dtype, missing=missing)
            for part, n in zip(parts, sizes, strict=True)
        ]

    field, precision = arrays("field", field), arrays("precision", precision)
    clamp = arrays("clamp", clamp, missing=True)
    mean, var = _start(model, init, arrays, rng, any(c is not None for c in clamp))
    for k in range(2, len(sizes)):
        if mean[k] is None:
            mean[k] = model.layers[k].moments(dtype.type(0), dtype.type(0))[0]
    named = [("init", mean), ("init", var), ("field", field)]
    named += [("precision", precision), ("clamp", clamp)]
    n_rows = check.common_rows([(name, a) for name, parts in named for a in parts])

    masks = []
    for k, part in enumerate(clamp):
        if part is None or part.dtype == bool:
            masks.append(part)
            continue
        masks.append(~np.isnan(part))
        mean[k] = np.where(masks[k], part, 0 if mean[k] is None else mean[k])
        if not np.where(masks[k], contains(model.layers[k], mean[k]), True).all():
            raise ValueError(f"clamp holds values outside the support of {model.layers[k]!r:.40}.")
    tilt = Tilt(
        field=_tilt_rows(layout, field, n_rows, dtype),
        precision=_tilt_rows(layout, precision, n_rows, dtype),
        clamped=_tilt_rows(layout, masks, n_rows, bool),
    )
    state = np.zeros((4, n_rows or 1, layout.n_units), dtype)
    layout.join(mean, state[0])
    layout.join(var, state[1])
    if tilt.clamped.size:
        # What is held has no variance, also where a mask holds it at a start that has one.
        state[1][np.broadcast_to(tilt.clamped, state[1].shape)] = 0
    return state, tilt, n_rows


def _start(model, init, arrays, rng, clamped):
    """Lists of starting means and variances, one entry per layer."""
    dtype = model.dtype
    if init is None:
        moments = [prior.moments(dtype.type(0), dtype.type(0)) for prior in model.layers]
        return [m for m, _ in moments], [np.where(np.isfinite(v), v, 0) for _, v in moments]
    if isinstance(init, int | np.integer) and not isinstance(init, bool):
        n_rows = check.count("init", init)
        first, *rest = model.layers
        shape = (n_rows, n_units(first))
        draws = sample(first, np.zeros(shape, dtype), np.zeros(shape, dtype), generator(rng))
        return [draws.astype(dtype)] + [None] * len(rest), [None] * len(model.layers)
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


def generator(rng):
    """The generator that random starts are drawn from."""
    if rng is None:
        raise ValueError("random starts need rng, a numpy.random.Generator or a seed.")
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"rng must be a numpy.random.Generator or a seed, got {rng!r}: {error}."
        ) from error


def _tilt_rows(layout, parts, n_rows, dtype):
    """The parts of all layers in one array, with no, one, or `n_rows` rows."""
    if all(part is None for part in parts):
        return np.zeros((0, layout.n_units), dtype)
    with_rows = any(part is not None and part.ndim == 2 for part in parts)
    return layout.join(parts, np.zeros((n_rows if with_rows else 1, layout.n_units), dtype))


def trace_of(record):
    """Residual of every sweep; rows that ended earlier repeat their last one."""
    n_sweeps = int(record.n_iter.max())
    last = np.minimum(np.arange(n_sweeps), record.n_iter[:, None] - 1)
    return np.take_along_axis(record.history[:, :n_sweeps], last, axis=1)


def result(layout, record, log_partition, single):
    """The `FixedPoint` that a record holds."""
    one = (lambda x: x[0]) if single else (lambda x: x)
    mean, var, b, a = (layout.split(one(part)) for part in record.state)
    return FixedPoint(
        mean=mean,
        var=var,
        b=b,
        a=a,
        log_partition=one(log_partition),
        converged=one(record.status == CONVERGED),
        n_iter=one(record.n_iter),
        residual=one(record.residual),
        message=one(MESSAGES[record.status]),
        history=one(trace_of(record)) if record.history.size else None,
    )
