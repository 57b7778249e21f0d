"""Couplings of spins from means m and covariance C by an inversion of the TAP equations.

By linear response (C^-1)_jk = dh_j/dm_k of the Thouless-Anderson-Palmer equations (Kappen &
Rodriguez 1998; Roudi, Tyrcha & Hertz 2009): off the diagonal

    (C^-1)_jk = -J_jk - 2 J_jk^2 m_j m_k,     h = atanh m - J m + m_j sum_k J_jk^2 (1 - m_k^2)

It takes one matrix inversion and is accurate for weak couplings only.
"""

import numpy as np
from scipy import linalg


def tap_inversion(mean, covariance):
    """Compute couplings and field from means and covariances."""
    mean, covariance = np.asarray(mean, float), np.asarray(covariance, float)
    if not (abs(mean) < 1).all():
        raise ValueError("mean must be in (-1, 1): a unit that never changes has no finite field.")
    try:
        inverse = linalg.inv(covariance, check_finite=False)
    except linalg.LinAlgError:
        inverse = np.full_like(covariance, np.inf)
    if not np.isfinite(inverse).all() or np.linalg.cond(covariance) > 1e12:
        raise ValueError("covariance must be invertible: leave out units that others determine.")
    inverse, products = (inverse + inverse.T) / 2, np.outer(mean, mean)
    discriminant = 1 - 8 * products * inverse
    # The usual (sqrt(D) - 1) / (4 m m') cancels for small means.
    couplings = -2 * inverse / (1 + np.sqrt(np.maximum(discriminant, 0)))
    without_root = discriminant < 0
    couplings[without_root] = -1 / (4 * products[without_root])
    np.fill_diagonal(couplings, 0)
    reaction = mean * ((couplings**2) @ (1 - mean**2))
    return couplings, np.arctanh(mean) - couplings @ mean + reaction
