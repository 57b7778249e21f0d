"""Most probable assignments of two layers of binary units, by enumeration or by moves of layers.

Where one layer has few states, each is completed by the best state of the other, so that the best
assignment is found. Otherwise whole layers are moved in turn at a temperature T that falls to 0, in
several chains for each row:

    h = 1 where c + W'v + T e > 0,    v = 1 where b + W h + T e > 0,    e logistic noise.

Where hidden units are summed out, h are averages of 1 / T replicas of hidden units, so that at low
temperatures each step raises log p(v), as in expectation-maximisation (Doucet et al. 2002).
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from fastmf._threads.workers import one_blas_thread

# Numbers of all states of a layer, and all rows, up to which these are enumerated.
MAX_LAYER_NUMBERS, MAX_LAYER = 1 << 24, 20
# Field of a unit beyond all of its weights that decides on its state.
DECISIVE = 50.0
# Chains of each row, their sweeps, the first temperature relative to the fields, and the share of
# sweeps that end it.
N_BLOCK_CHAINS, N_BLOCK_SWEEPS, FIRST_TEMPERATURE, ANNEALED_SHARE = 16, 100, 0.5, 0.8
# Products of all rows up to which layers are moved, and numbers in the chains moved at a time.
MAX_BLOCK_PRODUCTS, _CHAIN_NUMBERS = 2e9, 1 << 20


class Assignments(NamedTuple):
    """Visible {0, 1} units of rows.

    Parameters
    ----------
    visible : bool array of shape (n_rows, n_visible)
    objective : float64 array of shape (n_rows,)
    is_best : bool
        Whether all states of a layer were compared; none is more probable then.
    """

    visible: np.ndarray
    objective: np.ndarray
    is_best: bool


@one_blas_thread()
def best_assignments(units, joint, visible, rng=0, effort=1):
    """Assignments that are as probable as given ones, or more.

    Parameters
    ----------
    units : BinaryUnits
    joint : bool
        Whether hidden units are maximised, too; otherwise they are summed out.
    visible : bool array of shape (n_rows, n_visible)
        Given {0, 1} units.
    rng : int
    effort : int
        Multiple of the sweeps.

    Returns
    -------
    Assignments, or None if the layers are large
    """
    weights, fields = problem_of(units, len(visible))
    n_rows, own = len(visible), objective_of(weights, fields, joint, visible)
    found = _enumerated(weights, fields, joint)
    if found is not None:
        # Where they are as probable, the given ones stay.
        same = found.objective <= own + 1e-12 * (1 + abs(own))
        return found._replace(visible=np.where(same[:, None], visible, found.visible))
    products = 2.0 * effort * N_BLOCK_CHAINS * N_BLOCK_SWEEPS * weights.size * n_rows
    if products > MAX_BLOCK_PRODUCTS or not weights.size:
        return None
    best, objective = visible.copy(), own.copy()
    step = max(1, _CHAIN_NUMBERS // (N_BLOCK_CHAINS * sum(weights.shape)))
    for first in range(0, n_rows, step):
        rows = slice(first, first + step)
        some = weights, [f[rows] for f in fields], joint
        new, values = _annealed(*some, visible[rows], np.random.default_rng(rng), effort)
        better = values > objective[rows]
        best[rows][better], objective[rows][better] = new[better], values[better]
    return Assignments(best, objective, False)


def problem_of(units, n_rows):
    """Weights of {0, 1} units, and fields of all rows.

    Fields that decide on a unit whatever the others are do not drown the weights in their sums.
    """
    weights, fields = units.weights(), []
    for axis, field in enumerate(units.fields):
        decisive = 2 * abs(weights).sum(1 - axis) + DECISIVE
        clipped = np.clip(field, -decisive, decisive)
        fields.append(np.broadcast_to(clipped, (n_rows, field.shape[1])))
    return weights, fields


def objective_of(weights, fields, joint, visible):
    """Exponent of visible states with the best hidden ones, or log p(v) without its constant.

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
    fields : pair of arrays of shape (n_rows, n_units)
    joint : bool
    visible : array of shape (n_rows, n_visible)
    """
    b = fields[1] + visible @ weights
    return (visible * fields[0]).sum(-1) + _of_hidden(b, joint)


def _of_hidden(b, joint):
    return np.maximum(b, 0).sum(-1) if joint else np.logaddexp(0, b).sum(-1)


def _enumerated(weights, fields, joint):
    """The best `Assignments` by all states of one layer; None where these are many."""
    n, m = weights.shape
    n_rows = len(fields[0])
    by_hidden = joint and m < n
    size = m if by_hidden else n
    if size > MAX_LAYER or n_rows * 2.0**size * (n + m) > MAX_LAYER_NUMBERS:
        return None
    states = ((np.arange(2**size)[:, None] >> np.arange(size)) & 1).astype(np.float64)
    sums = states @ (weights.T if by_hidden else weights)
    best = np.empty((n_rows, n), bool)
    for k in range(n_rows):
        own, other = (f[k] for f in (fields[::-1] if by_hidden else fields))
        top = (states @ own + _of_hidden(sums + other, joint)).argmax()
        best[k] = sums[top] + other > 0 if by_hidden else states[top] > 0
    return Assignments(best, objective_of(weights, fields, joint, best), True)


def _annealed(weights, fields, joint, visible, rng, effort):
    """Best states of chains of some rows, and their objectives."""
    n_rows, n = visible.shape
    fields = [f[:, None] for f in fields]
    v = (rng.random((n_rows, N_BLOCK_CHAINS, n)) < 0.5).astype(np.float64)
    v[:, 0] = visible
    hot = FIRST_TEMPERATURE * np.sqrt((weights**2).sum() / min(weights.shape))
    best, objective = visible.copy(), np.full(n_rows, -np.inf)
    n_sweeps, rows = effort * N_BLOCK_SWEEPS, np.arange(n_rows)
    for k in range(n_sweeps):
        T = hot * max(0.0, 1 - k / (ANNEALED_SHARE * n_sweeps))
        h = _moved(v @ weights + fields[1], T, joint, rng)
        v = _moved(h @ weights.T + fields[0], T, True, rng)
        if k % 5 and k < n_sweeps - 1:
            continue
        values = objective_of(weights, fields, joint, v)
        top = values.argmax(1)
        better = values[rows, top] > objective
        best[better] = v[rows, top][better] > 0.5
        objective[better] = values[rows, top][better]
    return best, objective


def _moved(b, T, decided, rng):
    """States of units of the fields b at a temperature, or averages of 1 / T replicas of them."""
    if not decided and T < 1:
        p = expit(b)
        noise = np.sqrt(p * (1 - p) * T) * rng.standard_normal(b.shape) if T else 0.0
        return np.clip(p + noise, 0, 1)
    noise = T * rng.logistic(size=b.shape) if T else 0.0
    return (b + noise > 0).astype(np.float64)
