"""Selection of couplings along a path of penalties, by a criterion or by cross-validation.

By the extended Bayesian information criterion, for graphs with k couplings among d units, n rows:

    EBIC = -2 log PL + k log n + 4 gamma k log d

with the pseudo-likelihood at its maximum over the couplings of the graph (Foygel & Drton 2010, for
Gaussian graphs; Barber & Drton 2015, for the Ising model). The graphs are found with an l1
penalty that falls from where no coupling is left. In cross-validation each part of the rows is
scored by fits to all others, with the penalties of the path.
"""

from typing import NamedTuple

import numpy as np

from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs, maximum
from fastmf.learning.pseudo_likelihood.resampling import counts_of

# Penalties of a path, which ends a fifth of them after the smallest criterion; and the ratio of the
# smallest to the largest.
N_PENALTIES, SMALLEST = 100, 1e-3


class SelectionPath(NamedTuple):
    """Graphs along a path of penalties, the largest penalty first.

    Item by item (`fastmf.learning.pseudo_likelihood.nodewise`), arrays have a column for each item:
    penalties, neighbours and log-likelihoods of its regression on the others; `chosen` is an array.
    """

    l1: np.ndarray  # (n_penalties,): penalties
    n_edges: np.ndarray  # int (n_penalties,): couplings that are not zero
    # (n_penalties,): maximum over these couplings, without penalty `l1`
    log_pseudo_likelihood: np.ndarray
    ebic: np.ndarray  # (n_penalties,): criterion of each graph
    chosen: int  # index of the smallest criterion, or of the largest score
    # (n_penalties,), optional: by cross-validation, log-pseudo-likelihood of a row that was left
    # out
    score: np.ndarray | None = None


def ebic_path(objective, gamma, n_rows, tol):
    """Graphs of a path, and the couplings of the one that is chosen."""
    n, cost = objective.n_fields, np.log(n_rows) + 4 * gamma * np.log(objective.n_units)
    pairs, parameters = np.stack(objective.pairs, axis=1), objective.independent()
    penalties = _penalties(objective, N_PENALTIES)
    largest = penalties[0]
    graphs, values, values_of_graphs = [], [], {}
    for l1 in penalties:
        # At the largest penalty, to rounding, no coupling is left.
        if l1 < largest:
            parameters = lbfgs(objective, parameters, l1=l1, tol=tol).parameters
        coupled = parameters[n:] != 0
        key = coupled.tobytes()
        if key not in values_of_graphs:
            start = np.concatenate([parameters[:n], parameters[n:][coupled]])
            graph = objective.restricted(pairs[coupled])
            values_of_graphs[key] = graph.log_likelihood(maximum(graph, start, tol).parameters)
        graphs.append(coupled)
        values.append(values_of_graphs[key])
        sizes = np.sum(graphs, axis=1)
        ebic = -2 * np.array(values) + cost * sizes
        chosen = int(ebic.argmin())
        n_waited = len(values_of_graphs) - 1 - [*values_of_graphs].index(graphs[chosen].tobytes())
        if n_waited >= N_PENALTIES // 5:
            break
    path = SelectionPath(penalties[: len(values)], sizes, np.array(values), ebic, chosen)
    return path, pairs[graphs[chosen]]


def cross_validated_path(objective, gamma, n_rows, tol, n_folds=10, n_penalties=30):
    """Compute graphs of a path and the couplings of the penalty with the best held-out score."""
    n, pairs = objective.n_fields, np.stack(objective.pairs, axis=1)
    counts = counts_of(objective.weights * objective.total)
    penalties = _penalties(objective, n_penalties)
    fold = np.random.default_rng(0).permutation(np.arange(counts.sum()) % n_folds)
    row = np.repeat(np.arange(len(counts)), counts)
    score = np.zeros(len(penalties))
    for k in range(min(n_folds, counts.sum())):
        left_out = np.bincount(row[fold == k], minlength=len(counts)).astype(float)
        inside, outside = (objective.reweighted(w) for w in (counts - left_out, left_out))
        parameters = inside.independent()
        for m, l1 in enumerate(penalties):
            parameters = lbfgs(inside, parameters, l1=l1, tol=tol).parameters
            score[m] += outside.log_likelihood(parameters) / counts.sum()
    chosen, fits = int(score.argmax()), []
    parameters = objective.independent()
    for l1 in penalties:
        parameters = lbfgs(objective, parameters, l1=l1, tol=tol).parameters
        fits.append(parameters)
    sizes = np.array([int((fit[n:] != 0).sum()) for fit in fits])
    values = np.array([objective.log_likelihood(fit) for fit in fits])
    ebic = -2 * values + sizes * (np.log(n_rows) + 4 * gamma * np.log(objective.n_units))
    path = SelectionPath(penalties, sizes, values, ebic, chosen, score)
    return path, pairs[fits[chosen][n:] != 0]


def _penalties(objective, n_penalties):
    """Penalties from where no coupling is left."""
    n, parameters = objective.n_fields, objective.independent()
    largest = abs(objective.value_and_gradient(parameters)[1][n:]).max(initial=0.0)
    return largest * np.geomspace(1, SMALLEST, n_penalties)
