"""Draws from the spanning tree of the strongest couplings of a discrete Boltzmann machine."""

import numpy as np
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.special import logsumexp, softmax

from fastmf.inference.sampling.states import flat_states


def strengths(columns, couplings):
    """Norms of the couplings of all pairs of columns, less what fields could replace.

    Parameters
    ----------
    columns : FlatStates
    couplings : array of shape (n_units, n_units)

    Returns
    -------
    float64 array of shape (n_columns, n_columns)
    """
    first, sizes = columns.offsets[:-1], np.diff(columns.offsets)
    found = np.empty((len(first), len(first)))
    for i, (start, end) in enumerate(zip(first, columns.offsets[1:], strict=True)):
        J = (columns.values @ (columns.values[start:end] @ couplings).T).T
        J = J - J.mean(0)
        J = J - np.repeat(np.add.reduceat(J, first, axis=1) / sizes, sizes, axis=1)
        found[i] = np.sqrt(np.add.reduceat((J**2).sum(0), first))
    return found


def tree_draws(model, n_draws, rng):
    """Numbers of the states of all columns, with the couplings of the maximum spanning tree alone.

    Parameters
    ----------
    model : BoltzmannMachine
        With discrete units.
    n_draws : int
    rng : numpy Generator

    Returns
    -------
    int64 array of shape (n_draws, n_columns)
        Independent; exact if all couplings of the model are a tree.
    """
    columns = flat_states(model.prior)
    strength = strengths(columns, model.couplings)
    # Lengths are positive, as zeros are no edges.
    tree = minimum_spanning_tree(np.triu(1 + strength.max() - strength, 1))
    order, parent = breadth_first_order(tree, 0, directed=False)
    states = [slice(*ends) for ends in zip(columns.offsets, columns.offsets[1:], strict=False)]
    beliefs, given = columns.log_weights.copy(), {}
    for i in order[:0:-1]:
        own, up = columns.values[states[i]], columns.values[states[parent[i]]]
        logs = beliefs[states[i], None] + own @ (up @ model.couplings).T
        given[i] = softmax(logs, axis=0)
        beliefs[states[parent[i]]] += logsumexp(logs, axis=0)
    labels = np.zeros((n_draws, len(states)), np.int64)
    given[0] = softmax(beliefs[states[0]])[:, None]
    for i in order:
        cumulative = np.cumsum(given[i], axis=0)[:-1]
        above = labels[:, max(parent[i], 0)]  # the root has none, and labels are 0 before it
        labels[:, i] = (cumulative[:, above] <= rng.random(n_draws)).sum(0)
    return labels
