"""Draws from the spanning tree of the strongest couplings of a discrete Boltzmann machine.

Chains that start there are annealed to the machine, with resampling in proportion to their weights:
phases between which chains do not cross have the shares that the machine gives them.
"""

from itertools import pairwise

import numpy as np
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.special import logsumexp, softmax

from fastmf.inference.sampling.annealing import MIN_ANNEALED, RESAMPLE_BELOW, Population
from fastmf.inference.sampling.sequential import SequentialUnits
from fastmf.inference.sampling.states import flat_states
from fastmf.models import BoltzmannMachine
from fastmf.models._couplings import finite_machine
from fastmf.priors._groups import column_sizes


def strengths(columns, couplings):
    """Norms of the couplings of all pairs of columns, less what fields could replace."""
    first, sizes = columns.offsets[:-1], np.diff(columns.offsets)
    found = np.empty((len(first), len(first)))
    for i, (start, end) in enumerate(zip(first, columns.offsets[1:], strict=True)):
        J = (columns.values @ (columns.values[start:end] @ couplings).T).T
        J = J - J.mean(0)
        J = J - np.repeat(np.add.reduceat(J, first, axis=1) / sizes, sizes, axis=1)
        found[i] = np.sqrt(np.add.reduceat((J**2).sum(0), first))
    return found


def spanning_tree(columns, couplings):
    """Columns from the root of the maximum spanning tree on, and the parent of each column."""
    strength = strengths(columns, couplings)
    # Lengths are positive, as zeros are no edges.
    tree = minimum_spanning_tree(np.triu(1 + strength.max() - strength, 1))
    return breadth_first_order(tree, 0, directed=False)


def tree_draws(model, columns, tree, n_draws, rng):
    """Independent draws with the couplings of a tree alone."""
    order, parent = tree
    states = [slice(*ends) for ends in pairwise(columns.offsets)]
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
    one_hot = np.zeros((n_draws, columns.offsets[-1]))
    np.put_along_axis(one_hot, columns.offsets[:-1] + labels, 1, axis=1)
    return columns.means(one_hot).astype(model.dtype)


def annealed_draws(model, n_draws, n_sweeps, rng):
    """Draws of a machine of discrete units; exact if all of its couplings are a tree."""
    model = finite_machine("Gibbs sampling", model)
    columns = flat_states(model.prior)
    order, parent = tree = spanning_tree(columns, model.couplings)
    beside = np.ones((len(parent), len(parent)), bool)
    beside[order[1:], parent[order[1:]]] = beside[parent[order[1:]], order[1:]] = False
    n_chains, n_last = max(n_draws, MIN_ANNEALED), n_sweeps // 2
    column = np.repeat(np.arange(len(parent)), column_sizes(model.prior))
    added = model.couplings * beside[np.ix_(column, column)]
    x, population = tree_draws(model, columns, tree, n_chains, rng), Population(n_chains)
    for old, new in pairwise(np.linspace(0, 1, n_sweeps - n_last + 1)):
        population.add((new - old) / 2 * np.einsum("ij,ij->i", x @ added, x, dtype=np.float64))
        if new == 1 or population.effective_size() < RESAMPLE_BELOW * n_chains:
            x = x[population.resample(rng)]
        between = model.couplings - model.dtype.type(1 - new) * added
        x = SequentialUnits(BoltzmannMachine(between, model.prior)).sample(x, 1, rng)
    return SequentialUnits(model).sample(x[rng.permutation(n_chains)[:n_draws]], n_last, rng)
