"""Uniqueness of the fixed point of sum-product on a graph (Mooij and Kappen 2007)."""

import numpy as np

from fastmf.inference.bp._decoding import MAX_POWER_ITERATIONS

# Updates of slots, after any number of which the bound is valid.
MAX_UPDATES = 10**7


def spectral_radius(units):
    """Upper bound of the spectral radius of Mooij and Kappen (2007), Corollary 3; 0 on a forest.

    Between directed edges the matrix is A_(i->j),(k->i) = tanh(strength_ij) for k != j: |K| of
    two-valued units and a quarter of the largest J(a,b) + J(c,d) - J(a,d) - J(c,b) of others. By
    Collatz and Wielandt max (A x)_i / x_i is an upper bound for every positive x.

    Parameters
    ----------
    units : GraphUnits
    """
    if units.is_forest:
        return 0.0
    layout = units.layout
    strength = np.tanh(_strengths(units))[layout.edges]
    n_units = len(units.graph.n_states)
    senders = np.repeat(np.arange(n_units), np.diff(layout.starts))
    x, bound, ratio = np.ones(len(strength)), np.inf, np.inf
    for _ in range(max(2, min(MAX_POWER_ITERATIONS, MAX_UPDATES // len(x)))):
        received = np.bincount(layout.neighbours, x, n_units)
        new = strength * (received[senders] - x[layout.reverse])
        ratio = (new / x).max()
        if ratio >= bound * (1 - 1e-9):
            break
        bound = ratio
        # The added multiple of x keeps it positive, and damps oscillations.
        x = new.clip(min=0) + 0.1 * bound * x + 1e-300
        x = (x / x.max()).clip(min=1e-250)
    return float(min(bound, ratio))


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
        here = np.flatnonzero((sizes == shape).all(1))
        block = tables[first[here][:, None] + np.arange(shape.prod())].reshape(-1, *shape)
        with np.errstate(invalid="ignore"):
            # J(a, b) - J(c, b) - (J(a, d) - J(c, d)) is largest at two columns' extremes.
            rows = block[:, :, None, :] - block[:, None, :, :]
            extent = rows.max(3) - rows.min(3)
        strengths[here] = np.nan_to_num(extent, nan=np.inf).max((1, 2)) / 4
    return strengths
