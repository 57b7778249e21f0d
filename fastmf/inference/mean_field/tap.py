"""Naive mean field, TAP and third-order fixed points of machines with any unit priors.

With symmetric couplings W (0 within a layer), the means m and variances v of all units obey

    a = -(W^2)' v                   Onsager term (W^2 is the elementwise square); 0 for order 1
    b = W' m + a m                  order 3 adds (W^3)' k k'(m) / 6, k the third cumulant
    (m, v) = moments(b + field, a + precision)          of prior(x) exp(b x - a x^2 / 2)

and, at a solution, log Z = sum_i [log Z_i - b m + a (m^2 + v) / 2] + sum_(i,j) [W m_i m_j +
W^2 v_i v_j / 2 + W^3 k_i k_j / 6], with each pair once and the terms of the order asked for.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.arguments import iteration
from fastmf._common.memory import Scratch, borrowed
from fastmf._outcomes import DIVERGED
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.fixed_point import Question, with_check
from fastmf.inference.mean_field import _sparse_free_energy, gaussian_layers
from fastmf.inference.mean_field._layout import rows_per_worker
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.inference.mean_field._no_hidden import allows_no_hidden
from fastmf.inference.mean_field._rows import record_from, result, start_and_tilt
from fastmf.inference.mean_field._sparse_sweeps import solve_sparse
from fastmf.inference.mean_field.free_energy import log_partition_of_rows
from fastmf.inference.mean_field.mixture import (
    N_CHECKED_STARTS,
    mixture,
    mixture_of_starts,
    tilt_of,
)
from fastmf.kernels.mean_field.arguments import EARLY_RESIDUAL, LATE_RESIDUAL, TapSettings, Tilt
from fastmf.kernels.mean_field.rows import SLOT_SIZE, ActiveRows, worker_shapes
from fastmf.kernels.mean_field.tap import tap as solve_rows
from fastmf.models._couplings import finite_machine
from fastmf.models._layered import is_integrated
from fastmf.models.boltzmann import check_machine
from fastmf.priors._protocol import has_log_prob, has_third_cumulant


@allows_no_hidden
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
    acceleration=True,
    history=False,
    log_partition=True,
    n_threads=None,
    n_starts=None,
    rng=None,
):
    """Solve the mean-field equations of a machine: means, variances and log-partition.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    init : None, int, array, pair (mean, var) or FixedPoint
        Starting point. None: moments of the uncoupled units. An integer: this many samples of the
        uncoupled units of the first layer, drawn with `rng`. An array (n_rows, n_units) of the
        first layer: data, with variance 0, as labels for categorical units (negative if missing).
        A pair or a result: means and variances, for all layers as tuples.
    order : {1, 2, 3}, default 2
        1: naive mean field (a lower bound of log Z); 2: TAP; 3: third order, for binary units.
    schedule : {"blocked", "sequential"}, default "blocked"
        Update whole layers, or blocks of uncoupled units, at a time, or one unit after another.
    field, precision : array or tuple of arrays, optional
        External tilt exp(field x - precision x^2 / 2) of the first layer, or of each layer.
    clamp : array or tuple of arrays, optional
        Values of clamped units, NaN where units are free.
    damping : float in [0, 1), optional
        Weight of the previous value. None: damp rows that oscillate, and as little as they need.
    tol : float, default 1e-8
        Tolerance of convergence; see the notes of `FixedPoint`.
    max_iter : int, default 1000
    acceleration : bool, default True
        Accelerate rows near a fixed point by Nesterov momentum with restarts.
    history : bool, default False
        Store the residual of every sweep.
    log_partition : bool, default True
        Compute the log-partition.
    n_threads : int, optional
        Number of threads; results do not depend on it.
    n_starts : int, optional
        Solve from this many samples of the uncoupled units and return the moments of the mixture
        of the distinct stable solutions, which `solutions` holds.
    rng : numpy.random.Generator or int, optional

    Returns
    -------
    FixedPoint
        `reliable` and `message` say for each row whether it can be trusted.

    Raises
    ------
    ValueError, TypeError
        If arguments have wrong shapes, types or ranges, or couplings of -inf.

    Notes
    -----
    Tramel et al. (2018), Algorithm 1 and Eqs. 33-36, with Eq. 32 corrected to
    Z = integral of prior(x) exp(B x - A x^2 / 2); Appendix E for deep machines, whose odd layers
    are updated first. Gaussian units next to bounded ones are integrated out exactly
    (`fastmf.inference.mean_field.gaussian_layers`). The third order omits triangles of units. Where
    a row oscillates, Onsager terms are evaluated at the average of the old and the new mean.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> model = mf.RBM(rng.normal(size=(8, 5)) / 4, mf.Ising(np.zeros(8)), mf.Ising(np.ones(5) / 2))
    >>> result, exact = mf.tap(model), mf.exact(model)
    >>> bool(result.converged), bool(abs(result.log_partition - exact.log_partition) < 0.01)
    (True, True)
    >>> mf.tap(model, clamp=np.r_[1, 1, [np.nan] * 6]).mean[0][:2]
    array([1., 1.])
    """
    check_machine(model)
    if n_starts is not None:
        options = {"order": order, "schedule": schedule, "damping": damping, "tol": tol,
                   "max_iter": max_iter, "acceleration": acceleration, "n_threads": n_threads,
                   "history": history, "log_partition": log_partition}  # fmt: skip
        starts, tilts = (init, n_starts, rng), (field, precision, clamp)
        return mixture_of_starts(tap, model, starts, tilts, options)
    order = check.one_of("order", order, (1, 2, 3))
    check.one_of("schedule", schedule, ("blocked", "sequential"))
    acceleration = check.flag("acceleration", acceleration)
    damping, tol, max_iter, n_threads = iteration(damping, tol, max_iter, n_threads)
    if is_integrated(model):
        tilts = field, precision, clamp
        options = {"order": order, "damping": damping, "tol": tol, "max_iter": max_iter,
                   "acceleration": acceleration, "history": history,
                   "log_partition": log_partition, "n_threads": n_threads}  # fmt: skip
        found = gaussian_layers.solve(model, tap, init, tilts, rng, **options)
        return _with_question(found, model, tilt_of(model, *tilts), order, init is None)
    model = finite_machine("tap", model)
    layout = _layout(model, order, schedule)
    settings = TapSettings(
        order=order,
        damping=0.0 if damping is None else damping,
        adaptive=damping is None,
        tol=tol,
        max_iter=max_iter,
        **layout.addresses(order),
        early_residual=EARLY_RESIDUAL if acceleration else 0.0,
        late_residual=LATE_RESIDUAL if acceleration else 0.0,
    )
    state, tilt, n_rows = start_and_tilt(model, layout, init, field, precision, clamp, rng)
    record = record_from(state, max_iter, history)
    n_workers = _solve(layout, record, tilt, settings, n_threads)
    parts = model, layout, record, tilt, order, n_workers
    values = _log_partition(*parts) if log_partition else None
    found = result(layout, record, values, single=n_rows is None)
    if layout.sparse:
        tilt = tilt._make(layout.split(part) for part in tilt)
    return _with_question(found, model, tilt, order, init is None)


def _with_question(found, model, tilt, order, whole):
    mixed = partial(mixture, partial(tap, order=order), N_CHECKED_STARTS)
    return with_check(found, Question(model, tilt, whole, mixed))


def tap_of_means(model, init, *, order=2, max_iter=1000, solve_rest=None, **options):
    """The same as `tap`, without the variances of Gaussian units that are integrated out.

    These take longer than all the rest where there are many units of both kinds. The other units
    are solved by `solve_rest`; default: `tap`.
    """
    if not is_integrated(model):
        return tap(model, init, order=order, max_iter=max_iter, **options)
    options = {"log_partition": True} | options | {"order": order, "max_iter": max_iter}
    none = None, None, None
    solve_rest = solve_rest or tap
    return gaussian_layers.solve(model, solve_rest, init, none, None, variances=False, **options)


class Moments(NamedTuple):
    """Means and variances of the units of each layer, and the tilts of which they are the moments.

    Parameters
    ----------
    mean, var, b, a : tuple of arrays of shape (n_rows, n_units)
    """

    mean: tuple
    var: tuple
    b: tuple
    a: tuple


def sweeps_from_data(model, X, hidden, order, n_sweeps, n_threads=None, scratch=None):
    """The `Moments` of `tap(model, X, max_iter=n_sweeps, acceleration=False)` for an RBM.

    The first half sweep is known.
    """
    layout, n_rows = _layout(model, order, "blocked"), len(X)
    n_workers = workers_for(n_rows, 10 * n_rows * layout.n_couplings, n_threads)
    key = n_rows, n_sweeps, n_workers
    if layout.sweeps is None or layout.sweeps[0] != key:
        layout.sweeps = key, _memory_of_sweeps(layout, order, *key)
    settings, tilt, workers = layout.sweeps[1]
    state = (scratch or Scratch()).take("state", (4, n_rows, layout.n_units), model.dtype)
    state[1:] = 0
    visible, units = layout.bounds
    state[0, :, visible] = X
    state[2, :, units], state[0, :, units], state[1, :, units] = hidden
    record, queue = record_from(state, n_sweeps, False), np.zeros(2, np.int64)
    in_parallel(solve_rows, (layout.sweep, settings, tilt, workers, queue, record), n_workers)
    return Moments(*((part[:, visible], part[:, units]) for part in state))


def _memory_of_sweeps(layout, order, n_rows, n_sweeps, n_workers):
    """Settings, tilt and memory of `sweeps_from_data`."""
    dtype = layout.layers.of_model[0].couplings.dtype
    none = np.zeros((1, layout.n_units), dtype)
    settings = TapSettings(
        order=order,
        tol=1e-8,
        max_iter=n_sweeps,
        **layout.addresses(order),
        late_residual=0.0,
        rows_per_worker=rows_per_worker(n_rows, n_workers, layout.max_worker_rows),
        resolution=float(np.finfo(dtype).eps),
        half_sweep_done=True,
    )
    shapes = worker_shapes(settings, layout.n_units, layout.max_columns, layout.n_group_fields)
    slots = np.empty((n_workers, 1, settings.rows_per_worker, SLOT_SIZE))
    workers = ActiveRows(slots, *(np.empty((n_workers, *shape), dtype) for shape in shapes))
    return settings, Tilt(none, none, none.astype(bool)), workers


def _layout(model, order, schedule):
    layout = layout_of(model, order, schedule)
    if order == 3 and not all(has_third_cumulant(prior) for prior in model.layers):
        raise ValueError(
            "order=3 needs binary units (Bernoulli or Ising) in every layer: use order=2 for units "
            "of more values."
        )
    return layout


def _solve(layout, record, tilt, settings, n_threads):
    """Iterate the rows of a record until they end; returns the number of threads."""
    _, n_rows, n_units = record.state.shape
    dtype = record.state.dtype
    n_workers = workers_for(n_rows, 10 * n_rows * layout.n_couplings, n_threads)
    settings = settings._replace(
        one_by_one=layout.one_by_one,
        resolution=float(np.finfo(dtype).eps),
    )
    if layout.sparse:
        n_workers = solve_sparse(layout, record, tilt, settings, n_threads)
        if tilt.precision.any():
            record.state[3] += tilt.precision
        return n_workers
    settings = settings._replace(
        rows_per_worker=rows_per_worker(n_rows, n_workers, layout.max_worker_rows),
        zero_variance=not (layout.grouped or record.state[1].any()),
    )
    shapes = worker_shapes(settings, n_units, layout.max_columns, layout.n_group_fields)
    sizes = [n_workers * math.prod(shape) for shape in shapes]
    with borrowed((sum(sizes),), dtype) as memory:
        parts = np.split(memory, np.cumsum(sizes[:-1]))
        parts = [p.reshape(n_workers, *shape) for p, shape in zip(parts, shapes, strict=True)]
        slots = np.empty((n_workers, 1, settings.rows_per_worker, SLOT_SIZE))
        queue, workers = np.zeros(2, np.int64), ActiveRows(slots, *parts)
        arguments = layout.sweep, settings, tilt, workers, queue, record
        in_parallel(solve_rows, arguments, n_workers)
    if tilt.precision.any():
        record.state[3] += tilt.precision
    return n_workers


def _log_partition(model, layout, record, tilt, order, n_workers):
    """Log-partition of every row; rows where it is not finite are marked as diverged."""
    if layout.sparse:
        values = _sparse_free_energy.log_partition_of_rows(layout, record.state, order, tilt)
    else:
        values = log_partition_of_rows(model, layout, record.state[:2], order, tilt, n_workers)
    record.status[~np.isfinite(values)] = DIVERGED
    if tilt.clamped.any():
        values += _clamped_terms(model, layout, record, tilt)
    values[record.status == DIVERGED] = -np.inf
    return values


def _clamped_terms(model, layout, record, tilt):
    """Terms of the clamped units in the log-partition: their priors and external tilts."""
    clamped = np.broadcast_to(tilt.clamped, record.state[0].shape)
    x = record.state[0].astype(np.float64)
    terms = tilt.field * x - tilt.precision * x * x / 2
    priors = (layout.prior,) if layout.sparse else model.layers
    for prior, units in zip(priors, layout.bounds, strict=True):
        if clamped[:, units].any():
            if not has_log_prob(prior):
                raise TypeError(
                    f"clamp needs a prior with log_prob; {type(prior).__name__} does not offer it "
                    "(or pass log_partition=False)."
                )
            terms[:, units] += np.where(clamped[:, units], prior.log_prob(x[:, units]), 0)
    return np.where(clamped, terms, 0).sum(1)
