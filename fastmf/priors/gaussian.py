"""Gaussian units."""

from typing import NamedTuple

import numpy as np

from fastmf.priors._protocol import unit_prior
from fastmf.special import log, where

# Data without any spread would ask for an infinite precision.
SMALLEST_VARIANCE = 1e-3


@unit_prior("gaussian")
class Gaussian(NamedTuple):
    """Real units with weight exp(field x - precision x^2 / 2).

    Parameters
    ----------
    field : float or array of shape (n_units,)
        Mean times precision.
    precision : float or array of shape (n_units,)
        Inverse variance, positive.

    Raises
    ------
    ValueError
        If a precision is not positive.

    Notes
    -----
    The tilted unit exists only for precision + a > 0; elsewhere the log-partition and the variance
    are +inf. Tramel et al. (2018), Eqs. 67-69.
    """

    field: np.ndarray
    precision: np.ndarray

    def _check(self):
        if not (self.precision > 0).all():
            worst = self.precision.min()
            raise ValueError(f"Gaussian: precision must be positive, got {worst:g}.")

    def log_partition(self, b, a):
        """b^2 / (2 s) + log(2 pi / s) / 2 with b -> field + b and s = precision + a."""
        s = self.precision + a
        proper = where(s > 0, s, 0 * s + 1)
        b = self.field + b
        value = b * b / (2 * proper) + (np.log(2 * np.pi) - log(proper)) / 2
        return where(s > 0, value, 0 * s + np.inf)

    def moments(self, b, a):
        """Mean and variance under the tilt exp(b x - a x^2 / 2)."""
        s = self.precision + a
        mean = where(s > 0, (self.field + b) / where(s > 0, s, 0 * s + 1), 0 * (b + s))
        return mean, where(s > 0, 1 / where(s > 0, s, 0 * s + 1), 0 * (b + s) + np.inf)

    def log_prob(self, x):
        """field x - precision x^2 / 2."""
        return self.field * x - self.precision * x * x / 2

    def sample(self, b, a, rng):
        """Draws from the tilted distribution."""
        mean, var = self.moments(b, a)
        draws = rng.standard_normal(np.broadcast(mean, var).shape, dtype=mean.dtype)
        return mean + np.sqrt(var) * draws

    def gradient(self, b, a):
        """Derivatives of the log-partition."""
        mean, var = self.moments(b, a)
        return self._make((mean, -(var + mean * mean) / 2))

    def log_prob_gradient(self, x):
        """Derivatives of log_prob."""
        return self._make((x, -x * x / 2))

    def project(self):
        """The prior with precisions that stay positive."""
        return self._replace(precision=np.maximum(self.precision, SMALLEST_VARIANCE))

    @classmethod
    def from_data(cls, X):
        """Mean and variance of the columns."""
        precision = 1 / np.maximum(X.var(0, dtype=np.float64), SMALLEST_VARIANCE)
        return cls((X.mean(0) * precision).astype(X.dtype), precision.astype(X.dtype))
