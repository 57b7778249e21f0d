"""Around decoding and uniqueness: restarts, local search, and Mooij and Kappen's certificate."""

import numpy as np

from fastmf._common.arguments import generator
from fastmf._threads import in_parallel, workers_for
from fastmf.kernels.bp_types import Record
from fastmf.kernels.local_search import climb

# Rounds of the power iteration; every one of them gives a valid bound.
ROUNDS = 200


def draws_per_row(model, n_restarts):
    """Random numbers that `scatter` takes for a row: in any company a row can have its own."""
    return (n_restarts + 1) * len(model.weights)


def scatter(model, bits, record, starts, n_starts, rng):
    """Assignments for rows to start from, but for the first of each `n_starts` rows.

    Those in `starts`, the same for each of them, or random ones where there are none.
    """
    n_rows, n = record.visible.shape
    if starts is None:
        visible = generator(rng).random((n_rows, n)) < 0.5
        visible[::n_starts] = False
    else:
        visible = np.tile(np.vstack([np.zeros((1, n), bool), starts]), (n_rows // n_starts, 1))
    m = model.weights.shape[1]
    record.hidden[:, :m] += (visible @ model.weights.astype(np.float64)) * bits.factor
    record.visible[:] = np.where(visible, 1.0, -1.0)
    record.visible[::n_starts] = 0


def polish_rows(model, bits, problem, record, joint, chunk, n_threads):
    """Make the best assignment of every row a local maximum, all in double precision.

    Returns
    -------
    bool array of shape (n_rows,)
        Whether no flip of one visible unit improves the assignment.
    """
    (n, m), n_rows = model.weights.shape, len(record.best)
    weights = model.weights.astype(np.float64)
    weights *= bits.factor
    optimal = np.zeros(n_rows, bool)
    exponentials = np.exp(weights[:0] if joint else weights)
    fields = problem.visible_field, np.ascontiguousarray(problem.hidden_field[:, :m])
    arguments = (
        joint, weights, exponentials, weights.sum(1), *fields, chunk, record.best,
        record.objective, optimal, np.zeros(1, np.int64),
    )  # fmt: skip
    in_parallel(climb, arguments, workers_for(n_rows, 20 * n_rows * n * m, n_threads))
    return optimal


def best_of(record, optimal, n_starts):
    """The record of the best of each `n_starts` rows, and whether it is a local maximum."""
    first = np.arange(0, len(record.objective), n_starts)
    chosen = first + record.objective.reshape(-1, n_starts).argmax(1)
    record = Record(*(part[chosen] if len(part) else part for part in record))
    return record, None if optimal is None else optimal[chosen]


def spectral_radius(weights):
    """Upper bound of the spectral radius of Mooij and Kappen (2007), Corollary 3.

    Below 1, sum-product has one fixed point and converges to it from any start, whatever the
    fields. By Collatz and Wielandt, max (A x)_i / x_i bounds the radius for every positive x; power
    iteration makes the bound tight, slowly so on trees (whose radius is 0).

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
        Of {0, 1} units: four times the couplings of spins.
    """
    strength = np.tanh(abs(weights.astype(np.float64)) / 4)
    x, bound = np.ones_like(strength), np.inf
    for _ in range(ROUNDS):
        back = strength * (x.sum(0) - x)
        new = strength * (back.sum(1, keepdims=True) - back)
        ratio = (new / x).max()
        if ratio >= bound * (1 - 1e-9):
            break
        bound = ratio
        # The shift keeps x positive, and stops it from alternating.
        x = new.clip(min=0) + 0.1 * bound * x + 1e-300
        x /= x.max()
        x = x.clip(min=1e-250)
    return float(np.sqrt(min(bound, ratio)))
