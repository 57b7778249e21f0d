"""Fits of Potts machines: choice of objective and precision, and L-BFGS."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastmf._common.memory import check_available
from fastmf._threads.workers import for_each, one_blas_thread, workers_for
from fastmf.kernels.pseudo_likelihood.potts import LOW_FIELD
from fastmf.learning.pseudo_likelihood.fit import MAX_ITER, TOLERANCE_ROWS, minimise
from fastmf.learning.pseudo_likelihood.potts.objective import (
    AsymmetricObjective,
    Evaluator,
    PottsLayout,
    SymmetricObjective,
)
from fastmf.models._gauge import PositionStates

# Number of pairs of steps and changes of the gradient stored by L-BFGS.
_N_PAIRS = 6
# Smallest number of parameters for which L-BFGS uses single precision by default.
_MIN_SINGLE_PARAMETERS = 500_000


class Options(NamedTuple):
    """Options of a fit.

    A fit stops if the predicted gain of `TOLERANCE_ROWS` rows is below `tol`; `single` precision is
    the default for many parameters; `report` is called with the iteration and the value.
    """

    l2: float
    l2_field: float
    symmetric: bool = True
    tol: float = 1e-4
    max_iter: int = MAX_ITER
    single: bool | None = None
    report: Callable | None = None


class PottsFit(NamedTuple):
    """Result of a fit."""

    couplings: np.ndarray
    field: np.ndarray
    history: np.ndarray
    stopped: bool


def n_parameters(sizes):
    """Return the number of fields and couplings of all pairs of states."""
    sizes = np.asarray(sizes, float)
    return sizes.sum() + (sizes.sum() ** 2 - (sizes**2).sum()) / 2


def fit(data, options, edges=None):
    """Maximise the log-pseudo-likelihood."""
    original, data = data, data.of_mean_weight_one()
    options = options._replace(tol=options.tol * data.total / TOLERANCE_ROWS)
    symmetric = options.symmetric
    result = _fit_symmetric(data, options, edges) if symmetric else _fit_asymmetric(data, options)
    return result._replace(history=result.history * (original.total / data.total))


def _precision(data, options):
    """Return the floating-point type of the computation."""
    single = options.single
    if single is None:
        single = n_parameters(data.sizes) >= _MIN_SINGLE_PARAMETERS
    # Products of larger penalties with data would overflow.
    single = single and max(options.l2, options.l2_field) < float(np.finfo(np.float32).max) ** 0.5
    return np.dtype(np.float32 if single else np.float64)


def _fit_symmetric(data, options, edges):
    dtype = _precision(data, options)
    # Half matrices: history, scale, point and two gradients; two whole matrices, and the result.
    n_bytes = data.n_states**2 * (((2 * _N_PAIRS + 5) / 2 + 2) * dtype.itemsize + 8)
    check_available(n_bytes, "this fit", "take solver='asymmetric', or fewer positions")
    objective = SymmetricObjective(data, options.l2, options.l2_field, dtype, edges)
    z = objective.start()
    with one_blas_thread():
        minimum = minimise(
            objective, z, tol=options.tol, max_iter=options.max_iter, n_pairs=_N_PAIRS,
            callback=options.report,
        )  # fmt: skip
        couplings, field = objective.parameters(z)
    return PottsFit(couplings, field, -np.array(minimum.history), minimum.stopped)


def _fit_asymmetric(data, options):
    layout = PottsLayout(data.sizes, _precision(data, options))
    # Both estimates of each pair of positions, and their averages in double precision.
    n_bytes = (8 + layout.dtype.itemsize) * data.n_states**2
    check_available(n_bytes, "this fit", "take fewer positions")
    results, field = np.empty((data.n_states,) * 2, layout.dtype), np.zeros(data.n_states)
    rows, minima = data.rows(layout), [None] * (len(layout.bounds) - 1)

    def fit_block(block):
        objective = AsymmetricObjective(data, layout, rows, block, options.l2, options.l2_field)
        z = objective.start()
        result = minimise(
            objective, z, tol=options.tol / len(minima),
            max_iter=options.max_iter, n_pairs=_N_PAIRS,
        )  # fmt: skip
        table, field[objective.states] = objective.parameters(z)
        results[:, objective.states] = table[layout.place][:, objective.within]
        minima[block] = result._replace(parameters=None)

    work = len(data.labels) * data.n_states * len(minima)
    with one_blas_thread():
        n_workers = workers_for(len(minima), work, data.n_threads)
        for_each(fit_block, range(len(minima)), n_workers)
    average = np.add(results, results.T, dtype=float)
    average /= 2
    # Sum the histories of the separate fits, as if these had run in parallel.
    longest = max(len(one.history) for one in minima)
    histories = [one.history + one.history[-1:] * (longest - len(one.history)) for one in minima]
    return PottsFit(average, field, -np.sum(histories, 0), all(one.stopped for one in minima))


def log_pseudo_likelihood(data, couplings, field):
    """Compute the log-pseudo-likelihood per unit of weight, without penalties."""
    single = n_parameters(data.sizes) >= _MIN_SINGLE_PARAMETERS
    layout = PottsLayout(data.sizes, np.float32 if single else np.float64)
    tables = layout.couplings_to_blocks(couplings)
    h = layout.to_blocks(field, LOW_FIELD)
    evaluator = Evaluator(layout, data.rows(layout), data.n_threads)
    total = evaluator.value_and_gradient(tables, h, np.empty_like(tables), np.empty_like(h))
    return total / data.total


def score_of(fields, labels, sizes):
    """Compute log-pseudo-likelihoods of rows, given labels and local fields (n_rows, n_states)."""
    positions = PositionStates(sizes)
    states = positions.first + np.maximum(labels, 0)
    logs = np.take_along_axis(positions.log_softmax(fields), states, axis=1)
    return np.where(labels >= 0, logs, 0).sum(1)
