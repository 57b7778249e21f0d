"""What the kernels of belief propagation are given, and what they leave."""

from typing import NamedTuple

import numpy as np

# Visible units whose messages are multiplied together before anything else is done with them.
BLOCK = 256
# Visible units whose beliefs are computed side by side.
TILE = 16
# Visible units of one task of `pair_beliefs`.
PAIR_BLOCK = 16
# Hidden units are padded to a multiple of this.
PADDING = 32
# Sweeps without a new smallest residual after which a row is damped (more).
WINDOW = 16
MOST_DAMPING = 0.97

SUM, MAX, MIXED = 0, 1, 2


class Problem(NamedTuple):
    """Couplings and fields of {0, 1} units.

    Parameters
    ----------
    weights : array of shape (n_visible, n_padded)
        Not read by sum-product, which may have none.
    exponentials : array of shape (n_visible, n_padded)
        exp(weights); not read by max-product, which may have none.
    row_sums : float64 array of shape (n_visible,)
        Sums of the rows of `weights`; read by mixed-product only.
    visible_field : float64 array of shape (1 or n_rows, n_visible)
    hidden_field : float64 array of shape (1 or n_rows, n_padded)
    """

    weights: np.ndarray
    exponentials: np.ndarray
    row_sums: np.ndarray
    visible_field: np.ndarray
    hidden_field: np.ndarray


class Settings(NamedTuple):
    """How to iterate.

    Parameters
    ----------
    algorithm : int
        SUM, MAX or MIXED.
    adaptive : bool
        Whether rows that make no progress are damped.
    tol : float
    rounding : float
        Change of a belief that rounding may leave; no row is asked for less.
    max_iter : int
    fold : bool
        Whether four factors of a product fit in the type of the messages.
    chunk, flush, refresh : int
        So many factors of a row's product fit in a float64, so many of a column's product in the
        type of the messages, and so many in a float64.
    """

    algorithm: int
    adaptive: bool
    tol: float
    rounding: float
    max_iter: int
    fold: bool
    chunk: int
    flush: int
    refresh: int


class Record(NamedTuple):
    """State of all rows, and how they ended.

    Parameters
    ----------
    visible, hidden : float64 array of shape (n_rows, n_visible) and (n_rows, n_padded)
        Log-odds of the beliefs.
    best : bool array of shape (n_rows, n_visible)
        Best assignment seen, of max- and mixed-product.
    objective : float64 array of shape (n_rows,)
        Its log-probability but for log Z, the hidden units maximised or summed.
    bethe : float64 array of shape (n_rows,)
        Bethe log-partition, of sum-product.
    status, n_iter : int64 array of shape (n_rows,)
    residual, damping, smallest : float64 array of shape (n_rows,)
        Largest change of a belief in the last sweep, damping of all that do not confirm another,
        smallest residual so far.
    since : int64 array of shape (n_rows,)
        Sweeps since then.
    history : float64 array of shape (n_rows, max_iter) or (0, 0)
    """

    visible: np.ndarray
    hidden: np.ndarray
    best: np.ndarray
    objective: np.ndarray
    bethe: np.ndarray
    status: np.ndarray
    n_iter: np.ndarray
    residual: np.ndarray
    damping: np.ndarray
    smallest: np.ndarray
    since: np.ndarray
    history: np.ndarray


class Partial(NamedTuple):
    """What the blocks of a sweep leave to its end; one seat for each worker (or shared row).

    Parameters
    ----------
    beliefs : array of shape (n_seats, 3, n_padded)
        p, q and log-odds of the hidden units, in the type of the messages.
    logs : float64 array of shape (n_seats, n_blocks, n_padded)
        Sums of the logarithms of the messages to each hidden unit.
    fields : float64 array of shape (n_seats, n_blocks, n_padded)
        The same of the couplings of decoded units; max-product only.
    change, value : float64 array of shape (n_seats, n_blocks)
        Largest change of a belief; field of the decoded units.
    """

    beliefs: np.ndarray
    logs: np.ndarray
    fields: np.ndarray
    change: np.ndarray
    value: np.ndarray


class Work(NamedTuple):
    """What one worker writes on: messages to a tile of visible units, their beliefs, products."""

    received: np.ndarray
    visible: np.ndarray
    product: np.ndarray
    wide: np.ndarray
