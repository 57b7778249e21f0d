"""Gaussian units."""

import math
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import column_moments
from fastmf.priors._registry import floating_type, unit_prior
from fastmf.special import constant, log, narrow, normal_quantile, where

# Smallest precision of unbounded units: the square of its inverse exists in any floating type.
MIN_PRECISION = math.sqrt(np.finfo(np.float32).tiny)
# Variance of fitted columns that are constant, relative to the square of their value if it is not
# zero, and the largest relative deviation from their mean, in units of rounding errors.
CONSTANT_VARIANCE, MAX_ROUNDING_ERRORS = 1e-3, 8


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

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> prior = mf.Gaussian(field=np.array([1.0]), precision=np.array([2.0]))
    >>> prior.moments(0.0, 0.0)  # field / precision and 1 / precision
    (array([0.5]), array([0.5]))
    >>> prior.moments(1.0, 2.0)  # under the tilt exp(x - x^2)
    (array([0.5]), array([0.25]))
    """

    field: np.ndarray
    precision: np.ndarray

    hidden_unit = (0.0, 1.0)

    def _check(self):
        if not (self.precision > 0).all():
            worst = self.precision.min()
            raise ValueError(f"Gaussian: precision must be positive, got {worst:g}.")

    def log_partition(self, b, a):
        """b^2 / (2 s) + log(2 pi / s) / 2 with b -> field + b and s = precision + a."""
        s = self.precision + a
        half, one, infinity = constant(0.5, s), constant(1.0, s), constant(np.inf, s)
        divisor = where(s > 0, s, one)
        b = self.field + b
        value = half * (b * b / divisor + constant(math.log(2 * math.pi), s) - log(divisor))
        return where(s > 0, value, infinity)

    def moments(self, b, a):
        """Mean and variance under the tilt exp(b x - a x^2 / 2)."""
        s = self.precision + a
        zero, one, infinity = constant(0.0, s), constant(1.0, s), constant(np.inf, s)
        divisor = where(s > 0, s, one)
        b = self.field + b
        # Adding zero * b gives the variance the shape of both tilts.
        return where(s > 0, b / divisor, zero), where(s > 0, one / divisor, infinity) + zero * b

    def log_prob(self, x):
        """field x - precision x^2 / 2."""
        return self.field * x - self.precision * x * x / 2

    def contains(self, x):
        """Whether values belong to the support: all real numbers."""
        return np.isfinite(x) & np.ones(self.field.shape, bool)

    def draw(self, b, a, u):
        """The value that a uniform number draws from the tilted distribution: its quantile."""
        mean, var = self.moments(b, a)
        return mean + np.sqrt(var) * narrow(normal_quantile(u), mean)

    def sample(self, b, a, rng):
        """Draws from the tilted distribution; a ValueError where it diverges."""
        mean, var = self.moments(b, a)
        if not np.isfinite(var).all():
            raise ValueError(
                "Gaussian.sample: precision + a must be positive, "
                f"got {np.min(self.precision + a):g}."
            )
        draws = rng.standard_normal(mean.shape, dtype=mean.dtype)
        return mean + np.sqrt(var) * draws

    def moment_gradient(self, mean, var):
        """Derivatives of the log-partition, from the moments."""
        return self._make((mean, -(var + mean * mean) / 2))

    def project(self):
        """The prior with precisions of at least MIN_PRECISION."""
        return self._replace(precision=np.maximum(self.precision, MIN_PRECISION))

    @classmethod
    def from_data(cls, X):
        """Mean and variance of the columns; constant ones get a small variance."""
        (mean, var), dtype = column_moments(X), floating_type(X)
        rounding = MAX_ROUNDING_ERRORS * np.finfo(dtype).eps * abs(mean)
        constant = np.sqrt(var) <= rounding
        precision = 1 / np.where(constant, CONSTANT_VARIANCE * np.where(mean, mean**2, 1), var)
        field = mean * precision
        return cls(*(p.astype(dtype) for p in (field, precision)))
