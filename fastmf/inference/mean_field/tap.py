"""Naive mean field, TAP and third-order fixed points of machines with any unit priors."""

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.arguments import iteration
from fastmf._common.memory import borrowed
from fastmf._outcomes import DIVERGED
from fastmf._threads import in_parallel, workers_for
from fastmf.inference.mean_field._layout import layout_of, rows_in_flight
from fastmf.inference.mean_field._rows import record_from, result, start_and_tilt
from fastmf.kernels.free_energy import free_energy as log_partition_of_rows
from fastmf.kernels.mean_field_types import Settings, Tilt
from fastmf.kernels.tap import tap as sweep_rows
from fastmf.priors._protocol import has_log_prob, has_third_cumulant

# Sweeps of a row before it may be accelerated. The first has no variances from data; rows of
# trained machines that still move after a hundred sweeps crawl.
PATIENCE = {"momentum": 2, "late": 100, None: np.iinfo(np.int64).max}


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
        Units to hold: a boolean mask (True: stay at the start), or values with NaN where free. A
        start outside the support of a unit that a mask holds there has log-partition -inf.
    damping : float in [0, 1), optional
        Share of the old value. None: undamped, until a row oscillates; then just that row has its
        Onsager terms half-implicit (see the notes), and is damped by 1/2, 3/4, ... as needed.
    tol : float, default 1e-8
        A row has converged when no mean changes by more in a sweep (before damping), or by no more
        than four units of rounding of its largest mean, which is what bounds it in float32.
    max_iter : int, default 1000
    acceleration : {"late", "momentum", None}, default "late"
        Accelerate rows once no mean changes by more than 0.05: from the third sweep on, or only
        those that still move after 100 sweeps. A row with momentum goes on by a growing part of its
        last step, until it turns. The fixed points are the same; of starts on trained machines 3 in
        1000 reached another one with "momentum", none with "late".
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
    Momentum is that of Nesterov with the restarts of O'Donoghue and Candes (2015). It needs sweeps
    that do not oscillate, and most that do owe it to the Onsager terms. Those of a row that is
    accelerated or oscillates therefore hold the mean between the old and the new one, to first
    order: its units move by 1 / (1 - A c / 2) of the way.
    In a DBM the odd layers are swept before the even ones, and layers from the second hidden one on
    start from the means of their uncoupled units (Appendix E; the clamped equations there are those
    of `clamp=` on the visible layer).
    """
    order = check.one_of("order", order, (1, 2, 3))
    check.one_of("schedule", schedule, ("blocked", "sequential"))
    check.one_of("acceleration", acceleration, tuple(PATIENCE))
    damping, tol, max_iter, n_threads = iteration(damping, tol, max_iter, n_threads)
    onsager_every = check.count("onsager_every", onsager_every)
    layout = _layout(model, order, schedule)
    state, tilt, n_rows = start_and_tilt(model, layout, init, field, precision, clamp, rng)

    single = n_rows is None
    n_rows = 1 if single else n_rows
    record = record_from(state, max_iter, history)
    n_workers = _sweep(
        layout, record, tilt, n_threads, order=order, damping=damping, tol=tol, max_iter=max_iter,
        onsager_every=onsager_every, accelerate_after=PATIENCE[acceleration],
    )  # fmt: skip

    log_partition = np.zeros(n_rows)
    if free_energy:
        queue = np.zeros(1, np.int64)
        arguments = layout.layers, record.state, order, tilt, queue, log_partition
        in_parallel(log_partition_of_rows, arguments, n_workers)
        record.status[~np.isfinite(log_partition)] = DIVERGED
        if clamp is not None:
            log_partition += _clamped_terms(model, layout, record, tilt)
        log_partition[record.status == DIVERGED] = -np.inf
    return result(layout, record, log_partition, single)


def sweeps_from_data(model, X, hidden, order, n_sweeps, n_threads=None):
    """What `tap(model, X, max_iter=n_sweeps)` finds for an RBM, of which half a sweep is known.

    Parameters
    ----------
    model : RBM
    X : array of shape (n_rows, n_visible)
    hidden : tuple of three arrays of shape (n_rows, n_hidden)
        Fields, means and variances of the hidden units given X.
    order : {1, 2, 3}
    n_sweeps : int
    n_threads : int or None

    Returns
    -------
    FixedPoint
        Without log-partitions.
    """
    layout = _layout(model, order, "blocked")
    state = np.zeros((4, len(X), layout.n_units), model.dtype)
    fields, mean, var = hidden
    for k, parts in enumerate([(X, mean), (None, var), (None, fields)]):
        layout.join(parts, state[k])
    none = np.zeros((0, layout.n_units), model.dtype)
    record = record_from(state, n_sweeps, False)
    _sweep(
        layout, record, Tilt(none, none, none.astype(bool)), n_threads, order=order, tol=1e-8,
        max_iter=n_sweeps, begun=True,
    )  # fmt: skip
    return result(layout, record, np.zeros(len(X)), False)


def _layout(model, order, schedule):
    layout = layout_of(model, order, schedule)
    if order == 3 and not all(has_third_cumulant(prior) for prior in model.layers):
        raise ValueError(
            "order=3 needs binary units (Bernoulli or Ising) in every layer, and so does "
            "gradient='tap3'."
        )
    return layout


def _sweep(
    layout, record, tilt, n_threads, *, order, tol, max_iter, damping=None, onsager_every=1,
    accelerate_after=PATIENCE["late"], begun=False,
):  # fmt: skip
    """Sweep the rows of a record to their ends; returns the number of threads."""
    _, n_rows, n_units = record.state.shape
    dtype = record.state.dtype
    n_workers = workers_for(n_rows, 10 * n_rows * layout.n_couplings, n_threads)
    settings = Settings(
        order=order,
        one_by_one=layout.one_by_one,
        damping=0.0 if damping is None else damping,
        adaptive=damping is None,
        tol=tol,
        max_iter=max_iter,
        onsager_every=onsager_every,
        accelerate_after=accelerate_after,
        rows_in_flight=rows_in_flight(n_rows, n_workers),
        resolution=float(np.finfo(dtype).eps),
        begun=begun,
    )
    room = n_workers, 5 if order == 3 else 4, settings.rows_in_flight, n_units
    with borrowed(room, dtype) as seats:
        sweeps = layout.layers, layout.visits, layout.block
        queue = np.zeros(2, np.int64)
        in_parallel(sweep_rows, (*sweeps, settings, tilt, seats, queue, record), n_workers)
    return n_workers


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
            if not has_log_prob(prior):
                raise TypeError(
                    f"clamp needs a prior with log_prob; {type(prior).__name__} does not offer it "
                    "(or pass free_energy=False)."
                )
            terms[:, units] += np.where(held[:, units], prior.log_prob(x[:, units]), 0)
    return np.where(held, terms, 0).sum(1)
