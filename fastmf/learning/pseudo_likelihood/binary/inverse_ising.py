"""Couplings of spins from means m and covariance C by mean-field inversions.

By linear response (C^-1)_jk = dh_j/dm_k of the mean-field equations (Kappen & Rodriguez 1998;
Roudi, Tyrcha & Hertz 2009): off the diagonal

    naive:  (C^-1)_jk = -J_jk,                        h = atanh m - J m
    TAP:    (C^-1)_jk = -J_jk - 2 J_jk^2 m_j m_k,     h = the same + m_j sum_k J_jk^2 (1 - m_k^2)

They take one matrix inversion and are accurate for weak couplings only; maximum pseudo-likelihood
can start from them.
"""

import numpy as np
from scipy import linalg


def _inverse(mean, covariance):
    mean, covariance = np.asarray(mean, float), np.asarray(covariance, float)
    if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
        raise ValueError(
            f"mean must have shape (n_units,) and covariance (n_units, n_units), got {mean.shape} "
            f"and {covariance.shape}."
        )
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise ValueError("mean and covariance must be finite, got NaN or infinity.")
    if not (abs(mean) < 1).all():
        raise ValueError("mean must be in (-1, 1): a unit that never changes has no finite field.")
    try:
        inverse = linalg.inv(covariance, check_finite=False)
    except linalg.LinAlgError:
        inverse = np.full_like(covariance, np.inf)
    if not np.isfinite(inverse).all() or np.linalg.cond(covariance) > 1e12:
        raise ValueError("covariance must be invertible: leave out units that others determine.")
    return mean, (inverse + inverse.T) / 2


def naive_mean_field(mean, covariance):
    """Naive mean-field inversion: J = -C^-1 off the diagonal, h = atanh m - J m."""
    mean, inverse = _inverse(mean, covariance)
    couplings = -inverse
    np.fill_diagonal(couplings, 0)
    return couplings, np.arctanh(mean) - couplings @ mean


def tap_inversion(mean, covariance):
    """Inversion of the Thouless-Anderson-Palmer equations: (C^-1)_jk = -J_jk - 2 J_jk^2 m_j m_k."""
    mean, inverse = _inverse(mean, covariance)
    products = np.outer(mean, mean)
    discriminant = 1 - 8 * products * inverse
    # The usual (sqrt(D) - 1) / (4 m m') cancels for small means.
    couplings = -2 * inverse / (1 + np.sqrt(np.maximum(discriminant, 0)))
    without_root = discriminant < 0
    couplings[without_root] = -1 / (4 * products[without_root])
    np.fill_diagonal(couplings, 0)
    reaction = mean * ((couplings**2) @ (1 - mean**2))
    return couplings, np.arctanh(mean) - couplings @ mean + reaction
