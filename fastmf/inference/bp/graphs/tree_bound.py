"""Upper bounds of log-partitions, and of exponents, by spanning trees, at any messages.

log Z is convex in the parameters, so that it is at most the average of log Z_T over random trees T
whose average parameters are the parameters of the graph. With edge probabilities rho and any
log-messages u, trees of the parameters

    h_i = f_i + sum_k rho_ki u_ki          J_ij / rho_ij - u_ij - u_ji

have that average. Their entropies are sums over roots and over children given their parents,
which are concave, so that by Lagrange's duality (Globerson & Jaakkola 2007), with the probabilities
r_i that i is a root and rho_k|i that k is a child of i,

    log Z <= sum_i r_i log sum_x exp(h_i(x) + sum_k rho_k|i (S_ki(x) - u_ki(x)) / r_i),
    S_ki = log sum_a exp(h_k(a) - u_ik(a) + J_ki / rho_ki).

It holds for all messages. Where they have converged S - u does not depend on x, and the bound is
the bound of tree-reweighted belief propagation (Wainwright, Jaakkola & Willsky 2005). At
temperature 0 sums over states are maxima, and it bounds the exponent of the most probable states:

    max_x exponent(x) <= sum_i max_x [r_i h_i(x) + sum_k rho_k|i (S_ki(x) - u_ki(x))].
"""

import numpy as np
import scipy

from fastmf.inference.bp._options import MAX_BYTES
from fastmf.inference.mean_field.lower_bound import SUM_ROUNDING


def tree_bound(problem, child, root, messages):
    """Upper bound of the log-partition of each row, or of its largest exponent."""
    child_of_slot = child[problem.edges, problem.transposed.astype(int)]
    bounds = []
    for k, u in enumerate(messages):
        field = problem.field[min(k, len(problem.field) - 1)]
        sizes = (abs(part[np.isfinite(part)]).sum() for part in (problem.tables, field))
        rounding = SUM_ROUNDING * (1 + sum(sizes))
        bounds.append(_bound(problem, child_of_slot, root, field, u) + rounding)
    return np.array(bounds)


def _bound(problem, child, root, field, u):
    """The bound of one row."""
    first, sizes = problem.first_state[:-1], np.diff(problem.first_state)
    counts = np.diff(problem.first_entry)
    within = np.arange(len(u)) - np.repeat(problem.first_entry[:-1], counts)
    receiver = np.repeat(first[problem.neighbours], counts) + within
    probability = np.repeat(problem.probability[problem.edges], counts)
    h = field + np.bincount(receiver, probability * u, len(field))
    if not np.logical_or.reduceat(h > -np.inf, first).all():
        return -np.inf
    sums, senders = np.zeros(len(field)), np.repeat(np.arange(len(first)), np.diff(problem.starts))
    for q, r in np.unique(np.stack([sizes[senders], counts], 1), axis=0):
        slots = np.flatnonzero((sizes[senders] == q) & (counts == r))
        for chunk in np.array_split(slots, max(1, 64 * len(slots) * q * r // MAX_BYTES)):
            states = first[problem.neighbours[chunk]][:, None] + np.arange(r)
            sent = problem.first_entry[chunk][:, None] + np.arange(r)
            new = _sums(problem, chunk, (q, r), h[first[senders[chunk]][:, None] + np.arange(q)], u)
            possible = h[states] > -np.inf
            gain = np.where(possible, new - np.where(possible, u[sent], 0), 0)
            impossible = np.isneginf(gain)
            gain = child[chunk][:, None] * np.where(impossible, 0, gain)
            np.add.at(sums, states, np.where(impossible, -np.inf, gain))
    possible, of_unit = h > -np.inf, np.repeat(root, sizes)
    total = np.where(possible, of_unit * np.where(possible, h, 0) + sums, -np.inf)
    top = np.maximum.reduceat(total, first)
    if problem.maximum or np.isneginf(top).any():
        return float(top.sum())
    with np.errstate(divide="ignore", invalid="ignore"):  # units that are no root
        weights = np.exp((total - np.repeat(top, sizes)) / of_unit)
    logs = np.log(np.add.reduceat(weights, first))
    return float((top + np.where(root > 0, root * logs, 0)).sum())


def _sums(problem, slots, shape, h, u):
    """log sum_a exp(h_k(a) - u_ik(a) + table(a, b)), or the maximum, of slots of one shape."""
    q, r = shape
    back = u[problem.first_entry[problem.reverse[slots]][:, None] + np.arange(q)]
    cavity = np.where(h > -np.inf, h - np.where(h > -np.inf, back, 0), -np.inf)
    transposed = problem.transposed[slots][:, None, None]
    a, b = np.arange(q)[:, None], np.arange(r)
    at = problem.first_value[problem.edges[slots]][:, None, None]
    at = at + np.where(transposed, b * q + a, a * r + b)
    combine = np.max if problem.maximum else scipy.special.logsumexp
    return combine(cavity[:, :, None] + problem.tables[at], axis=1)
