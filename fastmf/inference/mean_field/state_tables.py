"""Discrete machines as log-weights of the states of each unit, and tables for pairs of units."""

import numpy as np
from scipy.sparse import csr_array

from fastmf.priors._protocol import has_log_prob
from fastmf.priors._queries import columns_of_values


def states_of_units(prior, field, precision, free):
    """States of the free units of a discrete prior.

    Parameters
    ----------
    prior : unit prior
        In double precision; a group of states is one unit.
    field, precision : array of shape (n_columns,)
        Tilts exp(field x - precision x^2 / 2).
    free : bool array of shape (n_columns,)
        Columns of the units that are wanted.

    Returns
    -------
    values : csr_array of shape (n_units * q, n_free_columns)
        Row q i + a has the values that the columns have where unit i is in state a.
    log_weights : array of shape (n_units, q)
        -inf for states that a unit does not have.
    None, None
        If not all units are discrete.
    """
    columns = columns_of_values(prior)
    if columns is None or not has_log_prob(prior):
        return None, None
    widths = np.array([values.shape[1] for values in columns], int)
    counts = np.array([len(values) for values in columns], int)
    firsts = np.cumsum(widths) - widths
    q = counts.max(initial=1)
    # States beyond the last of a unit repeat it, so that log_prob meets no other values.
    whole = np.hstack(
        [np.zeros((q, 0))]
        + [v[np.minimum(np.arange(q), len(v) - 1)].astype(np.float64) for v in columns]
    )
    log_weights = np.empty((len(columns), q))
    if len(columns):
        own = prior.log_prob(whole) + field * whole - precision * whole * whole / 2
        log_weights = np.add.reduceat(own, firsts, axis=1).T
    log_weights = np.where(np.arange(q) < counts[:, None], log_weights, -np.inf)
    unit_of_column = np.repeat(np.arange(len(columns)), widths)[free]
    kept, unit_of_column = np.unique(unit_of_column, return_inverse=True)
    rows = unit_of_column * q + np.arange(q)[:, None]
    cells = rows.ravel(), np.tile(np.arange(len(unit_of_column)), q)
    shape = len(kept) * q, len(unit_of_column)
    return csr_array((whole[:, free].ravel(), cells), shape=shape), log_weights[kept]


def pair_tables(values, couplings, log_weights):
    """Couplings of the states of all pairs of units.

    Parameters
    ----------
    values, log_weights : pair of arrays
        Values and log-weights of the units of the rows and of the columns of `couplings`, as
        `states_of_units` gives them.
    couplings : array

    Returns
    -------
    array of shape (n_units, n_others, q, r)
    """
    (n, q), (m, r) = (part.shape for part in log_weights)
    products = (values[1] @ (values[0] @ couplings).T).T
    return products.reshape(n, q, m, r).transpose(0, 2, 1, 3).copy()
