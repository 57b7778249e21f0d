"""Terms of groups of states in the gradient of the log-partition by the couplings.

With C the covariances of independent groups and units, the terms of second order in the couplings
have the gradient C_v W C_h, of which W (v_v v_h') holds the diagonals of both, v + m^2 = m in place
of v in a group. What is left are products with the fields s = W' m of single groups:

    for each group i of a layer         - m_i (C s_i)'          on its rows
    for each group k of the layer above - (m r_k) m_k'          on its columns, r_k = W m_k

with v r in place of m r for units below that are no groups.
"""

import numpy as np

from fastmf.inference.mean_field._grouped_free_energy import covariance_times, second_moments
from fastmf.inference.mean_field._grouped_third_order import centred, moments_of_field
from fastmf.priors._groups import groups, has_groups


def group_effects(weights, below, above):
    """The products with fields of single groups, averaged over rows.

    Parameters
    ----------
    weights : array of shape (n_below, n_above)
    below, above : tuple
        Prior, mean and variance, (n_rows, n_units), of the two layers.

    Returns
    -------
    array of shape (n_below, n_above), or 0 without groups
    """
    if not (has_groups(below[0]) or has_groups(above[0])):
        return 0
    total, mean, others = np.zeros(weights.shape, weights.dtype), below[1], groups(above[0])
    for group in groups(below[0]):
        s = mean[:, group] @ weights[group]
        response = covariance_times(*above[1:], others, s)
        total[group] -= mean[:, group].T @ response / len(mean)
    second = second_moments(*below)
    for group in others:
        m = above[1][:, group]
        r = m @ weights[:, group].T
        total[:, group] -= (second * r).T @ m / len(m)
    return total


def third_order_effects(weights, below, above):
    """The gradient of the third order by couplings to groups, averaged over rows.

    With the centred couplings C of a pair of groups it is m h' times the centred C^2 / 2, and with
    the field s of a group and its variance v, m (k [(W - s)^2 - v])' / 2 for a unit with the third
    cumulant k that is no group.

    Parameters
    ----------
    weights : array of shape (n_below, n_above)
    below, above : tuple
        Prior, mean and third cumulant, (n_rows, n_units), of the two layers; 0 in groups.

    Returns
    -------
    array of shape (n_below, n_above), or 0 without groups
    """
    if not (has_groups(below[0]) or has_groups(above[0])):
        return 0
    total = np.zeros(weights.shape)
    _add_units(total, weights, below, above[2])
    _add_units(total.T, weights.T, above, below[2])
    for group in groups(below[0]):
        m = below[1][:, group]
        for other in groups(above[0]):
            h = above[1][:, other]
            squares = centred(weights[group, other], m, h) ** 2
            squares -= np.einsum("ra,rab->rb", m, squares)[:, None, :]
            squares -= np.einsum("rb,rab->ra", h, squares)[:, :, None]
            total[group, other] = np.einsum("ra,rab,rb->ab", m, squares, h) / 2
    return total / len(below[1])


def _add_units(total, weights, layer, third):
    """Add the products of the groups of a layer with units of these third cumulants."""
    prior, mean, _ = layer
    for group in groups(prior):
        m, w = mean[:, group], weights[group]
        s, v, _ = moments_of_field(m, w)
        total[group] += (
            w**2 * (m.T @ third) - 2 * w * (m.T @ (third * s)) + m.T @ (third * (s**2 - v))
        ) / 2
