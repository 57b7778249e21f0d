"""Rows that lack as many columns, whichever these are, as one batch of states to enumerate."""

import numpy as np


def batches_of_rows(missing, offsets):
    """Batches of rows whose missing columns have the same numbers of states.

    Parameters
    ----------
    missing : bool array of shape (n_rows, n_columns)
    offsets : int array of shape (n_columns + 1,)
        First state of each column, and the number of all.

    Yields
    ------
    rows : int array of shape (n,)
    states : int array of shape (n, k)
        The states of the missing columns of each row, the smallest columns first.
    sizes : int array
        Numbers of states of the missing columns, in this order.
    """
    sizes = np.diff(offsets)
    distinct = np.unique(sizes)
    counts = np.stack([missing[:, sizes == size].sum(1) for size in distinct], 1)
    batches, batch = np.unique(counts, axis=0, return_inverse=True)
    for number, counts in enumerate(batches):
        rows = np.flatnonzero(batch.reshape(-1) == number)
        own = np.repeat(distinct, counts)
        key = np.where(missing[rows], sizes, sizes.max() + 1)
        columns = np.argsort(key, axis=1, kind="stable")[:, : len(own)]
        within = np.concatenate([np.arange(size) for size in own] or [np.zeros(0, int)])
        yield rows, np.repeat(offsets[columns], own, axis=1) + within, own


def one_hot_states(sizes):
    """All states of some columns, one-hot: (n_states, sum of sizes)."""
    states = np.zeros((1, 0))
    for size in sizes:
        new = np.tile(np.eye(size), (len(states), 1))
        states = np.hstack([np.repeat(states, size, axis=0), new])
    return states
