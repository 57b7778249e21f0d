"""Relaxed belief propagation: Gaussian messages, exact to second order in the couplings.

The equations are in `fastmf.kernels.mean_field.relaxed_bp`. TAP follows by expanding the messages
around the marginals.
"""

from functools import partial

import numpy as np

from fastmf._common.arguments import iteration, refusing_overflow
from fastmf._outcomes import DIVERGED
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.fixed_point import Question
from fastmf.inference.mean_field._layouts import layout_of, record_from, result, start_and_tilt
from fastmf.inference.mean_field.solutions import mixture
from fastmf.kernels.mean_field.relaxed_bp import (
    LayerView,
    RelaxedBPSettings,
    relaxed_bp_work,
    update_address,
)
from fastmf.kernels.mean_field.relaxed_bp import relaxed_bp as solve_rows
from fastmf.models._checks import read_only
from fastmf.models.boltzmann import dense_machine
from fastmf.models.layered import Layered
from fastmf.priors._compiled import units_of
from fastmf.priors._groups import NO_COVARIANCE, refuse_groups


@refusing_overflow
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
):
    """Compute marginals and the Bethe log-partition by relaxed belief propagation.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    init : None, "up", array, pair (mean, var) or FixedPoint
        Start, as in `tap`: the first messages are the mean and variance of the unit that sends
        them.
    field, precision : array or tuple of arrays, optional
        External tilt exp(field x - precision x^2 / 2), as in `tap`.
    damping : float in [0, 1), optional
        Weight of the old tilts b and a. None: undamped until the residual of a row stops decreasing
        over 16 sweeps; then that row is damped by 1/2, 3/4, ...
    tol : float, default 1e-8
        Largest change of a mean or variance in one more sweep of a row that has converged, messages
        included: see the notes of `FixedPoint`.
    max_iter : int, default 1000
    history : bool, default False
        Store the residual of every sweep.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.

    Returns
    -------
    FixedPoint
        Marginals from all incoming messages; `log_partition` is the Bethe estimate.

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        For arguments of wrong shapes, types or ranges, and numbers that overflow. Rows that do not
        converge raise no error: see `converged` and `message` of the result.

    Notes
    -----
    Tramel et al. (2018), Eqs. 57-60 and, for the log-partition, the symmetric form Eq. 65 (which is
    +log Z, not a free energy). Errors are of third order in the couplings; on a tree of Gaussian
    units everything is exact. An update evaluates the moments of a unit once for each coupling,
    where TAP evaluates them once for each unit; each thread holds 4 n_visible n_hidden numbers,
    whatever the number of rows. The Bethe estimate is not stationary in the messages, so that its
    derivative by a coupling is not a function of the marginals as it is in TAP.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> rng = np.random.default_rng(0)
    >>> model = mf.RBM(rng.normal(size=(8, 5)) / 4, mf.Ising(np.zeros(8)), mf.Ising(np.ones(5) / 2))
    >>> result, exact = mf.relaxed_bp(model), mf.exact(model)
    >>> bool(result.converged), bool(abs(result.log_partition - exact.log_partition) < 0.05)
    (True, True)
    """
    damping, tol, max_iter, n_threads = iteration(damping, tol, max_iter, n_threads)
    model = dense_machine("relaxed_bp", model)
    refuse_groups("relaxed_bp", model.layers, NO_COVARIANCE)
    layout = layout_of(model, 1, "blocked")
    dtype = model.dtype
    state, tilt, n_rows = start_and_tilt(model, layout, init, field, precision, None)

    record = record_from(state, max_iter, history)
    first, second = _layer_views(model)
    settings = RelaxedBPSettings(
        damping=0.0 if damping is None else damping,
        adaptive=damping is None,
        tol=tol,
        max_iter=max_iter,
        resolution=float(np.finfo(dtype).eps),
        update=update_address(dtype),
    )
    log_partition = np.full(len(record.status), -np.inf)
    work = 100 * len(log_partition) * layout.n_couplings
    n_workers = workers_for(len(log_partition), work, n_threads, max_iter)
    arguments = (
        first,
        second,
        settings,
        tilt.field,
        tilt.precision,
        relaxed_bp_work(n_workers, layout.n_units, first.couplings.size, dtype),
        record,
        log_partition,
    )
    in_parallel(solve_rows, arguments, n_workers)
    record.status[~np.isfinite(log_partition)] = DIVERGED
    log_partition[record.status == DIVERGED] = -np.inf
    question = Question(model, tilt, init is None, partial(mixture, relaxed_bp))
    return result(layout, record, log_partition, question, single=n_rows is None)


def _layer_views(model):
    """Return the layers in the order in which a sweep updates them."""
    if isinstance(model, Layered):
        # The layout of a DBM has the order of this RBM's: even layers, then odd ones.
        model = model.bipartite()
        n = model.n_visible
        return (
            LayerView(_units(model.hidden, model.dtype), model.weights, n, 0),
            LayerView(_units(model.visible, model.dtype), read_only(model.weights.T), 0, n),
        )
    layer = LayerView(_units(model.prior, model.dtype), model.couplings, 0, 0)
    return layer, layer


def _units(prior, dtype):
    return units_of(prior, dtype, ("moments", "log_partition"))
