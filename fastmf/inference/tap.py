"""Naive mean field, TAP and third-order fixed points of machines with any unit priors."""

import numpy as np

from fastmf._threads import in_parallel, workers_for
from fastmf.inference import _arguments as check
from fastmf.inference._layout import layout_of, rows_in_flight
from fastmf.inference._workspace import borrowed
from fastmf.inference.fixed_point import FixedPoint
from fastmf.kernels.free_energy import free_energy as log_partition_of_rows
from fastmf.kernels.tap import tap as sweep_rows
from fastmf.kernels.vocabulary import (
    CONVERGED,
    CYCLING,
    DIVERGED,
    OUT_OF_SWEEPS,
    Record,
    Settings,
    Tilt,
)
from fastmf.priors._protocol import n_units, sample

# Sweeps of a row before it is extrapolated. Two steps are the least that show a direction; rows of
# trained machines that still move after a hundred sweeps crawl.
PATIENCE = {"aitken": 3, "late": 100, None: np.iinfo(np.int64).max}

MESSAGES = {
    CONVERGED: "converged",
    OUT_OF_SWEEPS: "not converged: max_iter sweeps done while still moving; raise max_iter",
    CYCLING: "not converged: cycling; leave damping=None, or raise damping or max_iter",
    DIVERGED: "diverged: the moments of a unit do not exist (its tilted precision is not positive)",
}


def tap(
    model,
    init=None,
    *,
    order=2,
    schedule="blocked",
    field=None,
    precision=None,
    clamp=None,
    damping=None,
    tol=1e-8,
    max_iter=1000,
    acceleration="late",
    onsager_every=1,
    history=False,
    free_energy=True,
    n_threads=None,
    rng=None,
):
    """Iterate the mean-field equations of a model to fixed points, from many starts at once.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    init : None, int, array, pair (mean, var) or FixedPoint
        Where to start. None: the moments of the uncoupled units. An integer: so many draws of the
        uncoupled units of the first layer, with `rng`. An array (n_units,) or (n_rows, n_units) of
        the first layer: data, with variance 0. A pair or an earlier result: means and variances,
        each an array for the first layer or a tuple of one array (or None) per layer.
    order : {1, 2, 3}, default 2
        1 naive mean field (-F is a lower bound of log Z), 2 TAP, 3 third order (binary units).
    schedule : {"blocked", "sequential"}, default "blocked"
        Blocked: one layer at a time, hidden before visible; in a fully visible machine one block of
        units. Sequential: one unit after another, each seeing the newest values.
    field, precision : array or tuple of arrays, optional
        Extra tilt exp(field x - precision x^2 / 2) of the first layer's units, or of every layer's,
        shape (n_units,) or (n_rows, n_units).
    clamp : array or tuple of arrays, optional
        Units to hold: a boolean mask (True: stay at the start), or values with NaN where free.
    damping : float in [0, 1), optional
        Share of the old value. None: undamped, until a row oscillates; then just that row is damped
        by 1/2, 3/4, ... as needed.
    tol : float, default 1e-8
        A row has converged when no mean changes by more in a sweep (before damping), or by no more
        than four units of rounding of its largest mean, which is what bounds it in float32.
    max_iter : int, default 1000
    acceleration : {"late", "aitken", None}, default "late"
        Extrapolate along the direction in which a row crawls (vector Aitken): as soon as there is
        one, or only in rows that still move after 100 sweeps. The fixed points are the same; of
        starts on a trained machine 1 in 1000 reached another one.
    onsager_every : int, default 1
        Recompute the Onsager (variance) terms only every so many sweeps. Convergence is accepted
        only with fresh ones, so that fixed points are the same; 3 in 1000 starts reached another
        one.
    history : bool, default False
        Keep the residual of every sweep.
    free_energy : bool, default True
        Compute the log-partition at the end; otherwise it is 0.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.
    rng : numpy.random.Generator or int, optional
        For random starts.

    Returns
    -------
    FixedPoint

    Raises
    ------
    ValueError, TypeError
        For arguments of wrong shapes, types or ranges. Not converging is no error: it is said row
        by row in the result.

    Notes
    -----
    Tramel et al. (2018), Algorithm 1 and Eqs. 33-36 with Eq. 32 corrected to
    Z = integral of prior(x) exp(B x - A x^2 / 2). In a blocked sweep the hidden means before the
    first sweep matter only where the starting variances are not zero; they start from 0 with data.
    In a DBM the odd layers are swept before the even ones, and layers from the second hidden one on
    start from the means of their uncoupled units (Appendix E; the clamped equations there are those
    of `clamp=` on the visible layer).
    """
    order = check.one_of("order", order, (1, 2, 3))
    check.one_of("schedule", schedule, ("blocked", "sequential"))
    check.one_of("acceleration", acceleration, tuple(PATIENCE))
    if damping is not None:
        damping = check.number("damping", damping, 0, 1, below=True)
    tol = check.number("tol", tol, 0, np.inf)
    max_iter = check.count("max_iter", max_iter)
    onsager_every = check.count("onsager_every", onsager_every)
    if n_threads is not None:
        n_threads = check.count("n_threads", n_threads)
    layout = layout_of(model, order, schedule)
    if order == 3 and not all(hasattr(prior, "third_cumulant") for prior in model.layers):
        raise ValueError("order=3 needs binary units (Bernoulli or Ising) in every layer.")
    dtype = model.dtype
    start, tilt, n_rows = _start_and_tilt(model, layout, init, field, precision, clamp, rng)

    single = n_rows is None
    n_rows = 1 if single else n_rows
    record = Record(
        state=np.zeros((4, n_rows, layout.n_units), dtype),
        status=np.zeros(n_rows, np.int64),
        n_iter=np.zeros(n_rows, np.int64),
        residual=np.zeros(n_rows, dtype),
        history=np.zeros((n_rows, max_iter) if history else (0, 0), dtype),
    )
    record.state[:2] = start
    n_workers = workers_for(n_rows, 10 * n_rows * layout.n_couplings, n_threads)
    limits = np.finfo(dtype)
    settings = Settings(
        order=order,
        one_by_one=layout.one_by_one,
        damping=0.0 if damping is None else damping,
        adaptive=damping is None,
        tol=tol,
        max_iter=max_iter,
        onsager_every=onsager_every,
        extrapolate_after=PATIENCE[acceleration],
        rows_in_flight=rows_in_flight(n_rows, n_workers),
        resolution=float(limits.eps),
    )
    queue = np.zeros(2, np.int64)
    planes = 5 if order == 3 else 4
    room = n_workers, planes, settings.rows_in_flight, layout.n_units
    with borrowed(room, dtype) as seats:
        sweeps = layout.layers, layout.visits, layout.block
        in_parallel(sweep_rows, (*sweeps, settings, tilt, seats, queue, record), n_workers)

    log_partition = np.zeros(n_rows)
    if free_energy:
        queue[:] = 0
        arguments = layout.layers, record.state, order, tilt, queue, log_partition
        in_parallel(log_partition_of_rows, arguments, n_workers)
        if clamp is not None:
            log_partition += _clamped_terms(model, layout, record, tilt)
        record.status[~np.isfinite(log_partition)] = DIVERGED
        log_partition[record.status == DIVERGED] = -np.inf
    return _result(layout, record, log_partition, history, single)


def _start_and_tilt(model, layout, init, field, precision, clamp, rng):
    """Means and variances to start from, the tilt from outside, and the number of rows."""
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
        mean[k] = np.where(masks[k], part, mean[k])
        var[k] = np.where(masks[k], 0, var[k])
        if not np.where(masks[k], _in_support(model.layers[k], mean[k]), True).all():
            raise ValueError(f"clamp holds values outside the support of {model.layers[k]!r:.40}.")
    tilt = Tilt(
        field=_tilt_rows(layout, field, n_rows, dtype),
        precision=_tilt_rows(layout, precision, n_rows, dtype),
        clamped=_tilt_rows(layout, masks, n_rows, bool),
    )
    start = np.stack([layout.join(parts, n_rows or 1, dtype) for parts in (mean, var)])
    if tilt.clamped.size:
        # What is held has no variance, also where a mask holds it at a start that has one.
        start[1][np.broadcast_to(tilt.clamped, start[1].shape)] = 0
    return start, tilt, n_rows


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
        draws = sample(first, np.zeros(shape, dtype), np.zeros(shape, dtype), _generator(rng))
        return [draws.astype(dtype)] + [None] * len(rest), [None] * len(model.layers)
    if hasattr(init, "mean") and hasattr(init, "var") and not isinstance(init, np.ndarray):
        init = (init.mean, init.var)
    if isinstance(init, tuple):
        if len(init) != 2:
            raise ValueError(f"init must be an array or a pair (mean, var), got {len(init)} items.")
        mean, var = arrays("init", init[0]), arrays("init", init[1])
        if any((v < 0).any() for v in var if v is not None):
            raise ValueError("init must have variances that are not negative.")
        return mean, var
    return arrays("init", init), [None] * len(model.layers)


def _generator(rng):
    if rng is None:
        raise ValueError("random starts need rng, a numpy.random.Generator or a seed.")
    return np.random.default_rng(rng)


def _in_support(prior, x):
    if not hasattr(prior, "log_prob"):
        return np.ones(np.shape(x), bool)
    return prior.log_prob(x) > -np.inf


def _tilt_rows(layout, parts, n_rows, dtype):
    """The parts of all layers in one array, with no, one, or `n_rows` rows."""
    if all(part is None for part in parts):
        return np.zeros((0, layout.n_units), dtype)
    with_rows = any(part is not None and part.ndim == 2 for part in parts)
    return layout.join(parts, n_rows if with_rows else 1, dtype)


def _clamped_terms(model, layout, record, tilt):
    """What the clamped units themselves contribute to the log-partition."""
    held = np.broadcast_to(tilt.clamped, record.state[0].shape)
    x = record.state[0].astype(np.float64)
    terms = np.zeros(x.shape)
    if tilt.field.size:
        terms += tilt.field * x
    if tilt.precision.size:
        terms -= tilt.precision * x * x / 2
    for prior, units in zip(model.layers, layout.bounds, strict=True):
        if held[:, units].any():
            if not hasattr(prior, "log_prob"):
                raise TypeError(
                    f"clamp needs a prior with log_prob; {type(prior).__name__} does not offer it "
                    "(or pass free_energy=False)."
                )
            terms[:, units] += np.where(held[:, units], prior.log_prob(x[:, units]), 0)
    return np.where(held, terms, 0).sum(1)


def _result(layout, record, log_partition, history, single):
    trace = None
    if history:
        n_sweeps = int(record.n_iter.max())
        last = np.minimum(np.arange(n_sweeps), record.n_iter[:, None] - 1)
        trace = np.take_along_axis(record.history[:, :n_sweeps], last, axis=1)
    one = (lambda x: x[0]) if single else (lambda x: x)
    mean, var, b, a = (layout.split(one(part)) for part in record.state)
    messages = np.array([MESSAGES[status] for status in record.status])
    return FixedPoint(
        mean=mean,
        var=var,
        b=b,
        a=a,
        log_partition=one(log_partition),
        converged=one(record.status == CONVERGED),
        n_iter=one(record.n_iter),
        residual=one(record.residual),
        message=one(messages),
        history=None if trace is None else one(trace),
    )
