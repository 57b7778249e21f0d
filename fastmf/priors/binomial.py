"""Binomial units: counts {0, 1, ..., n}, the sum of n Bernoulli units of the same field."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import column_sums, is_sparse
from fastmf._jit.intrinsics import row, smaller
from fastmf._jit.kernel import compilable, compiled_from, kernel
from fastmf.priors._protocol import sample_by_draw
from fastmf.priors._quadrature import PANEL_UNITS, block_memory
from fastmf.priors._registry import floating_type, unit_prior
from fastmf.priors.ordinal import MAX_TILT, past_value, rows_of_block, with_value
from fastmf.special import (
    clip,
    exp,
    log,
    narrow,
    sigmoid_pair,
    softplus,
    where,
    widen,
)

# Largest number of trials: the binomial coefficients C(n, x) of 1029 are the last ones in float64.
MAX_TRIALS = 1000


@unit_prior("binomial")
class Binomial(NamedTuple):
    """Units with values 0, 1, ..., n and weight C(n, x) exp(field x).

    Parameters
    ----------
    field : float or array of shape (n_units,)
        Log-odds of one of n independent trials.
    n : int or array of shape (n_units,)
        Number of trials, from 1 to 1000, kept as a floating-point number. Not learned.

    Raises
    ------
    ValueError
        If a number of trials is not an integer from 1 to 1000.

    Notes
    -----
    With n = 1 this is `Bernoulli`. For a = 0 the log-partition is n log(1 + exp(field + b)), and
    the moments are those of the binomial distribution; otherwise they are sums over all values,
    each term relative to the largest one so far. float32 units are computed in float64.

    Examples
    --------
    >>> import fastmf as mf
    >>> mean, var = mf.Binomial(0.0, [1, 10]).moments(0.0, 0.0)
    >>> mean.tolist(), var.tolist()
    ([0.5, 5.0], [0.25, 2.5])
    """

    field: np.ndarray
    n: np.ndarray

    parameters = ("field",)
    hidden_unit = (0.0, 4)

    def _check(self):
        wrong = (self.n < 1) | (self.n > MAX_TRIALS) | (self.n != np.round(self.n))
        if wrong.any():
            raise ValueError(
                f"Binomial: n must be an integer from 1 to {MAX_TRIALS}, got {self.n[wrong][0]:g}."
            )

    @property
    def support(self):
        """The values of each unit, (n_values, n_units), padded with NaN."""
        x = np.arange(self.n.max() + 1.0)[:, None]
        return np.where(x <= self.n, x, np.nan)

    def log_partition(self, b, a):
        """Log of the sum over x of C(n, x) exp((field + b) x - a x^2 / 2)."""
        t, s = _tilt(widen(self.field), widen(b), widen(a))
        top, total, _, _ = _sums(t, s, widen(self.n))
        value = where(s == 0.0, widen(self.n) * softplus(t), top + log(total))
        return narrow(value, self.field + b + a)

    def moments(self, b, a):
        """Mean and variance under the tilt exp(b x - a x^2 / 2)."""
        t, s = _tilt(widen(self.field), widen(b), widen(a))
        _, total, mean, squares = _sums(t, s, widen(self.n))
        p, q = sigmoid_pair(t)
        mean = where(s == 0.0, widen(self.n) * p, mean)
        variance = where(s == 0.0, widen(self.n) * p * q, squares / total)
        like = self.field + b + a
        return narrow(mean, like), narrow(variance, like)

    @staticmethod
    def moments_of_units(prior, start, b, a, mean, var):
        """The moments of many units at once, inside kernels."""
        memory = block_memory()
        for first in range(0, b.shape[0], PANEL_UNITS):
            n = smaller(PANEL_UNITS, b.shape[0] - first)
            here = row(b, (first,), n), row(a, (first,), n)
            _sum_block(prior, start + first, here[0], here[1], memory)
            t, s, trials, _, _, total, means, squares = rows_of_block(memory, n)
            for i in range(n):
                p, q = sigmoid_pair(t[i])
                mean[first + i] = where(s[i] == 0.0, trials[i] * p, means[i])
                variance = where(s[i] == 0.0, trials[i] * p * q, squares[i] / total[i])
                var[first + i] = variance

    def log_prob(self, x):
        """log C(n, x) + field x for x in {0, 1, ..., n}, -inf elsewhere."""
        inside = (x >= 0) & (x <= self.n) & (x == np.round(x))
        index, n = np.broadcast_arrays(np.where(inside, x, 0).astype(int), self.n)
        coefficients = np.empty(index.shape)
        for trials in np.unique(self.n):
            here = n == trials
            coefficients[here] = _log_coefficients(int(trials))[index[here]]
        value = np.where(inside, coefficients + self.field * index, -np.inf)
        return value.astype((self.field + x).dtype, copy=False)

    def draw(self, b, a, u):
        """The value that a uniform number draws from the tilted distribution: its quantile."""
        t, s = _tilt(widen(self.field), widen(b), widen(a))
        n = widen(self.n)
        top, total, _, _ = _sums(t, s, n)
        log_total = where(s == 0.0, n * softplus(t), top + log(total))
        drawn, coefficient = (0.0 * log_total, exp(-log_total)), 1.0 + 0.0 * n
        for k in range(_last_term(1.0 + 0.0 * n, n)):
            coefficient = _next_coefficient(coefficient, k + 1.0, n)
            exponent = _exponent(k + 1.0, t, s, n)
            drawn = past_value(exponent, coefficient, log_total, u, drawn)
        return narrow(drawn[0], self.field + b + a)

    @staticmethod
    def draws_of_units(prior, start, b, a, u, out, scratch):
        """The draws of many units at once, inside kernels."""
        memory, size = block_memory(), PANEL_UNITS
        for first in range(0, b.shape[0], size):
            n = smaller(size, b.shape[0] - first)
            _sum_block(prior, start + first, row(b, (first,), n), row(a, (first,), n), memory)
            _draw_block(memory, row(u, (first,), n), row(out, (first,), n))

    def sample(self, b, a, rng):
        """Draws from the tilted distribution."""
        if np.any(a):
            return sample_by_draw(self, b, a, rng)
        t = np.broadcast_arrays(_tilt(widen(self.field), widen(b), widen(a))[0], self.n)[0]
        return narrow(rng.binomial(self.n.astype(int), sigmoid_pair(t)[0]), self.field + b + a)

    def gradient(self, b, a):
        """Derivatives of the log-partition; zero for n, which is not learned."""
        return self.moment_gradient(*self.moments(b, a))

    def moment_gradient(self, mean, var):
        """Derivatives of the log-partition, from the moments."""
        return self._make((mean, 0 * mean))

    def log_prob_gradient(self, x):
        """Derivatives of log_prob; zero for n, which is not learned."""
        return self._make((x, 0 * x))

    @classmethod
    def from_data(cls, X, n=None):
        """Log-odds of the column means, with a pseudo-count of one for each outcome of a trial.

        Parameters
        ----------
        X : array of shape (n_samples, n_units)
            Integers from 0 to n.
        n : int or array of shape (n_units,), optional
            Numbers of trials; by default the largest value of all columns.
        """
        n = np.asarray(max(X.max(), 1) if n is None else n, dtype=np.float64)
        n = np.broadcast_to(n, X.shape[1])
        wrong = column_sums(X, lambda x, columns: _outside(x, np.minimum(n, MAX_TRIALS)[columns]))
        if wrong.any():
            column = int(np.argmax(wrong > 0))
            values = X[:, [column]].toarray() if is_sparse(X) else X[:, [column]]
            raise ValueError(
                "Binomial.from_data: X must have integers from 0 to n, and n is at most "
                f"{MAX_TRIALS}; got {values[_outside(values, min(n[column], MAX_TRIALS))][0]:g}."
            )
        successes = column_sums(X)
        failures = X.shape[0] * n - successes
        field = np.log(successes + 1.0) - np.log(failures + 1.0)
        return cls(*(p.astype(floating_type(X)) for p in (field, n)))

    def refit(self, X):
        """Binomial units with the same n, fitted to the columns."""
        return self.from_data(X, self.n)


def _outside(x, n):
    """Whether values are no integers from 0 to n."""
    return (x < 0) | (x > n) | (x != np.round(x))


@lru_cache(maxsize=64)
def _log_coefficients(n):
    """log C(n, x) for x = 0, 1, ..., n."""
    return np.array([math.log(math.comb(n, x)) for x in range(n + 1)])


@compilable(mode="inline")
def _tilt(field, b, a):
    """The field plus b, and a, clipped to MAX_TILT in absolute value."""
    return clip(field + b, -MAX_TILT, MAX_TILT), clip(a, -MAX_TILT, MAX_TILT)


def _last_term(a, n):
    """Number of the last term that any unit needs: without a tilt `a`, no sum is needed."""
    return int(np.max(np.where(a == 0, 0, n)))


@compiled_from(_last_term)
def _last_term_compiled(a, n):
    return lambda a, n: int(n) if a != 0.0 else 0


@compilable(mode="inline")
def _sums(t, a, n):
    """Sums over x of the weights w(x) = C(n, x) exp(t x - a x^2 / 2), in one pass."""
    top, coefficient = 0.0 * (t + a + n), 1.0 + 0.0 * n
    sums = top, 1.0 + top, 0.0 + top, 0.0 + top
    for k in range(_last_term(a, n)):
        coefficient = _next_coefficient(coefficient, k + 1.0, n)
        sums = with_value(k + 1.0, _exponent(k + 1.0, t, a, n), coefficient, sums)
    return sums


@compilable(mode="inline")
def _exponent(x, t, a, n):
    """The exponent t x - a x^2 / 2 of units that have the value x."""
    return where(x <= n, x * (t - 0.5 * a * x), -np.inf)


@compilable(mode="inline")
def _next_coefficient(coefficient, x, n):
    """C(n, x) after C(n, x - 1); zero beyond n."""
    return coefficient * ((n - x + 1.0) / x)


@kernel(mode="merged")
def _sum_block(prior, start, b, a, memory):
    """`_sums` for some units at once: inside kernels their loop is the inner one."""
    n, last = b.shape[0], 0
    t, s, trials, coefficient, top, total, mean, squares = rows_of_block(memory, n)
    for i in range(n):
        trials[i] = prior.n[start + i]
        t[i], s[i] = _tilt(widen(prior.field[start + i]), widen(b[i]), widen(a[i]))
        coefficient[i], top[i], total[i], mean[i], squares[i] = 1.0, 0.0, 1.0, 0.0, 0.0
        if s[i] != 0.0:  # without a tilt no sum is needed
            last = max(last, int(trials[i]))
    for k in range(last):
        x = k + 1.0
        for i in range(n):
            coefficient[i] = _next_coefficient(coefficient[i], x, trials[i])
            exponent = _exponent(x, t[i], s[i], trials[i])
            sums = top[i], total[i], mean[i], squares[i]
            sums = with_value(x, exponent, coefficient[i], sums)
            top[i], total[i], mean[i], squares[i] = sums


@kernel(mode="merged")
def _draw_block(memory, u, out):
    """Draws of some units, whose sums are in memory; what is drawn is there in the end."""
    n, last = u.shape[0], 0
    t, s, trials, coefficient, top, total, x, below = rows_of_block(memory, n)
    for i in range(n):
        # In the place of the largest exponent, the log of the whole sum.
        top[i] = where(s[i] == 0.0, trials[i] * softplus(t[i]), top[i] + log(total[i]))
        x[i], coefficient[i], below[i] = 0.0, 1.0, exp(-top[i])
        last = max(last, int(trials[i]))
    for k in range(last):
        for i in range(n):
            coefficient[i] = _next_coefficient(coefficient[i], k + 1.0, trials[i])
            exponent = _exponent(k + 1.0, t[i], s[i], trials[i])
            x[i], below[i] = past_value(exponent, coefficient[i], top[i], u[i], (x[i], below[i]))
    for i in range(n):
        out[i] = x[i]
