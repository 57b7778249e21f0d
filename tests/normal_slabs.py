"""Normal estimates of effects that are zero or normal, given which are not zero."""

import numpy as np


def given_slabs(estimate, C, slabs):
    """Log-densities of the estimate, means and variances of the effects.

    Each row of `slabs` has the variances of the effects, of which some are zero.
    """
    V = C + slabs[:, :, None] * np.eye(len(estimate))
    inverse = np.linalg.inv(V)
    solved = inverse @ estimate
    logs = -(solved @ estimate + np.linalg.slogdet(2 * np.pi * V)[1]) / 2
    return logs, slabs * solved, slabs - slabs**2 * np.diagonal(inverse, axis1=1, axis2=2)
