"""Truncated Gaussian units: bounded, rectified or unbounded."""

from typing import NamedTuple

import numpy as np

from fastmf.priors import _quadrature
from fastmf.priors._protocol import unit_prior
from fastmf.special import narrow, widen


def check_interval(class_name, precision, lower, upper):
    """Raise a ValueError unless lower < upper, with a positive precision where a bound is infinite.

    A precision of zero is allowed on a half-line: the field may make the weight decay.
    """
    largest = _quadrature.LARGEST_BOUND
    for name, bound, allowed in (("lower", lower, -np.inf), ("upper", upper, np.inf)):
        wrong = (abs(bound) > largest) & (bound != allowed)
        if wrong.any():
            raise ValueError(
                f"{class_name}: {name} must be {allowed:g} or at most {largest:g} in size, "
                f"got {bound[wrong][0]:g}."
            )
    if not (lower < upper).all():
        i = np.argmin(lower < upper)
        raise ValueError(
            f"{class_name}: lower must be below upper, got lower = {lower[i]:g} and "
            f"upper = {upper[i]:g} at unit {i}."
        )


@unit_prior("truncated_gaussian")
class TruncatedGaussian(NamedTuple):
    """Units on an interval, with weight exp(field x - precision x^2 / 2).

    Parameters
    ----------
    field, precision : float or array of shape (n_units,)
        The precision may have either sign if both bounds are finite.
    lower, upper : float or array of shape (n_units,)
        Bounds; an infinite one makes a rectified unit, two a Gaussian.

    Raises
    ------
    ValueError
        If a lower bound is not below its upper one, or if the weight cannot be integrated.

    Notes
    -----
    Tramel et al. (2018), Eqs. 70-92, where Eqs. 78 (second branch), 82 and 92 have errors. A tilt
    with precision + a <= 0 on an infinite interval has log-partition and variance +inf, unless
    precision + a = 0 and the linear term decays.
    """

    field: np.ndarray
    precision: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def _check(self):
        check_interval("TruncatedGaussian", self.precision, self.lower, self.upper)
        infinite = _quadrature.diverges(self.field, self.precision, self.lower, self.upper)
        if infinite.any():
            i = np.argmax(infinite)
            raise ValueError(
                "TruncatedGaussian: precision must be positive where a bound is infinite, got "
                f"precision = {self.precision[i]:g} on [{self.lower[i]:g}, {self.upper[i]:g}] "
                f"at unit {i}."
            )

    def log_partition(self, b, a):
        """Log of the integral of exp((field + b) x - (precision + a) x^2 / 2) on the interval."""
        value = _quadrature.log_integral(
            widen(self.field),
            widen(self.precision),
            widen(self.lower),
            widen(self.upper),
            widen(b),
            widen(a),
        )
        return narrow(value, self.field + b + a)

    def moments(self, b, a):
        """Mean and variance under the tilt exp(b x - a x^2 / 2)."""
        _, _, mean, variance = _quadrature.integrate(
            widen(self.field),
            widen(self.precision),
            widen(self.lower),
            widen(self.upper),
            widen(b),
            widen(a),
        )
        like = self.field + b + a
        return narrow(mean, like), narrow(variance, like)

    @staticmethod
    def _tilted_moments(prior):
        return _moments_by_blocks


def _moments_by_blocks(prior, start, b, a, mean, var):
    workspace = np.empty(_quadrature.WORKSPACE)
    for first in range(0, b.shape[0], _quadrature.BLOCK):
        last = min(first + _quadrature.BLOCK, b.shape[0])
        units = slice(start + first, start + last)
        _quadrature.prepare_block(
            prior.field[units],
            prior.precision[units],
            prior.lower[units],
            prior.upper[units],
            b[first:last],
            a[first:last],
            workspace,
        )
        for i in range(last - first):
            _, _, mean[first + i], var[first + i] = _quadrature.finish_block(workspace, i)
