"""Uniqueness of the fixed point of sum-product (Mooij and Kappen 2007, Corollary 3).

Where the spectral radius of a matrix between directed edges is below 1, sum-product has one fixed
point and converges to it from any messages, whatever the fields.
"""

import numpy as np

MAX_POWER_ITERATIONS = 200


def spectral_radius(units):
    """Upper bound of the spectral radius; 0 on a forest.

    Between directed edges the matrix is A_(i->j),(k->i) = tanh(strength_ij) for k != j, with a
    quarter of the largest J(a,b) + J(c,d) - J(a,d) - J(c,b).
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

    return perron_bound(product, np.ones(len(strength)))


def radius_of_layers(weights):
    """Upper bound of the spectral radius of two layers of {0, 1} units with such weights."""
    strength = np.tanh(abs(weights.astype(np.float64)) / 4)

    def twice(x):
        """Multiply by the square of the matrix on the edges that start at visible units."""
        back = strength * (x.sum(0) - x)
        return strength * (back.sum(1, keepdims=True) - back)

    return perron_bound(twice, np.ones_like(strength)) ** 0.5


def _strengths(units):
    """Strength of each edge: atanh of its largest contraction of messages."""
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


def perron_bound(product, x):
    """Upper bound of the spectral radius of a matrix A without negative entries.

    By Collatz and Wielandt, max (A x)_i / x_i is an upper bound for every positive x, so that it
    holds after any number of power iterations. These make it close, slowly on trees (whose radius
    is 0).
    """
    bound = np.inf
    for _ in range(MAX_POWER_ITERATIONS):
        new = product(x)
        last, bound = bound, min(bound, (new / x).max())
        if bound >= last * (1 - 1e-9):
            break
        # The added multiple of x keeps it positive, and damps oscillations.
        x = new.clip(min=0) + 0.1 * bound * x + 1e-300
        x = (x / x.max()).clip(min=1e-250)
    return float(bound)
