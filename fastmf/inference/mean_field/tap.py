"""Naive mean field, TAP and third-order fixed points of machines with any unit priors.

With symmetric couplings W (0 within a layer), the means m and variances v of all units obey

    a = -(W^2)' v                   Onsager term (W^2 is the elementwise square); 0 for order 1
    b = W' m + a m                  order 3 adds (W^3)' k k'(m) / 6, k the third cumulant
    (m, v) = moments(b + field, a + precision)          of prior(x) exp(b x - a x^2 / 2)

and, at a solution, log Z = sum_i [log Z_i - b m + a (m^2 + v) / 2] + sum_(i,j) [W m_i m_j +
W^2 v_i v_j / 2 + W^3 k_i k_j / 6], with each pair once and the terms of the order asked for.
"""

from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.memory import aligned
from fastmf._common.rows import is_sparse
from fastmf._outcomes import DIVERGED
from fastmf._threads.workers import VECTOR_SPEED, in_parallel, workers_for
from fastmf.inference.fixed_point import Question
from fastmf.inference.mean_field._layouts import (
    layout_of,
    record_from,
    result,
    rows_per_worker,
    start_and_tilt,
)
from fastmf.inference.mean_field._sparse_layout import measure_sparse, solve_sparse
from fastmf.inference.mean_field.solutions import mixture
from fastmf.kernels.linear.product import TASK_ROWS
from fastmf.kernels.mean_field.tap import given_work, log_partitions
from fastmf.kernels.mean_field.tap import moments_given as rows_given
from fastmf.kernels.mean_field.tap import tap as solve_rows
from fastmf.kernels.mean_field.units import (
    EARLY_RESIDUAL,
    LATE_RESIDUAL,
    SLOT_SIZE,
    ActiveRows,
    Sweep,
    TapSettings,
    Tilt,
    units_address,
)
from fastmf.models.boltzmann import check_machine
from fastmf.priors._protocol import has_log_prob
from fastmf.priors._values import data_fields


@check.refusing_overflow
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
):
    """Solve the mean-field equations of a machine: means, variances and log-partition.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    init : None, "up", array, pair (mean, var) or FixedPoint
        Starting point. None: moments of the uncoupled units. "up": all units at their largest
        values. An array (n_rows, n_units) of the first layer: data, with variance 0, as labels for
        categorical units (negative if missing). A pair or a result: means and variances, for all
        layers as tuples.
    order : {1, 2, 3}, default 2
        1: naive mean field (a lower bound of log Z); 2: TAP; 3: third order, for binary units.
    schedule : {"blocked", "sequential"}, default "blocked"
        Update whole layers, or blocks of units, at a time, or one unit after another.
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

    Returns
    -------
    FixedPoint
        `reliable` and `message` say for each row whether it can be trusted.

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        If arguments have wrong shapes, types or ranges, couplings are -inf, or numbers overflow.

    Notes
    -----
    Tramel et al. (2018), Algorithm 1 and Eqs. 33-36, with Eq. 32 corrected to
    Z = integral of prior(x) exp(B x - A x^2 / 2); Appendix E for deep machines, whose odd layers
    are updated first. The third order omits triangles of units. Where a row oscillates, Onsager
    terms are evaluated at the average of the old and the new mean. For machines with Gaussian units
    it is more accurate to solve `model.integrate_gaussians()`.

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
    check_machine(model, "tap")
    options = TapOptions(
        order, schedule, damping, tol, max_iter, acceleration, history, log_partition, n_threads
    ).checked()
    layout = layout_of(model, options.order, options.schedule)
    state, tilt, n_rows = start_and_tilt(model, layout, init, field, precision, clamp)
    record, values = solve(layout, state, tilt, options)
    if layout.sparse:
        tilt = tilt._make(layout.split(part) for part in tilt)
    question = Question(model, tilt, init is None, partial(mixture, partial(tap, order=order)))
    return result(layout, record, values, question, single=n_rows is None)


class TapOptions(NamedTuple):
    """Options of `tap` that are not arrays, with the same defaults."""

    order: int = 2
    schedule: str = "blocked"
    damping: float | None = None
    tol: float = 1e-8
    max_iter: int = 1000
    acceleration: bool = True
    history: bool = False
    log_partition: bool = True
    n_threads: int | None = None

    def checked(self):
        """Return the options, or raise an error for wrong types or ranges."""
        damping = self.damping
        if damping is not None:
            damping = check.number("damping", damping, 0, 1, below=True)
        return self._replace(
            order=check.one_of("order", self.order, (1, 2, 3)),
            schedule=check.one_of("schedule", self.schedule, ("blocked", "sequential")),
            damping=damping,
            tol=check.number("tol", self.tol, 0, np.inf),
            max_iter=check.count("max_iter", self.max_iter),
            acceleration=check.flag("acceleration", self.acceleration),
            n_threads=check.count("n_threads", self.n_threads, optional=True),
        )


def moments_given(model, X, order=1, n_threads=None):
    """Compute fields, means and variances of the hidden units of an RBM, given visible rows.

    `order` selects the layout that is used; results do not depend on it.
    """
    layout = layout_of(model, order, "blocked")
    if layout.grouped or is_sparse(X) or X.shape[1] != model.n_visible:
        b = data_fields(model.visible, X, model.weights, n_threads)
        return np.array([b, *model.hidden.moments(b, b.dtype.type(0))])
    X = np.ascontiguousarray(X, model.dtype)
    return moments_in(given_memory(layout, len(X), n_threads), layout, X)


def given_memory(layout, n_rows, n_threads=None):
    """Allocate moments and work memory for `moments_given` rows; choose the number of workers."""
    layer, work = layout.layers.of_model[1], n_rows * layout.n_couplings // VECTOR_SPEED
    n_workers = workers_for(-(-n_rows // TASK_ROWS), work, n_threads)
    moments = np.empty((3, n_rows, layer.n_units), layer.couplings.dtype)
    return moments, given_work(layer, n_workers), n_workers


def moments_in(memory, layout, X):
    """Compute `moments_given` rows in the memory for them, and return it."""
    moments, work, n_workers = memory
    work.queue[:] = 0
    in_parallel(rows_given, (layout.layers, 1, X, moments, work), n_workers)
    return moments


class SweepsFromData:
    """Run TAP sweeps of RBMs of the same shape from rows of data; calls share their memory."""

    def __init__(self, order, n_sweeps, n_threads=None):
        self.order, self.n_threads, self._n_sweeps = order, n_threads, n_sweeps
        self._arrays = {}

    def __call__(self, model, X, given):
        """Return mean, var, b and a of each layer, and joined, which the next call overwrites.

        `given` has the moments of the hidden units given X, see `moments_given`: half a sweep.
        """
        layout = layout_of(model, self.order, "blocked")
        if len(X) not in self._arrays:
            self._arrays[len(X)] = self._allocated(layout, len(X))
        start, queue, arguments, n_workers, moments = self._arrays[len(X)]
        start[:] = queue[:] = 0
        layout.join((X, None), start[0])
        start[:2, :, X.shape[1] :], start[2, :, X.shape[1] :] = given[1:], given[0]
        in_parallel(solve_rows, (Sweep(layout.layers, layout.blocks), *arguments), n_workers)
        return moments

    def _allocated(self, layout, n_rows):
        """Allocate for `n_rows`: start, queue, arguments of the kernel, n_workers, moments."""
        dtype = layout.layers.of_model[0].couplings.dtype
        state = np.zeros((4, n_rows, layout.n_units), dtype)
        record = record_from(state, self._n_sweeps, history=False)
        none = np.zeros((1, layout.n_units), dtype)
        work = self._n_sweeps * self.order * n_rows * layout.n_couplings // VECTOR_SPEED
        n_workers = workers_for(n_rows, work, self.n_threads)
        settings = TapSettings(
            order=self.order,
            tol=0.0,
            max_iter=self._n_sweeps,
            **layout.addresses,
            late_residual=0.0,
            rows_per_worker=rows_per_worker(n_rows, n_workers, layout.max_worker_rows),
            resolution=float(np.finfo(dtype).eps),
            first_block=int(np.count_nonzero(layout.blocks[:, 0] == 1)),
        )
        queue, tilt = np.zeros(2, np.int64), Tilt(none, none, none > 0)
        arguments = settings, tilt, workers_of(layout, settings, n_workers), queue, record
        parts = dict(zip(("mean", "var", "b", "a"), map(layout.split, state), strict=True))
        return state, queue, arguments, n_workers, SimpleNamespace(joined=state, **parts)


def solve(layout, state, tilt, options):
    """Iterate rows from a state, (4, n_rows, n_units), until each has ended.

    Return their record and log-partitions (None unless `options.log_partition`).
    """
    record = record_from(state, options.max_iter, options.history)
    settings = TapSettings(
        order=options.order,
        damping=options.damping or 0.0,
        adaptive=options.damping is None,
        tol=options.tol,
        max_iter=options.max_iter,
        **layout.addresses,
        early_residual=EARLY_RESIDUAL if options.acceleration else 0.0,
        late_residual=LATE_RESIDUAL if options.acceleration else 0.0,
        one_by_one=layout.one_by_one,
        resolution=float(np.finfo(state.dtype).eps),
    )
    if layout.sparse:
        solve_sparse(layout, record, tilt, settings, options.n_threads)
    else:
        _call_with_memory(solve_rows, layout, record, tilt, settings, options.n_threads)
    values = None
    if options.log_partition:
        values = log_partition_of_rows(layout, record, tilt, settings, options.n_threads)
    if tilt.precision.any():
        record.state[3] += tilt.precision
    return record, values


def _call_with_memory(kernel, layout, record, tilt, settings, n_threads, *results):
    """Allocate the memory of workers, and call a kernel on the rows of a record."""
    n_rows = record.state.shape[1]
    work = 10 * n_rows * layout.n_couplings
    n_workers = workers_for(n_rows, work, n_threads, settings.max_iter)
    settings = settings._replace(
        rows_per_worker=rows_per_worker(n_rows, n_workers, layout.max_worker_rows)
    )
    workers, queue = workers_of(layout, settings, n_workers), np.zeros(2, np.int64)
    sweep = Sweep(layout.layers, layout.blocks)
    in_parallel(kernel, (sweep, settings, tilt, workers, queue, record, *results), n_workers)


def workers_of(layout, settings, n_workers):
    """Allocate the memory of all workers."""
    n_slots, n_planes = settings.rows_per_worker, 6 if settings.order == 3 else 5
    n_units, n_columns, n_fields = layout.n_units, layout.max_columns, layout.n_group_fields
    shapes = [
        (n_planes, n_slots, n_units),
        (4 if n_fields else 3, n_slots, n_columns),
        (5, max(n_columns, n_units)),
        (1, n_slots, n_fields),
    ]
    dtype, slots = layout.layers.of_model[0].couplings.dtype, (n_workers, 1, n_slots, SLOT_SIZE)
    return ActiveRows(np.empty(slots), *(aligned((n_workers, *shape), dtype) for shape in shapes))


def log_partition_of_rows(layout, record, tilt, settings, n_threads=None):
    """Compute the log-partition of every row; where it is not finite, the row has diverged."""
    n_sweeps, finish = 1 + layout.grouped, units_address(record.state.dtype, measure=True)
    settings = settings._replace(finish=finish, measures=True, max_iter=n_sweeps)
    values = np.empty(record.state.shape[1])
    if layout.sparse:
        measure_sparse(layout, record, tilt, settings, n_threads, values)
    else:
        _call_with_memory(log_partitions, layout, record, tilt, settings, n_threads, values)
    record.status[~np.isfinite(values)] = DIVERGED
    if tilt.clamped.any():  # terms of clamped units: their priors and external tilts
        x = record.state[0].astype(np.float64)
        clamped, terms = np.broadcast_to(tilt.clamped, x.shape), tilt.field * x
        terms -= tilt.precision * x * x / 2
        for prior, units in zip(layout.priors, layout.bounds, strict=True):
            some = clamped[:, units].any()
            if some and not has_log_prob(prior):
                raise TypeError(
                    f"clamp needs a prior with log_prob; {type(prior).__name__} does not offer it "
                    "(or pass log_partition=False)."
                )
            terms[:, units] += prior.log_prob(x[:, units]) if some else 0
        values += terms.sum(1, where=clamped)
    values[record.status == DIVERGED] = -np.inf
    return values
