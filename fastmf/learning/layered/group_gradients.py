"""Terms of groups of states in the gradient of the log-partition by the couplings.

With C the covariances of independent groups and units, the terms of second order in the couplings
have the gradient C_v W C_h, of which W (v_v v_h') holds the diagonals of both, v + m^2 = m in place
of v in a group. What is left are products with the fields s = W' m of single groups:

    for each group i of a layer         - m_i (C s_i)'          on its rows
    for each group k of the layer above - (m r_k) m_k'          on its columns, r_k = W m_k

with v r in place of m r for units below that are no groups.
"""

import numpy as np

from fastmf.inference.mean_field._grouped_layout import covariance_times
from fastmf.inference.mean_field.free_energy import second_moments
from fastmf.priors._groups import groups


def group_effects(weights, below, above):
    """The products with fields of single groups, averaged over rows."""
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
