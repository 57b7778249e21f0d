"""Fits of Potts machines: which objective, which solver, in which precision."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastmf._common.memory import check_available
from fastmf._threads.workers import for_each, one_blas_thread, workers_for
from fastmf.learning.pseudo_likelihood.fit import MAX_ITER, TOLERANCE_ROWS, minimise
from fastmf.learning.pseudo_likelihood.potts.objective import (
    AsymmetricObjective,
    Evaluator,
    PottsLayout,
    SymmetricObjective,
)
from fastmf.models._gauge import PositionStates

# Pairs of steps and changes of the gradient in the memory of L-BFGS.
_N_PAIRS = 6
# Parameters from which L-BFGS computes in single precision.
_MIN_SINGLE_PARAMETERS = 500_000


class Options(NamedTuple):
    """How to fit.

    `tol` is the predicted rise of `TOLERANCE_ROWS` rows at which a fit ends; `single` is the
    precision, by default of many parameters; `report` is called with the iteration and the value.
    """

    l2: float
    l2_field: float
    symmetric: bool = True
    tol: float = 1e-4
    max_iter: int = MAX_ITER
    single: bool | None = None
    report: Callable | None = None


class PottsFit(NamedTuple):
    """A fitted machine."""

    couplings: np.ndarray
    field: np.ndarray
    history: np.ndarray
    stopped: bool


def n_parameters(sizes):
    """Numbers of fields and of couplings of all pairs of states."""
    sizes = np.asarray(sizes, float)
    return sizes.sum() + (sizes.sum() ** 2 - (sizes**2).sum()) / 2


def starting_field(data):
    """Logarithms of counts of states plus one, less their means."""
    return PositionStates(data.sizes).zero_sum(np.log(data.counts + 1))


def fit(data, options, edges=None):
    """Maximise the log-pseudo-likelihood."""
    given, data = data, data.of_mean_weight_one()
    options = options._replace(tol=options.tol * data.total / TOLERANCE_ROWS)
    symmetric = options.symmetric
    result = _fit_symmetric(data, options, edges) if symmetric else _fit_asymmetric(data, options)
    return result._replace(history=result.history * (given.total / data.total))


def _precision(data, options):
    """The floating type to compute in."""
    single = options.single
    if single is None:
        single = n_parameters(data.sizes) >= _MIN_SINGLE_PARAMETERS
    # Products of larger penalties with the data would overflow.
    single = single and max(options.l2, options.l2_field) < float(np.finfo(np.float32).max) ** 0.5
    return np.dtype(np.float32 if single else np.float64)


def _fit_symmetric(data, options, edges):
    dtype = _precision(data, options)
    # History, scale, point and two gradients of half a matrix, two whole ones, and the result.
    n_bytes = data.n_states**2 * (((2 * _N_PAIRS + 5) / 2 + 2) * dtype.itemsize + 8)
    check_available(n_bytes, "this fit", "take solver='asymmetric', or fewer positions")
    objective = SymmetricObjective(data, options.l2, options.l2_field, dtype, edges)
    z = objective.start(starting_field(data))
    with one_blas_thread():
        minimum = minimise(
            objective, z, tol=options.tol, max_iter=options.max_iter, n_pairs=_N_PAIRS,
            callback=options.report,
        )  # fmt: skip
        couplings, field = objective.parameters(z)
    return PottsFit(couplings, field, -np.array(minimum.history), minimum.stopped)


def _fit_asymmetric(data, options):
    layout = PottsLayout(data.sizes, _precision(data, options))
    # Estimates of both positions of a pair, and then their averages in double precision.
    n_bytes = (8 + layout.dtype.itemsize) * data.n_states**2
    check_available(n_bytes, "this fit", "take fewer positions")
    rows, start = data.rows(layout), starting_field(data)
    results, field = np.empty((data.n_states,) * 2, layout.dtype), np.zeros(data.n_states)
    minima = [None] * layout.n_blocks

    def fit_block(block):
        objective = AsymmetricObjective(data, layout, rows, block, options.l2, options.l2_field)
        z = objective.start(start)
        result = minimise(
            objective, z, tol=options.tol / layout.n_blocks,
            max_iter=options.max_iter, n_pairs=_N_PAIRS,
        )  # fmt: skip
        table, field[objective.states] = objective.parameters(z)
        results[:, objective.states] = table[layout.place][:, objective.within]
        minima[block] = result._replace(parameters=None)

    work = len(data.labels) * data.n_states * layout.n_blocks
    with one_blas_thread():
        n_workers = workers_for(layout.n_blocks, work, data.n_threads)
        for_each(fit_block, range(layout.n_blocks), n_workers)
    average = np.add(results, results.T, dtype=float)
    average /= 2
    # The history is as if the separate fits had been done side by side.
    longest = max(len(one.history) for one in minima)
    histories = [one.history + one.history[-1:] * (longest - len(one.history)) for one in minima]
    return PottsFit(average, field, -np.sum(histories, 0), all(one.stopped for one in minima))


def log_pseudo_likelihood(data, couplings, field):
    """Log-pseudo-likelihood per unit of weight of the data, without penalties."""
    single = n_parameters(data.sizes) >= _MIN_SINGLE_PARAMETERS
    layout = PottsLayout(data.sizes, np.float32 if single else np.float64)
    tables = layout.couplings_to_blocks(couplings)
    h = layout.field_to_blocks(field)
    evaluator = Evaluator(layout, data.rows(layout), data.n_threads)
    total = evaluator.value_and_gradient(tables, h, np.empty_like(tables), np.empty_like(h))
    return total / data.total


def score_of(fields, labels, sizes):
    """Log-pseudo-likelihoods of rows of labels with their local fields, (n_rows, n_states)."""
    positions = PositionStates(sizes)
    states = positions.first + np.maximum(labels, 0)
    logs = np.take_along_axis(positions.log_softmax(fields), states, axis=1)
    return np.where(labels >= 0, logs, 0).sum(1)
