"""A lower bound of log-partitions of machines in which some pairs of states are forbidden.

Products of independent units bound ln Z from below as elsewhere,

    L = sum_i [<f_i> + H(q_i)] + sum_(i,j) <J_ij>  <=  ln Z,

but only if they give no forbidden pair a positive probability, so that they start from one state of
the machine. A unit that takes its best distribution given the others keeps the states that it has,
and gains those that no other unit forbids: L does not fall. Which ones are gained depends on the
order of the units, of which several are tried.
"""

import numpy as np
from scipy.special import logsumexp, xlogy

from fastmf.inference.bp.belief_propagation import belief_propagation
from fastmf.models import BoltzmannMachine
from fastmf.models._couplings import finite_and_forbidden

# Sweeps of one order of the units, and gain of the bound below which it is left.
MAX_ORDER_SWEEPS, SMALLEST_GAIN = 200, 1e-9


def forbidden_bound(couplings, prior, row, n_orders, rng):
    """Lower bound of the log-partition, its estimate, and the size of its terms.

    Parameters
    ----------
    couplings : float64 array of shape (n_states, n_states)
    prior : Categorical
    row : tuple of arrays of shape (1, n_states)
        Field, precision, whether clamped, and values: precisions of groups are zero.
    n_orders : int
    rng : numpy Generator

    Returns
    -------
    tuple of float
        -inf in the place of both bounds if no state was found: there may be none.
    """
    tilt, _, clamped, values = (part[0] for part in row)
    model, starts = BoltzmannMachine(couplings, prior), prior.starts
    labels = np.where(clamped[starts], prior.labels(values), np.nan)
    found = belief_propagation(model, algorithm="max", field=tilt, clamp=labels)
    if not np.isfinite(found.objective):
        return -np.inf, -np.inf, 0.0
    one, field = prior.one_hot(found.assignment).astype(float), prior.field + tilt
    free = np.flatnonzero(~clamped[starts])
    parts = finite_and_forbidden(couplings)
    bounds = []
    for _ in range(n_orders):
        order = rng.permutation(free)
        groups = [slice(starts[i], starts[i] + prior.sizes[i]) for i in order]
        bounds.append(_ascent(parts, field, one.copy(), groups))
    lower, size = max(bounds)
    return lower, lower, size


def _ascent(parts, field, q, groups):
    """The bound, and the size of its terms, at the end of sweeps of these groups from `q`."""
    (finite, forbidden), bound = parts, (-np.inf, 0.0)
    for _ in range(MAX_ORDER_SWEEPS):
        for g in groups:
            allowed = forbidden[g] @ (q > 0) == 0
            t = np.where(allowed, field[g] + finite[g] @ q, -np.inf)
            q[g] = np.exp(t - logsumexp(t))
        terms = q * np.where(q > 0, field, 0), -xlogy(q, q), q * (finite @ q) / 2
        last, bound = bound[0], (sum(map(np.sum, terms)), sum(abs(t).sum() for t in terms))
        if bound[0] - last < SMALLEST_GAIN:
            break
    return bound
