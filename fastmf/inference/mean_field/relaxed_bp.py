"""Relaxed belief propagation: messages of small couplings, of which TAP is the limit."""

import numpy as np

from fastmf._common.arguments import iteration
from fastmf._outcomes import DIVERGED
from fastmf._threads import in_parallel, workers_for
from fastmf.inference.mean_field._layout import layout_of
from fastmf.inference.mean_field._rows import record_from, result, start_and_tilt
from fastmf.kernels.relaxed_bp import Course, Side
from fastmf.kernels.relaxed_bp import relaxed_bp as sweep_rows
from fastmf.models._layered import Layered


def relaxed_bp(
    model,
    init=None,
    *,
    field=None,
    precision=None,
    damping=None,
    tol=1e-8,
    max_iter=1000,
    history=False,
    n_threads=None,
    rng=None,
):
    """Iterate relaxed belief propagation to fixed points, from many starts at once.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    init : None, int, array, pair (mean, var) or FixedPoint
        Where to start, as in `tap`: messages begin as the mean and variance of the unit that sends
        them.
    field, precision : array or tuple of arrays, optional
        Extra tilt exp(field x - precision x^2 / 2), as in `tap`.
    damping : float in [0, 1), optional
        Share of the old fields. None: undamped, until a row does not advance over 16 sweeps; then
        just that row is damped by 1/2, 3/4, ... as needed.
    tol : float, default 1e-8
        A row has converged when no marginal mean changes by more in a sweep, or by no more than
        four units of rounding of its largest mean.
    max_iter : int, default 1000
    history : bool, default False
        Keep the residual of every sweep.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.
    rng : numpy.random.Generator or int, optional
        For random starts.

    Returns
    -------
    FixedPoint
        With marginals from all incoming messages, and as `log_partition` the Bethe estimate.

    Raises
    ------
    ValueError, TypeError
        For arguments of wrong shapes, types or ranges. Not converging is no error: it is said row
        by row in the result.

    Notes
    -----
    Tramel et al. (2018), Eqs. 57-60 and, for the log-partition, the symmetric form Eq. 65 (which is
    +log Z, not a free energy). Errors are of third order in the couplings; on a tree of Gaussian
    units everything is exact. A visit costs one evaluation of a unit's moments for each coupling,
    where TAP needs one for each unit; each thread holds 4 n_visible n_hidden numbers, whatever the
    number of rows. The Bethe estimate is not stationary in the messages, so that its derivative by
    a coupling is not made of the marginals as TAP's is.
    """
    damping, tol, max_iter, n_threads = iteration(damping, tol, max_iter, n_threads)
    layout = layout_of(model, 1, "blocked")
    dtype = model.dtype
    state, tilt, n_rows = start_and_tilt(model, layout, init, field, precision, None, rng)

    single = n_rows is None
    n_rows = 1 if single else n_rows
    record = record_from(state, max_iter, history)
    first, second = _sides(model)
    course = Course(
        damping=0.0 if damping is None else damping,
        adaptive=damping is None,
        tol=tol,
        max_iter=max_iter,
        resolution=float(np.finfo(dtype).eps),
    )
    outside = (
        part if len(part) else np.zeros((1, layout.n_units), dtype)
        for part in (tilt.field, tilt.precision)
    )
    log_partition = np.full(n_rows, -np.inf)
    n_workers = workers_for(n_rows, 100 * n_rows * layout.n_couplings, n_threads)
    arguments = first, second, course, *outside, np.zeros(1, np.int64), record, log_partition
    in_parallel(sweep_rows, arguments, n_workers)
    record.status[~np.isfinite(log_partition)] = DIVERGED
    log_partition[record.status == DIVERGED] = -np.inf
    return result(layout, record, log_partition, single)


def _sides(model):
    """The two visits of a sweep."""
    if isinstance(model, Layered):
        # The layout of a DBM has the order of this RBM's: even layers, then odd ones.
        model = model.bipartite()
        n = model.n_visible
        return (
            Side(model.hidden, model.weights, n, 0),
            Side(model.visible, model.transposed, 0, n),
        )
    side = Side(model.prior, model.couplings, 0, 0)
    return side, side
