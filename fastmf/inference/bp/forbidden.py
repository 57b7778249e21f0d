"""A lower bound of log-partitions of machines in which some pairs of states are forbidden.

Products of independent units bound ln Z from below as elsewhere,

    L = sum_i [<f_i> + H(q_i)] + sum_(i,j) <J_ij>  <=  ln Z,

but only if they give no forbidden pair a positive probability, so that they start from one state of
the machine. A unit that takes its best distribution given all other units keeps its states, and
gains the states that no other unit forbids: L does not fall. The states gained depend on the order
of the units; several orders are tried.

Units are updated level by level of the graph of the couplings, which is the same as one after
another in that order: on a sparse graph there are few levels.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.special import xlogy

from fastmf.inference.bp._assignments import margin_of
from fastmf.inference.bp.most_probable import most_probable
from fastmf.inference.mean_field._sparse_layout import columns_graph
from fastmf.models import BoltzmannMachine
from fastmf.models._couplings import finite_and_forbidden


def forbidden_bound(couplings, prior, row, n_orders, rng):
    """Lower bound of the log-partition, its estimate, and the size of its terms."""
    tilt, _, clamped, values = (part[0] for part in row)
    model, starts = BoltzmannMachine(couplings, prior), prior.starts
    labels = np.where(clamped[starts], prior.labels(values), np.nan)
    result = most_probable(model, field=tilt, clamp=labels)
    if not np.isfinite(result.score):
        return -np.inf, -np.inf, 0.0
    one, field = prior.one_hot(result.assignment).astype(float), prior.field + tilt
    free = np.flatnonzero(~clamped[starts])
    graph = columns_graph(csr_array(couplings), prior.sizes)[free][:, free]
    parts = finite_and_forbidden(couplings)
    bounds = []
    for _ in range(n_orders):
        levels = [free[level] for level in _levels(graph, rng.permutation(len(free)))]
        bounds.append(_ascent(parts, field, one.copy(), prior, levels))
    lower, size = max(bounds)
    return lower, lower, size


def _levels(graph, place):
    """Vertices that can be updated at the same time, as if it were one after another."""
    rows, n = np.repeat(np.arange(len(place)), np.diff(graph.indptr)), len(place)
    later = place[graph.indices] > place[rows]
    ends = rows[later], graph.indices[later]
    after = csr_array((np.ones(len(ends[0])), ends), shape=(n, n))
    n_before = np.bincount(ends[1], minlength=n)
    levels, level = [], np.flatnonzero(n_before == 0)
    while len(level):
        levels.append(level)
        reached = after[level].indices
        np.subtract.at(n_before, reached, 1)
        level = np.unique(reached[n_before[reached] == 0])
    return levels


def _ascent(parts, field, q, prior, levels):
    """The bound, and the size of its terms, at the end of sweeps of groups from `q`."""
    (finite, forbidden), bound = parts, (-np.inf, 0.0)
    group = np.repeat(np.arange(len(prior.sizes)), prior.sizes)
    places = [(np.flatnonzero(np.isin(group, k)), prior.sizes[k]) for k in levels]
    while True:  # every sweep but the last one gains more than rounding
        for states, sizes in places:
            allowed = forbidden[states] @ (q > 0) == 0
            t = np.where(allowed, field[states] + finite[states] @ q, -np.inf)
            firsts = np.cumsum(sizes) - sizes
            t = np.exp(t - np.repeat(np.maximum.reduceat(t, firsts), sizes))
            q[states] = t / np.repeat(np.add.reduceat(t, firsts), sizes)
        terms = q * np.where(q > 0, field, 0), -xlogy(q, q), q * (finite @ q) / 2
        last, bound = bound[0], (sum(map(np.sum, terms)), sum(abs(t).sum() for t in terms))
        if not bound[0] - last > margin_of(bound[0]):
            return bound
