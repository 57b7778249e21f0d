"""Selection of couplings by the extended Bayesian information criterion along a path of penalties.

For graphs with k couplings among d units and n rows,

    EBIC = -2 log PL + k log n + 4 gamma k log d

with the pseudo-likelihood at its maximum over the couplings of the graph (Foygel & Drton 2010, for
Gaussian graphs; Barber & Drton 2015, for the Ising model). The graphs are those of an l1 penalty
that falls from where no coupling is left.
"""

from typing import NamedTuple

import numpy as np

from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs
from fastmf.learning.pseudo_likelihood.newton import newton

# Penalties of a path, and the smallest one, of the largest.
N_PENALTIES, SMALLEST = 100, 1e-3
# A path ends after so many graphs whose criterion is above the smallest so far.
PATIENCE = 10
# Parameters up to which a graph is fitted by Newton's method, which factorises their Hessian.
MAX_NEWTON_PARAMETERS = 1300


class SelectionPath(NamedTuple):
    """Graphs along a path of penalties, the largest penalty first.

    Parameters
    ----------
    l1 : array of shape (n_penalties,)
        Penalties.
    n_edges : int array of shape (n_penalties,)
        Couplings that are not zero.
    log_pseudo_likelihood : array of shape (n_penalties,)
        Maximum over these couplings, without penalty `l1`.
    ebic : array of shape (n_penalties,)
        Criterion of each graph.
    chosen : int
        Index of the smallest criterion.
    """

    l1: np.ndarray
    n_edges: np.ndarray
    log_pseudo_likelihood: np.ndarray
    ebic: np.ndarray
    chosen: int


def ebic_path(objective, restricted, gamma, n_rows, tol):
    """Graphs of a path, and the couplings of the one that is chosen.

    Parameters
    ----------
    objective : CompositeLikelihood
        With all couplings that may be chosen.
    restricted : callable
        The objective with the couplings of some edges alone, int array of shape (n_edges, 2).
    gamma : float
        Weight of the number of units: 0 is BIC.
    n_rows : float
        Number of rows n.
    tol : float
        Tolerance of the fits.

    Returns
    -------
    path : SelectionPath
    edges : int array of shape (n_edges, 2)
    """
    n, d = objective.n_fields, objective.n_units
    pairs, parameters = np.stack(objective.pairs, axis=1), objective.independent()
    largest = abs(objective.value_and_gradient(parameters)[1][n:]).max(initial=0.0)
    penalties = largest * np.geomspace(1, SMALLEST, N_PENALTIES)
    known, values, sizes, best, waited = {}, [], [], (np.inf, None), 0
    for l1 in penalties:
        # At the largest penalty, to rounding, no coupling is left.
        if l1 < largest:
            parameters = lbfgs(objective, parameters, l1=l1, tol=tol).parameters
        there = parameters[n:] != 0
        key = there.tobytes()
        if key not in known:
            start = np.concatenate([parameters[:n], parameters[n:][there]])
            known[key] = _maximum(restricted(pairs[there]), start, tol)
            k = int(there.sum())
            ebic = -2 * known[key] + k * np.log(n_rows) + 4 * gamma * k * np.log(d)
            waited += 1
            if ebic < best[0]:
                best, waited = (ebic, pairs[there]), 0
        values.append(known[key])
        sizes.append(int(there.sum()))
        if waited >= PATIENCE:
            break
    values, sizes = np.array(values), np.array(sizes)
    ebic = -2 * values + sizes * (np.log(n_rows) + 4 * gamma * np.log(d))
    chosen = int(ebic.argmin())
    return SelectionPath(penalties[: len(values)], sizes, values, ebic, chosen), best[1]


def _maximum(objective, start, tol):
    """Largest log-pseudo-likelihood of an objective."""
    solver = newton if objective.n_parameters <= MAX_NEWTON_PARAMETERS else lbfgs
    return objective.log_likelihood(solver(objective, start, tol=tol).parameters)
