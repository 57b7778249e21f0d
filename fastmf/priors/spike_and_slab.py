"""Units that are exactly zero or follow a slab, a Gaussian or a truncated Gaussian.

Both priors are delta_0 + exp(log_odds) slab with a *normalised* slab, so that `log_odds` is the
prior log-odds of a non-zero value whatever the slab's parameters are (Tramel et al. (2018), Eq. 93;
Eq. 94, where the slab is not normalised, is another parameterisation). Their `log_prob` is a
log-mass at zero and a log-density elsewhere.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import column_sums, nonzero_values
from fastmf._jit.kernel import compilable
from fastmf.priors import _quadrature
from fastmf.priors._compiled import LOG_PARTITIONS, MEANS, VARIANCES, by_kernels
from fastmf.priors._registry import floating_type, unit_prior
from fastmf.priors.gaussian import (
    Gaussian,
    TruncatedGaussian,
    bounds_given_or_found,
    check_slab,
    fit,
)
from fastmf.special import (
    clip,
    log_of_normal,
    narrow,
    normal_quantile,
    sigmoid_pair,
    softplus,
    where,
    widen,
)

# Smallest normal number, which bounds probabilities and ratios away from zero and infinity.
TINY = float(np.finfo(np.float64).tiny)
# Log-odds beyond which a coefficient is never zero: the probability of zero is lost in rounding.
ALWAYS = math.log(1 / np.finfo(np.float64).eps)


@compilable
def _mixture(log_odds, mean, variance):
    """Return mean and variance of a slab with these log-odds against a spike at zero."""
    p, q = sigmoid_pair(log_odds)
    return p * mean, p * variance + p * q * mean * mean


# --- methods of both priors, in terms of their `slab` and `tilted` --------------------------------


def _log_partition(self, b, a):
    """Return log(1 + exp(log_odds) Z), where Z is the integral of the tilted slab."""
    return narrow(softplus(self.tilted(b, a)[0]), self.field + b + a)


def _moments(self, b, a):
    """Return mean and variance under the tilt exp(b x - a x^2 / 2)."""
    log_odds, mean, variance = self.tilted(b, a)
    mean, variance = _mixture(log_odds, mean, variance)
    like = self.field + b + a
    return narrow(mean, like), narrow(variance, like)


def _log_prob(self, x):
    """Return 0 at x = 0, and log_odds plus the log-density of the slab elsewhere."""
    slab, limits = self.slab(), self[3:] or (-np.inf, np.inf)
    # Around the mode, as the terms field x and precision x^2 / 2 of a slab far from zero cancel.
    mode = np.clip(self.field / np.where(self.precision > 0, self.precision, 1), *limits)
    field, y = self.field - self.precision * mode, x - mode
    around = slab._make((field, self.precision, *(limit - mode for limit in self[3:])))
    density = (field - self.precision * y / 2) * y - narrow(_untilted(around)[0], self.field)
    return np.where(x == 0, 0 * x, np.where(slab.contains(x), self.log_odds + density, -np.inf))


def _tilted_log_odds(self, b, a):
    """Return the log-odds of a non-zero value under the tilt."""
    return self.tilted(b, a)[0]


def _contains(self, x):
    """Return whether values are zero or in the slab's interval."""
    return self.slab().contains(x) | (x == 0)


def _mixture_gradient(self, mean, var, nonzero):
    """Return derivatives of the log-partition, from moments and the probability of a non-zero.

    As the slab is normalised, its untilted moments, times `nonzero`, are subtracted.
    """
    slab = self.slab()
    moments = (narrow(x, slab.field) for x in _untilted(slab)[1:])
    change = [
        tilted - nonzero * untilted
        for tilted, untilted in zip(
            slab.moment_gradient(mean, var), slab.moment_gradient(*moments), strict=True
        )
    ]
    return self._make((change[0], change[1], nonzero, *change[2:]))


def _untilted(slab):
    """Return the log of the integral, the mean and the variance of a slab."""
    if isinstance(slab, Gaussian):
        zero = 0 * slab.field
        return slab.log_partition(zero, zero), *slab.moments(zero, zero)
    parameters = np.broadcast_arrays(*map(widen, slab))
    return _untilted_truncated(parameters[0].shape, *(x.tobytes() for x in parameters))


@lru_cache(maxsize=4)
def _untilted_truncated(shape, *parameters):
    """Compute `_untilted` of a truncated slab; cached, as it costs as much as a tilt."""
    field, precision, lower, upper = (np.frombuffer(x).reshape(shape) for x in parameters)
    zero = np.zeros_like(field)
    exponent, mass, mean, var = _quadrature.integrate(field, precision, lower, upper, zero, zero)
    return exponent + _quadrature.log_mass(mass), mean, var


def _project(self):
    """Return the prior with an integrable slab."""
    return self._replace(precision=self.slab().project().precision)


def _from_nonzeros(X, lower, upper):
    """Fit field and precision to the non-zero values of each column, log-odds to their number.

    The log-odds have a pseudo-count of one for zero and for other values. Columns of zeros get a
    slab that is fitted to the non-zero values of all columns.
    """
    values = nonzero_values(X).astype(np.float64)
    if values.size == 0:
        raise ValueError("from_data: X must have a non-zero value, got only zeros.")
    count = column_sums(X, lambda x, columns: x != 0)
    mean = np.where(count, column_sums(X) / np.maximum(count, 1), values.mean())
    square = column_sums(X, lambda x, columns: np.where(x != 0, (x - mean[columns]) ** 2, 0))
    var = np.where(count, square / np.maximum(count, 1), values.var())
    log_odds = np.log(count + 1.0) - np.log(X.shape[0] - count + 1.0)
    field, precision = fit(mean, var, lower, upper)
    return field, precision, log_odds


def _refit(self, X):
    """Fit units with the same bounds to the columns; keep the slabs if all data are zero."""
    if not nonzero_values(X).size:
        log_odds = np.full_like(self.log_odds, -np.log(X.shape[0] + 1.0))
        return self._replace(log_odds=log_odds)
    return self.from_data(X, *self[3:])


# --- the two priors -------------------------------------------------------------------------------


@unit_prior("gauss_bernoulli")
class GaussBernoulli(NamedTuple):
    """Real units with weight delta_0 + exp(log_odds) N(x; field / precision, 1 / precision).

    Parameters
    ----------
    field : float or array of shape (n_units,)
        Mean of the slab times its precision.
    precision : float or array of shape (n_units,)
        Inverse variance of the slab, positive.
    log_odds : float or array of shape (n_units,)
        Log-odds of a non-zero value.

    Raises
    ------
    ValueError
        If a precision is not positive.

    Notes
    -----
    A tilt with precision + a <= 0 has log-partition and variance +inf.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> prior = mf.GaussBernoulli(np.zeros(1), np.ones(1), log_odds=np.zeros(1))
    >>> prior.moments(0.0, 0.0)  # zero with probability 1/2, else of variance 1
    (array([0.]), array([0.5]))
    """

    field: np.ndarray
    precision: np.ndarray
    log_odds: np.ndarray

    hidden_unit = (0.0, 1.0, 0.0)

    def _check(self):
        if not (self.precision > 0).all():
            raise ValueError(
                f"GaussBernoulli: precision must be positive, got {self.precision.min():g}."
            )

    def tilted(self, b, a):
        """Return log-odds of a non-zero value under the tilt, and the slab's mean and variance."""
        return _tilted_gaussian(
            widen(self.field), widen(self.precision), widen(self.log_odds), widen(b), widen(a)
        )

    def draw(self, b, a, u):
        """Return a draw as a function of a uniform number: from the slab if u is small enough."""
        log_odds, mean, variance = self.tilted(b, a)
        p = sigmoid_pair(log_odds)[0]
        value = mean + np.sqrt(variance) * normal_quantile(u / (p + TINY))
        return narrow(where(u < p, value, 0.0 * mean), self.field + b + a)

    def slab(self):
        """Return the slab as a prior, without its normalisation."""
        return Gaussian._make(self[:2])

    log_partition = _log_partition
    moments = _moments
    tilted_log_odds = _tilted_log_odds
    log_prob = _log_prob
    contains = _contains
    mixture_gradient = _mixture_gradient
    project = _project
    refit = _refit

    @classmethod
    def from_data(cls, X):
        """Fit the slab to the non-zero values of the columns, the log-odds to their number."""
        field, precision, log_odds = _from_nonzeros(X, -np.inf, np.inf)
        return cls(*(p.astype(floating_type(X)) for p in (field, precision, log_odds)))


@compilable
def _tilted_gaussian(field, precision, log_odds, b, a):
    """Return log-odds of the slab under the tilt, and the slab's mean and variance."""
    s = precision + a
    proper = s > 0.0
    divisor = where(proper, s, precision)
    mean = where(proper, (field + b) / divisor, 0.0 * b)
    # (field + b)^2 / s - field^2 / precision, without cancellation at weak tilts.
    exponent = b * mean + field * ((b - a * (field / precision)) / divisor)
    ratio = clip(divisor / precision, TINY, 1.0 / TINY)
    log_slab = 0.5 * (exponent - log_of_normal(ratio))
    return (log_odds + where(proper, log_slab, np.inf), mean, where(proper, 1.0 / divisor, np.inf))


@unit_prior("truncated_gauss_bernoulli")
class TruncatedGaussBernoulli(NamedTuple):
    """Units that are zero, or have a truncated Gaussian density on an interval.

    Parameters
    ----------
    field, precision : float or array of shape (n_units,)
        Field and precision of the slab, whose weight is exp(field x - precision x^2 / 2) on [lower,
        upper], divided by its integral. The precision may have either sign if both bounds are
        finite.
    log_odds : float or array of shape (n_units,)
        Log-odds of a non-zero value.
    lower, upper : float or array of shape (n_units,)
        Bounds of the slab. They need not enclose zero, and are not learned.

    Raises
    ------
    ValueError
        If a lower bound is not below its upper bound, or if the slab has no finite integral.

    Notes
    -----
    Tramel et al. (2018), Eqs. 93, 96-98 and 106-109, in the parameterisation of Eq. 93. In the
    second form of Eq. 98 the mean of the slab must be squared; in Eqs. 106 and 108, delta(x) must
    be 1 - delta(x).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> prior = mf.TruncatedGaussBernoulli(
    ...     np.zeros(1), np.zeros(1), log_odds=np.zeros(1), lower=np.zeros(1), upper=np.ones(1)
    ... )
    >>> mean, _ = prior.moments(0.0, 0.0)  # zero with probability 1/2, else uniform on [0, 1]
    >>> mean.round(12)
    array([0.25])
    """

    field: np.ndarray
    precision: np.ndarray
    log_odds: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    parameters = ("field", "precision", "log_odds")
    hidden_unit = (0.0, 1.0, 0.0, 0.0, 1.0)

    def _check(self):
        check_slab("TruncatedGaussBernoulli", self.field, self.precision, self.lower, self.upper)

    def tilted(self, b, a):
        """Return log-odds of a non-zero value under the tilt, and the slab's mean and variance."""
        return self.precomputed().tilted(b, a)

    def draw(self, b, a, u):
        """Return a draw as a function of a uniform number: from the slab if u is small enough."""
        return by_kernels(self, "draws", b, a, u)

    def precomputed(self):
        """Return the prior with the integral of its slab, which saves half of every tilt."""
        weight = widen(self.log_odds) - _untilted(self.slab())[0]
        return CompiledTruncatedGaussBernoulli(*self[:2], weight, *self[3:])

    def slab(self):
        """Return the slab as a prior, without its normalisation."""
        return TruncatedGaussian._make((self.field, self.precision, self.lower, self.upper))

    log_partition = _log_partition
    moments = _moments
    tilted_log_odds = _tilted_log_odds
    log_prob = _log_prob
    contains = _contains
    mixture_gradient = _mixture_gradient
    project = _project
    refit = _refit

    @classmethod
    def from_data(cls, X, lower=None, upper=None):
        """Fit the slab to the non-zero values of the columns, the log-odds to their number.

        Parameters
        ----------
        X : array of shape (n_samples, n_units)
        lower, upper : float or array of shape (n_units,), optional
            Bounds; by default the smallest and the largest value of all columns. If the ranges of
            columns differ, as in different units of measurement, each column has its own bounds, a
            tenth of its range beyond its values.
        """
        lower, upper = bounds_given_or_found(X, lower, upper)
        fitted = _from_nonzeros(X, lower, upper)
        return cls(*(np.asarray(p, dtype=floating_type(X)) for p in (*fitted, lower, upper)))


class CompiledTruncatedGaussBernoulli(NamedTuple):
    """A `TruncatedGaussBernoulli` whose `log_weight` is log-odds less the log of the integral."""

    field: np.ndarray
    precision: np.ndarray
    log_weight: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def tilted(self, b, a):
        """Return log-odds of the slab under the tilt, and the slab's mean and variance."""
        exponent, mass, mean, variance = _quadrature.integrate(
            *map(widen, (self.field, self.precision, self.lower, self.upper, b, a))
        )
        return self.log_weight + (exponent + _quadrature.log_mass(mass)), mean, variance

    log_partition = _log_partition
    moments = _moments

    def draw(self, b, a, u):
        """Return draws as in `TruncatedGaussBernoulli`."""
        return by_kernels(self, "draws", b, a, u)

    @staticmethod
    def fill_block(prior, start, b, a, memory):
        """Fill in log-partitions and moments of a block of units, inside kernels."""
        _quadrature.integrate_block(prior, start, b, a, memory)
        for i in range(b.shape[0]):
            log_mass = _quadrature.log_mass(memory[_quadrature.MASSES + i])
            integral = memory[_quadrature.EXPONENTS + i] + log_mass
            log_odds = prior.log_weight[start + i] + integral
            # The log-odds replace the masses, for draws.
            memory[_quadrature.MASSES + i] = log_odds
            memory[LOG_PARTITIONS + i] = softplus(log_odds)
            memory[MEANS + i], memory[VARIANCES + i] = _mixture(
                log_odds, memory[MEANS + i], memory[VARIANCES + i]
            )

    @staticmethod
    def draw_block(prior, start, u, out, memory):
        """Fill in draws of a block of units, inside kernels: zero, or quantiles of the slab."""
        n = u.shape[0]
        for i in range(n):
            nonzero = sigmoid_pair(memory[_quadrature.MASSES + i])[0]
            out[i] = u[i] < nonzero
            memory[i] = u[i] / (nonzero + TINY)
        _quadrature.fill_quantiles(memory, n)
        for i in range(n):
            out[i] = where(out[i] != 0, memory[i], 0.0)
