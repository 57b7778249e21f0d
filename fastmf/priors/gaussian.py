"""Gaussian units, and truncated ones: bounded, rectified or unbounded."""

import math
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import column_moments, is_sparse
from fastmf.priors import _quadrature
from fastmf.priors._compiled import by_kernels
from fastmf.priors._registry import floating_type, unit_prior
from fastmf.special import constant, log, narrow, normal_quantile, where, widen

# Smallest precision of unbounded units: the square of its inverse is finite in any floating type.
MIN_PRECISION = math.sqrt(np.finfo(np.float32).tiny)
# Variance of fitted columns that are constant, relative to the square of their value if it is not
# zero; and the largest relative deviation of a constant column, in units of rounding errors.
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
        """Return c^2 / (2 s) + log(2 pi / s) / 2 with c = field + b and s = precision + a."""
        s = self.precision + a
        half, one, infinity = constant(0.5, s), constant(1.0, s), constant(np.inf, s)
        divisor = where(s > 0, s, one)
        b = self.field + b
        value = half * (b * b / divisor + constant(math.log(2 * math.pi), s) - log(divisor))
        return where(s > 0, value, infinity)

    def moments(self, b, a):
        """Return the mean and variance under the tilt exp(b x - a x^2 / 2)."""
        s = self.precision + a
        zero, one, infinity = constant(0.0, s), constant(1.0, s), constant(np.inf, s)
        divisor = where(s > 0, s, one)
        b = self.field + b
        # Adding zero * b gives the variance the shape of both tilts.
        return where(s > 0, b / divisor, zero), where(s > 0, one / divisor, infinity) + zero * b

    def log_prob(self, x):
        """Return field x - precision x^2 / 2."""
        return self.field * x - self.precision * x * x / 2

    def contains(self, x):
        """Return whether values belong to the support: all real numbers."""
        return np.isfinite(x) & np.ones(self.field.shape, bool)

    def draw(self, b, a, u):
        """Return the quantile of the tilted distribution at a uniform number."""
        mean, var = self.moments(b, a)
        return mean + np.sqrt(var) * narrow(normal_quantile(u), mean)

    def sample(self, b, a, rng):
        """Draw from the tilted distribution; raise a ValueError if it is not integrable."""
        mean, var = self.moments(b, a)
        if not np.isfinite(var).all():
            raise ValueError(
                "Gaussian.sample: precision + a must be positive, "
                f"got {np.min(self.precision + a):g}."
            )
        draws = rng.standard_normal(mean.shape, dtype=mean.dtype)
        return mean + np.sqrt(var) * draws

    def moment_gradient(self, mean, var):
        """Return the derivatives of the log-partition, from the moments."""
        return self._make((mean, -(var + mean * mean) / 2))

    def project(self):
        """Return the prior with precisions of at least MIN_PRECISION."""
        return self._replace(precision=np.maximum(self.precision, MIN_PRECISION))

    @classmethod
    def from_data(cls, X):
        """Fit mean and variance of the columns; constant columns get a small variance."""
        (mean, var), dtype = column_moments(X), floating_type(X)
        rounding = MAX_ROUNDING_ERRORS * np.finfo(dtype).eps * abs(mean)
        constant = np.sqrt(var) <= rounding
        precision = 1 / np.where(constant, CONSTANT_VARIANCE * np.where(mean, mean**2, 1), var)
        field = mean * precision
        return cls(*(p.astype(dtype) for p in (field, precision)))


# Smallest distance of means to the bounds, and smallest standard deviation, relative to the range.
MIN_DISTANCE = 0.01
# Fraction of a range. Columns are alike if the median of their ranges is at least this fraction of
# the range of all columns; then columns whose range is at least its cube share the bounds. Bounds
# of a single column are beyond its values by this fraction of its range.
SHARE = 0.1


def check_slab(class_name, field, precision, lower, upper):
    """Raise a ValueError unless exp(field x - precision x^2 / 2) has a finite integral."""
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
    Tramel et al. (2018), Eqs. 70-92, where Eqs. 78 (second branch), 82 and 92 have errors. The
    log-partition and the variance are +inf for tilts with precision + a <= 0 on an infinite
    interval, unless precision + a = 0 and the linear term decays, and for tilts under which much of
    the mass lies beyond 1e50. For other tilts the log-partition and the mean are accurate to 1e-12,
    and the variance to 1e-10; float32 units are computed in float64.

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
        """Return log of the integral of exp((field + b) x - (precision + a) x^2 / 2)."""
        value = _quadrature.log_integral(*map(widen, (*self, b, a)))
        return narrow(value, self.field + b + a)

    def moments(self, b, a):
        """Return the mean and variance under the tilt exp(b x - a x^2 / 2)."""
        _, _, mean, variance = _quadrature.integrate(*map(widen, (*self, b, a)))
        like = self.field + b + a
        return narrow(mean, like), narrow(variance, like)

    def log_prob(self, x):
        """Return field x - precision x^2 / 2 on the interval, -inf elsewhere."""
        return np.where(self.contains(x), self.field * x - self.precision * x * x / 2, -np.inf)

    def contains(self, x):
        """Return whether values are within the bounds."""
        return (x >= self.lower) & (x <= self.upper)

    def draw(self, b, a, u):
        """Return the quantile of the tilted distribution at a uniform number."""
        return by_kernels(self, "draws", b, a, u)

    def moment_gradient(self, mean, var):
        """Return the derivatives of the log-partition, from the moments."""
        return self._make((mean, -(var + mean * mean) / 2, 0 * mean, 0 * mean))

    def project(self):
        """Return the prior with precisions of at least MIN_PRECISION where a bound is infinite."""
        unbounded = np.isinf(self.lower) | np.isinf(self.upper)
        least = np.where(unbounded, MIN_PRECISION, -np.inf).astype(self.precision.dtype)
        return self._replace(precision=np.maximum(self.precision, least))

    @classmethod
    def from_data(cls, X, lower=None, upper=None):
        """Fit truncated Gaussians to the means and variances of the columns.

        Parameters
        ----------
        X : array of shape (n_samples, n_units)
        lower, upper : float or array of shape (n_units,), optional
            Bounds; by default the smallest and the largest value of all columns. Columns of very
            different ranges, as of different units of measurement, have separate bounds, a tenth of
            their range beyond their values.
        """
        lower, upper = bounds_given_or_found(X, lower, upper)
        field, precision = fit(*column_moments(X), lower, upper)
        return cls(
            *(np.asarray(p, dtype=floating_type(X)) for p in (field, precision, lower, upper))
        )

    def refit(self, X):
        """Fit truncated Gaussians with the same bounds to the columns."""
        return self.from_data(X, self.lower, self.upper)

    @staticmethod
    def fill_block(prior, start, b, a, memory):
        """Compute log-partitions and moments of a block of units, inside kernels."""
        _quadrature.integrate_block(prior, start, b, a, memory)
        for i in range(b.shape[0]):
            mass = memory[_quadrature.MASSES + i]
            memory[_quadrature.EXPONENTS + i] += _quadrature.log_mass(mass)

    @staticmethod
    def draw_block(prior, start, u, out, memory):
        """Draw values of a block of units, inside kernels, as quantiles."""
        n = u.shape[0]
        for i in range(n):
            memory[i] = u[i]
        _quadrature.fill_quantiles(memory, n)
        for i in range(n):
            out[i] = memory[i]


# --- fits to data ---------------------------------------------------------------------------------


def bounds_of_columns(X):
    """Return bounds of each column: those of all columns if they are alike, or separate ones.

    Columns such as pixels or marks are alike if at least half of those that vary have a tenth of
    the range of all; a varying column with less than a thousandth of it has separate bounds anyway.
    Separate bounds are a tenth of the column's range beyond its values, but not beyond zero if all
    values have one sign. Bounds of a constant c are at the distance |c| from it, or 1 if c is 0.
    """
    low, high = (
        np.asarray(x.toarray().ravel() if is_sparse(x) else x, np.float64)
        for x in (X.min(axis=0), X.max(axis=0))
    )
    smallest, largest, width = low.min(), high.max(), high - low
    varies = width > 0
    alike = not varies.any() or np.median(width[varies]) >= SHARE * (largest - smallest)
    common = (~varies | (width >= SHARE**3 * (largest - smallest))) & alike
    constant = np.where(low == 0, 1.0, abs(low))
    margin = np.where(varies, SHARE * width, constant)
    lower, upper = low - margin, high + margin
    lower = np.where(varies & (low >= 0), np.maximum(lower, 0), lower)
    upper = np.where(varies & (high <= 0), np.minimum(upper, 0), upper)
    return np.where(common, smallest, lower), np.where(common, largest, upper)


def bounds_given_or_found(X, lower, upper):
    """Return the given bounds, or `bounds_of_columns` in place of None."""
    if lower is None or upper is None:
        smallest, largest = bounds_of_columns(X)
        lower = smallest if lower is None else lower
        upper = largest if upper is None else upper
    return lower, upper


def fit(mean, var, lower, upper):
    """Fit the field and precision of truncated Gaussians to means and variances.

    Means at a bound, variances of zero and variances too large for the interval are first moved
    inside (by `MIN_DISTANCE`), so that constant and binary columns have a finite fit.

    Notes
    -----
    Newton's method on the concave log-likelihood field mean - precision (var + mean^2) / 2 -
    log-partition, damped according to the Newton decrement, in units of the interval.
    """
    mean, var, lower, upper = np.broadcast_arrays(*(widen(p) for p in (mean, var, lower, upper)))
    if not (lower < upper).all():
        raise ValueError(
            f"from_data: lower must be below upper, got {lower.min():g} and {upper.max():g}: where "
            "all data are the same, give a prior with bounds instead of a name."
        )
    origin, scale = _units(mean, var, lower, upper)
    mean, var = (mean - origin) / scale, var / scale**2
    lower, upper = (lower - origin) / scale, (upper - origin) / scale

    # Largest variances: the Bhatia-Davis bound on an interval, the exponential's on a half-line.
    mean = np.clip(mean, lower + MIN_DISTANCE, upper - MIN_DISTANCE)
    bounded = np.isfinite(lower) & np.isfinite(upper)
    near, far = np.sort([mean - lower, upper - mean], axis=0)
    largest = 0.9 * near * np.where(np.isinf(far), near, far)
    var = np.clip(var, np.minimum(MIN_DISTANCE**2, largest), largest)

    precision = np.where(bounded, 0.0, 1 / var)
    field = np.where(bounded, 0.0, mean / var)
    for _ in range(200):
        field, precision, decrement = _newton_step(field, precision, mean, var, lower, upper)
        if decrement.max() < 1e-9:
            break
    return field / scale + precision / scale**2 * origin, precision / scale**2


def _units(mean, var, lower, upper):
    """Return the origin and unit of length in which the interval, or the data, have size one."""
    below, above = np.isfinite(lower), np.isfinite(upper)
    origin = np.where(below, lower, np.where(above, upper, mean))
    with np.errstate(invalid="ignore"):
        width = upper - lower
    spread = np.sqrt(var) + abs(mean - origin)
    # The mean of equal numbers differs from them by rounding.
    rounding = MAX_ROUNDING_ERRORS * np.finfo(np.float64).eps * abs(mean)
    spread = np.where(spread > rounding, spread, 0.0)
    scale = np.where(below & above, width, spread)
    return origin, np.where(scale > 0, scale, 1.0)


def _newton_step(field, precision, mean, var, lower, upper):
    def statistics(precision):
        _, _, m, v = _quadrature.integrate(field, precision, lower, upper, 0.0, 0.0)
        return m, v, -(v + m * m) / 2

    m, v, half = statistics(precision)
    step = 1e-5 * np.maximum(abs(precision), 1.0)
    step = np.where(np.isfinite(upper - lower), step, np.minimum(step, precision / 2))
    above, below = statistics(precision + step), statistics(precision - step)
    h12 = (above[0] - below[0]) / (2 * step)
    h22 = (above[2] - below[2]) / (2 * step)
    r1, r2 = mean - m, -(var + mean * mean) / 2 - half
    determinant = v * h22 - h12 * h12
    d1, d2 = (h22 * r1 - h12 * r2) / determinant, (v * r2 - h12 * r1) / determinant
    decrement = np.sqrt(np.maximum(d1 * r1 + d2 * r2, 0))
    damping = np.where(decrement < 0.25, 1.0, 1 / (1 + decrement))
    new_precision = precision + damping * d2
    # Precisions of units without a bound stay positive.
    least = np.where(np.isfinite(upper - lower), -np.inf, precision / 10)
    new_precision = np.maximum(new_precision, least)
    return field + damping * d1, new_precision, decrement
