"""Uniqueness of the fixed point of sum-product on a graph (Mooij and Kappen 2007)."""

import numpy as np

from fastmf.inference.bp.radius import MAX_POWER_ITERATIONS, perron_bound

# Updates of slots in all power iterations.
MAX_UPDATES = 10**7


def spectral_radius(units):
    """Upper bound of the spectral radius of Mooij and Kappen (2007), Corollary 3; 0 on a forest.

    Between directed edges the matrix is A_(i->j),(k->i) = tanh(strength_ij) for k != j: |K| of
    two-valued units and a quarter of the largest J(a,b) + J(c,d) - J(a,d) - J(c,b) of other units.
    """
    if units.is_forest:
        return 0.0
    layout = units.layout
    strength = np.tanh(_strengths(units))[layout.edges]
    n_units = len(units.graph.n_states)
    senders = np.repeat(np.arange(n_units), np.diff(layout.starts))

    def product(x):
        received = np.bincount(layout.neighbours, x, n_units)
        return strength * (received[senders] - x[layout.reverse])

    max_iter = max(2, min(MAX_POWER_ITERATIONS, MAX_UPDATES // len(strength)))
    return perron_bound(product, np.ones(len(strength)), max_iter)


def _strengths(units):
    """Strength of each edge: atanh of its largest contraction of messages."""
    if units.binary is not None:
        # exp(2 K) of each slot.
        logs = np.zeros(len(units.graph.edges))
        logs[units.layout.edges] = abs(np.log(units.binary[0].exponentials)) / 2
        return logs
    first, tables = units.tables
    sizes = units.graph.n_states[units.graph.edges]
    strengths = np.zeros(len(sizes))
    for shape in np.unique(sizes, axis=0):
        index = np.flatnonzero((sizes == shape).all(1))
        block = tables[first[index][:, None] + np.arange(shape.prod())].reshape(-1, *shape)
        with np.errstate(invalid="ignore"):
            # J(a, b) - J(c, b) - (J(a, d) - J(c, d)) is largest at two columns' extremes.
            rows = block[:, :, None, :] - block[:, None, :, :]
            extent = rows.max(3) - rows.min(3)
        strengths[index] = np.nan_to_num(extent, nan=np.inf).max((1, 2)) / 4
    return strengths
