"""Truncated Gaussian units: bounded, rectified or unbounded."""

import inspect
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import column_moments
from fastmf._jit.intrinsics import smaller
from fastmf.priors import _quadrature
from fastmf.priors._fitting import bounds_given_or_found, fit, project_precision
from fastmf.priors._protocol import sample_by_draw
from fastmf.priors._registry import floating_type, unit_prior
from fastmf.priors._sampling import draw_units, quantile
from fastmf.special import narrow, widen


def check_slab(class_name, field, precision, lower, upper):
    """Raise a ValueError unless exp(field x - precision x^2 / 2) has an integral there."""
    field, precision, lower, upper = (widen(p) for p in (field, precision, lower, upper))
    largest = _quadrature.MAX_BOUND
    for name, bound, infinity in (("lower", lower, -np.inf), ("upper", upper, np.inf)):
        wrong = (abs(bound) > largest) & (bound != infinity)
        if wrong.any():
            raise ValueError(
                f"{class_name}: {name} must be {infinity:g} or at most {largest:g} in size, "
                f"got {bound[wrong][0]:g}."
            )
    if not (lower < upper).all():
        i = np.argmin(lower < upper)
        raise ValueError(
            f"{class_name}: lower must be below upper, got lower = {lower[i]:g} and "
            f"upper = {upper[i]:g} at unit {i}."
        )
    infinite = _quadrature.diverges(field, precision, lower, upper)
    if infinite.any():
        i = np.argmax(infinite)
        raise ValueError(
            f"{class_name}: precision must be positive where a bound is infinite, and field / "
            f"precision at most {largest:g} in size, got precision {precision[i]:g} and field "
            f"{field[i]:g} on [{lower[i]:g}, {upper[i]:g}] at unit {i}."
        )


@unit_prior("truncated_gaussian")
class TruncatedGaussian(NamedTuple):
    """Units on an interval, with weight exp(field x - precision x^2 / 2).

    Parameters
    ----------
    field, precision : float or array of shape (n_units,)
        The precision may have either sign if both bounds are finite.
    lower, upper : float or array of shape (n_units,)
        Bounds; one infinite bound makes a rectified unit, two make a Gaussian one. Not learned.

    Raises
    ------
    ValueError
        If a lower bound is not below its upper one, or if the weight has no finite integral.

    Notes
    -----
    Tramel et al. (2018), Eqs. 70-92, where Eqs. 78 (second branch), 82 and 92 have errors. A tilt
    with precision + a <= 0 on an infinite interval has log-partition and variance +inf, unless
    precision + a = 0 and the linear term decays. So has one under which much of the mass lies
    beyond 1e50. The results are accurate to 1e-12 (log-partition and mean) and 1e-10 (variance) for
    every other tilt; float32 units are computed in float64.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> prior = mf.TruncatedGaussian(np.zeros(1), np.zeros(1), np.zeros(1), np.ones(1))
    >>> mean, var = prior.moments(0.0, 0.0)  # uniform on [0, 1]
    >>> mean.round(12), (12 * var).round(12)
    (array([0.5]), array([1.]))
    >>> samples = prior.sample(np.zeros((100, 1)), np.zeros((100, 1)), np.random.default_rng(0))
    >>> bool(samples.min() >= 0 and samples.max() <= 1)
    True
    """

    field: np.ndarray
    precision: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    parameters = ("field", "precision")
    hidden_unit = (0.0, 1.0, 0.0, 1.0)

    def _check(self):
        check_slab("TruncatedGaussian", *self)

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

    def log_prob(self, x):
        """field x - precision x^2 / 2 on the interval, -inf elsewhere."""
        return np.where(self.contains(x), self.field * x - self.precision * x * x / 2, -np.inf)

    def contains(self, x):
        """Whether values are within the bounds."""
        return (x >= self.lower) & (x <= self.upper)

    def draw(self, b, a, u):
        """The value that a uniform number draws from the tilted distribution: its quantile."""
        value = quantile(self.field, self.precision, self.lower, self.upper, (b, a), u)
        return narrow(value, self.field + b + a)

    sample = sample_by_draw

    def gradient(self, b, a):
        """Derivatives of the log-partition; zero for the bounds, which are not learned."""
        return self.moment_gradient(*self.moments(b, a))

    def moment_gradient(self, mean, var):
        """Derivatives of the log-partition, from the moments."""
        return self._make((mean, -(var + mean * mean) / 2, 0 * mean, 0 * mean))

    def log_prob_gradient(self, x):
        """Derivatives of log_prob; zero for the bounds, which are not learned."""
        return self._make((x, -x * x / 2, 0 * x, 0 * x))

    def project(self):
        """The prior with precisions of at least MIN_PRECISION where a bound is infinite."""
        return self._replace(precision=project_precision(self.precision, self.lower, self.upper))

    @classmethod
    def from_data(cls, X, lower=None, upper=None):
        """Truncated Gaussians with the means and variances of the columns.

        Parameters
        ----------
        X : array of shape (n_samples, n_units)
        lower, upper : float or array of shape (n_units,), optional
            Bounds; by default the smallest and the largest value of all columns, or of columns that
            differ in their ranges, such as those of different units of measurement, of each one,
            and a tenth of its range beyond.
        """
        lower, upper = bounds_given_or_found(X, lower, upper)
        field, precision = fit(*column_moments(X), lower, upper)
        return cls(
            *(np.asarray(p, dtype=floating_type(X)) for p in (field, precision, lower, upper))
        )

    def refit(self, X):
        """Truncated Gaussians with the same bounds, fitted to the columns."""
        return self.from_data(X, self.lower, self.upper)

    def precomputed(self):
        """The same prior in the form that kernels tilt."""
        return CompiledTruncatedGaussian(*self, _quadrature.address_per_unit(len(self.field)))


class CompiledTruncatedGaussian(_quadrature.Slab):
    """A `TruncatedGaussian` as kernels receive it."""

    def log_partition(self, b, a):
        """Log-partition of the `TruncatedGaussian`."""
        return inspect.unwrap(TruncatedGaussian.log_partition)(self, b, a)

    def moments(self, b, a):
        """Moments of the `TruncatedGaussian`."""
        return inspect.unwrap(TruncatedGaussian.moments)(self, b, a)

    def draw(self, b, a, u):
        """Draw of the `TruncatedGaussian`."""
        return TruncatedGaussian.draw(self, b, a, u)

    @staticmethod
    def draws_of_units(prior, start, b, a, u, out, scratch):
        """The draws of many units at once, inside kernels."""
        draw_units(prior, start, b, a, u, out)

    @staticmethod
    def moments_of_units(prior, start, b, a, mean, var):
        """The moments of many units at once, inside kernels."""
        memory = _quadrature.block_memory()
        for first in range(0, b.shape[0], _quadrature.PANEL_UNITS):
            n = smaller(_quadrature.PANEL_UNITS, b.shape[0] - first)
            _quadrature.integrate_units(prior, start, b, a, first, n, memory)
            for i in range(n):
                mean[first + i] = memory[_quadrature.NODE_MEANS + i]
                var[first + i] = memory[_quadrature.NODE_VARIANCES + i]

    @staticmethod
    def log_partition_of_units(prior, start, b, a, out):
        """The log-partitions of many units at once, inside kernels."""
        memory = _quadrature.block_memory()
        for first in range(0, b.shape[0], _quadrature.PANEL_UNITS):
            n = smaller(_quadrature.PANEL_UNITS, b.shape[0] - first)
            _quadrature.integrate_units(prior, start, b, a, first, n, memory)
            for i in range(n):
                mass = memory[_quadrature.MASSES + i]
                out[first + i] = memory[_quadrature.EXPONENTS + i] + _quadrature.log_mass(mass)
