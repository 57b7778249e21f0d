"""Ordinal units, with a weight for each of the scores {0, 1, ..., m}, and binomial counts.

With t_c = log_weights_c + b c - a c^2 / 2 the scores have the probabilities softmax(t). The fields
of a prior are vectors in kernels, which receive the address of each unit's log-weights instead. A
binomial unit is the sum of n Bernoulli units with the same field.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import number, real_array
from fastmf._common.rows import column_sums, is_sparse, row_blocks
from fastmf._jit.intrinsics import larger, row, view, widest_vectors
from fastmf._jit.kernel import REORDER, kernel
from fastmf.priors._compiled import LOG_PARTITIONS, MEANS, UNITS_PER_BLOCK, VARIANCES
from fastmf.priors._quadrature import MAX_TILT
from fastmf.priors._registry import floating_type, unit_prior
from fastmf.special import clip, exp, log_of_normal, narrow, where, widen

# Larger scores are refused as a mistake in the data.
MAX_SCORE = 1000


class ScoreTable:
    """Methods of units that have `log_weights` of scores, an array (n_units, n_scores)."""

    __slots__ = ()

    @property
    def n_scores(self):
        """Number of scores of each unit, int array of shape (n_units,)."""
        return np.isfinite(self.log_weights).sum(1)

    @property
    def support(self):
        """The values of each unit, (n_values, n_units), padded with NaN."""
        x = np.arange(float(self.n_scores.max()))[:, None]
        return np.where(x < self.n_scores, x, np.nan)

    def log_partition(self, b, a):
        """Return the log of the sum over x of exp(log_weights[x] + b x - a x^2 / 2)."""
        return narrow(self._probabilities(b, a)[1], self._like(b, a))

    def moments(self, b, a):
        """Return mean and variance under the tilt exp(b x - a x^2 / 2)."""
        p = self._probabilities(b, a)[0]
        x = np.arange(p.shape[-1])
        mean = p @ x
        var = (p * np.square(x - mean[..., None])).sum(-1)
        return narrow(mean, self._like(b, a)), narrow(var, self._like(b, a))

    def draw(self, b, a, u):
        """Return the quantile of the tilted distribution at a uniform number, which is a draw."""
        below = np.cumsum(self._probabilities(b, a)[0], axis=-1)
        passed = (np.asarray(u)[..., None] >= below).sum(-1)
        return narrow(np.minimum(passed, self.n_scores - 1), self._like(b, a))

    def log_prob(self, x):
        """Return the log-weight of x for x in {0, 1, ..., m}, -inf elsewhere."""
        x, inside, index = self._index(x)
        value = np.where(inside, self.log_weights[np.arange(x.shape[-1]), index], -np.inf)
        return narrow(value, self._like(x))

    def contains(self, x):
        """Return whether values are scores of their units."""
        return self._index(x)[1]

    def _index(self, x):
        """Return values by unit, whether they are scores of the unit, and integer scores."""
        n_scores = self.n_scores
        x = np.broadcast_to(x, np.broadcast_shapes(np.shape(x), n_scores.shape))
        inside = (x >= 0) & (x < n_scores) & (x == np.round(x))
        return x, inside, np.where(inside, x, 0).astype(int)

    def _like(self, *arguments):
        """Return an array of the type of the results."""
        return np.zeros((), np.result_type(self[0], *arguments))

    def _probabilities(self, b, a):
        """Return tilted probabilities of scores, (..., n_units, m + 1), and log-partitions."""
        b, a = (np.clip(widen(tilt), -MAX_TILT, MAX_TILT)[..., None] for tilt in (b, a))
        log_weights = widen(self.log_weights)
        x = np.arange(log_weights.shape[1])
        exponents = log_weights + x * (b - 0.5 * a * x)
        top = exponents.max(-1, keepdims=True)
        weights = np.exp(exponents - top)
        total = weights.sum(-1, keepdims=True)
        return weights / total, (top + np.log(total))[..., 0]


class _LogWeights(NamedTuple):
    log_weights: np.ndarray


@unit_prior("ordinal")
class Ordinal(ScoreTable, _LogWeights):
    """Units with scores 0, 1, ..., m and weight exp(log_weights[x]) of each.

    Parameters
    ----------
    log_weights : array of shape (n_units, m + 1)
        Log-weights of the scores, -inf beyond a unit's largest score.

    Raises
    ------
    ValueError
        If a unit has fewer than two scores, or a log-weight -inf below a finite one.

    Notes
    -----
    A unit of two scores is a `Bernoulli` unit with field log_weights[1] - log_weights[0]; a unit
    of weights C(n, x) exp(field x) is `Binomial`. float32 units are computed in float64.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> units = mf.Ordinal([[0.0, 0.0, 0.0], [0.0, 0.0, -np.inf]])  # scores 0 to 2, and 0 to 1
    >>> units.moments(0.0, 0.0)[0].tolist()
    [1.0, 0.5]
    """

    __slots__ = ()

    parameters = ("log_weights",)

    def __new__(cls, log_weights):
        """Check the log-weights."""
        array = real_array("Ordinal: log_weights", log_weights)
        if array.ndim != 2 or array.shape[1] < 2:
            raise ValueError(
                "Ordinal: log_weights must have shape (n_units, m + 1), with two scores at least, "
                f"got {array.shape}."
            )
        if array.dtype != np.float32:
            array = array.astype(np.float64)
        finite = np.isfinite(array)
        proper = finite[:, :2].all(1) & ~(~finite[:, :-1] & finite[:, 1:]).any(1)
        if not (proper & (finite | (array == -np.inf)).all(1)).all():
            raise ValueError(
                "Ordinal: log_weights must be finite for the scores 0 and 1 at least, and -inf "
                "only beyond a unit's largest score."
            )
        if array.shape[1] > MAX_SCORE + 1:
            raise ValueError(f"Ordinal: scores must be at most {MAX_SCORE}.")
        return cls._make((np.array(array, order="C"),))

    def n_units(self):
        """Return the number of units."""
        return len(self.log_weights)

    def precomputed(self):
        """Return the prior in the form that kernels tilt."""
        return compiled_scores(self.log_weights)

    def gradient(self, b, a):
        """Return derivatives of the log-partition, the probabilities (..., n_units, m + 1)."""
        return self._make((narrow(self._probabilities(b, a)[0], self._like(b, a)),))

    def log_prob_gradient(self, x):
        """Return derivatives of log_prob, (..., n_units, m + 1)."""
        x, inside, index = self._index(x)
        hit = inside[..., None] & (index[..., None] == np.arange(self.log_weights.shape[-1]))
        return self._make((hit.astype(np.result_type(self.log_weights, x)),))

    def project(self):
        """Return the prior with log-weight 0 of score 0."""
        return self._make((self.log_weights - self.log_weights[:, :1],))

    @classmethod
    def from_data(cls, X, sizes=None, *, pseudocount=1.0):
        """Fit the log-weights of independent units to the frequencies of data.

        Parameters
        ----------
        X : array of shape (n_samples, n_units)
            Scores 0, 1, ...
        sizes : int or int array of shape (n_units,), optional
            Number of scores of each unit. Default: the largest of each column plus 1, at least 2.
        pseudocount : float, default 1.0
            Number that is added to the count of each score.

        Returns
        -------
        Ordinal
            The log-weights of score 0 are 0.
        """
        if sizes is None:
            largest = X.max(axis=0)
            largest = largest.toarray()[0] if is_sparse(X) else largest
            if not largest.max() <= MAX_SCORE:
                raise ValueError(f"X must hold scores up to {MAX_SCORE}, got {largest.max():g}.")
            sizes = np.maximum(largest.astype(int) + 1, 2)
        sizes = np.broadcast_to(real_array("sizes", sizes), X.shape[1]).astype(int)
        scores = np.arange(sizes.max())
        pseudocount = number("pseudocount", pseudocount, 0, np.inf, below=True)
        counts = np.full((len(sizes), len(scores)), float(pseudocount))
        for block in row_blocks(X):
            x = X[block].toarray() if is_sparse(X) else X[block]
            wrong = (x < 0) | (x >= sizes) | (x != np.round(x))
            if wrong.any():
                raise ValueError(
                    "Ordinal.from_data: X must have integers from 0 to a unit's largest score, "
                    f"got {x[wrong][0]!s}."
                )
            counts += (x[..., None] == scores).sum(0)
        counts = np.where(scores < sizes[:, None], counts, 0.0)
        if (counts[scores < sizes[:, None]] == 0).any():
            raise ValueError("Ordinal: a score never occurs; pass a positive pseudocount.")
        with np.errstate(divide="ignore"):
            log_weights = np.log(counts) - np.log(counts[:, :1])
        return cls(log_weights.astype(floating_type(X)))

    def refit(self, X):
        """Fit ordinal units with the same scores to the columns."""
        return self.from_data(X, self.n_scores)


def compiled_scores(log_weights):
    """Return units of scores in the form that kernels tilt."""
    table = np.asfortranarray(log_weights)
    n_units, step = len(table), table.strides[1]
    address = table.ctypes.data + table.itemsize * np.arange(n_units, dtype=np.int64)
    sizes = np.isfinite(table).sum(1, dtype=np.int64)
    return CompiledScores(table, address, np.full(n_units, step, np.int64), sizes)


class _Columns(NamedTuple):
    log_weights: np.ndarray
    address: np.ndarray
    step: np.ndarray
    size: np.ndarray


class CompiledScores(ScoreTable, _Columns):
    """Units of scores as kernels receive them; the log-weights of one score are contiguous.

    `address` is the address of a unit's score 0, `step` the distance to its next score, in bytes.
    """

    __slots__ = ()

    def n_units(self):
        """Return the number of units."""
        return len(self.log_weights)

    @staticmethod
    def fill_block(prior, start, b, a, memory):
        """Fill in log-partitions and moments of a block of units, inside kernels."""
        n = b.shape[0]
        t, s, exponent, mode, _, total, top, mean, var = _rows_of_block(memory, n)
        for i in range(n):
            t[i] = clip(widen(b[i]), -MAX_TILT, MAX_TILT)
            s[i] = clip(widen(a[i]), -MAX_TILT, MAX_TILT)
            mode[i], total[i], mean[i], var[i] = 0.0, 0.0, 0.0, 0.0
        last = _n_scores(prior, start, n)
        _exponents(prior, start, 0, t, s, top)
        for x in range(1, last):
            _exponents(prior, start, x, t, s, exponent)
            for i in range(n):
                mode[i] = where(exponent[i] > top[i], widen(x), mode[i])
                top[i] = where(exponent[i] > top[i], exponent[i], top[i])
        for x in range(last):
            _exponents(prior, start, x, t, s, exponent)
            _add_score(x, exponent, top, mode, total, mean, var)
        for i in range(n):
            top[i] += log_of_normal(total[i])
            from_mode = mean[i] / total[i]
            mean[i] = mode[i] + from_mode
            var[i] = var[i] / total[i] - from_mode * from_mode

    @staticmethod
    def draw_block(prior, start, u, out, memory):
        """Fill in draws of a block of units, inside kernels."""
        n = u.shape[0]
        t, s, exponent, drawn, below, _, log_total, _, _ = _rows_of_block(memory, n)
        for i in range(n):
            drawn[i], below[i] = 0.0, 0.0
        _exponents(prior, start, 0, t, s, exponent)
        for x in range(1, _n_scores(prior, start, n)):
            _add_probability(exponent, log_total, below)
            _exponents(prior, start, x, t, s, exponent)
            for i in range(n):
                drawn[i] += where((exponent[i] > -np.inf) & (u[i] >= below[i]), 1.0, 0.0)
        for i in range(n):
            out[i] = drawn[i]


# --- sums over scores, inside kernels -------------------------------------------------------------
# One score after another: the inner loop, over the units of a block, vectorises. A weight is the
# square of its root, so that it may underflow to 0; `exp` does not.


@kernel(mode="inner", fastmath=REORDER)
def _add_score(x, exponent, top, mode, total, mean, var):
    """Add the weight of the score `x` to the sums of weights, distances to modes, and squares.

    If the mode has probability p, p (mode - mean)^2 <= var: rounding errors of the variance, a
    difference, grow by at most a factor 1 / p, which is at most the number of scores.
    """
    widest_vectors()
    for i in range(total.shape[0]):
        root, distance = exp(0.5 * (exponent[i] - top[i])), x - mode[i]
        weight = root * root
        total[i] += weight
        mean[i] += weight * distance
        var[i] += weight * distance * distance


@kernel(mode="inner")
def _add_probability(exponent, log_total, below):
    """Add the probabilities of a score to the cumulative probabilities."""
    for i in range(below.shape[0]):
        root = exp(0.5 * (exponent[i] - log_total[i]))
        below[i] += root * root


@kernel(mode="inner")
def _n_scores(prior, start, n):
    """Return the largest number of scores of some units."""
    largest = np.int64(0)
    for i in range(n):
        largest = larger(largest, prior.size[start + i])
    return largest


@kernel(mode="merged")
def _exponents(prior, start, x, b, a, out):
    """Fill in the logs of the tilted weights of the score x, -inf beyond a unit's scores."""
    n = out.shape[0]
    log_weights = view(prior.address[start] + x * prior.step[start], (n,), prior.log_weights)
    for i in range(n):
        out[i] = widen(log_weights[i]) + x * (b[i] - 0.5 * a[i] * x)


@kernel(mode="merged")
def _rows_of_block(memory, n):
    """Return the rows of memory of a block of `n` units."""
    return (
        row(memory, (0,), n),
        row(memory, (UNITS_PER_BLOCK,), n),
        row(memory, (2 * UNITS_PER_BLOCK,), n),
        row(memory, (3 * UNITS_PER_BLOCK,), n),
        row(memory, (4 * UNITS_PER_BLOCK,), n),
        row(memory, (5 * UNITS_PER_BLOCK,), n),
        row(memory, (LOG_PARTITIONS,), n),
        row(memory, (MEANS,), n),
        row(memory, (VARIANCES,), n),
    )


class _Trials(NamedTuple):
    field: np.ndarray
    n: np.ndarray


@unit_prior("binomial")
class Binomial(ScoreTable, _Trials):
    """Units with values 0, 1, ..., n and weight C(n, x) exp(field x).

    Parameters
    ----------
    field : float or array of shape (n_units,)
        Log-odds of one of n independent trials.
    n : int or array of shape (n_units,)
        Number of trials, from 1 to 1000, stored as a floating-point number. Not learned.

    Raises
    ------
    ValueError
        If a number of trials is not an integer from 1 to 1000.

    Notes
    -----
    With n = 1 this is `Bernoulli`. For a = 0 the log-partition is n log(1 + exp(field + b)), and
    the mean n sigmoid(field + b). For any a they are computed as sums over the values, in float64
    also for float32 units.

    Examples
    --------
    >>> import fastmf as mf
    >>> mean, var = mf.Binomial(0.0, [1, 10]).moments(0.0, 0.0)
    >>> mean.round(12).tolist(), var.round(12).tolist()
    ([0.5, 5.0], [0.25, 2.5])
    """

    __slots__ = ()

    parameters = ("field",)
    hidden_unit = (0.0, 4)

    def _check(self):
        wrong = (self.n < 1) | (self.n > MAX_SCORE) | (self.n != np.round(self.n))
        if wrong.any():
            raise ValueError(
                f"Binomial: n must be an integer from 1 to {MAX_SCORE}, got {self.n[wrong][0]:g}."
            )

    @property
    def n_scores(self):
        """Number of values of each unit, int array of shape (n_units,)."""
        return self.n.astype(int) + 1

    @property
    def log_weights(self):
        """Log-weights of all values, (n_units, n_values), -inf beyond n."""
        table = np.full((len(self.n), self.n_scores.max(initial=1)), -np.inf)
        for n in np.unique(self.n).astype(int):
            table[self.n == n, : n + 1] = _log_coefficients(n)
        return table + widen(self.field)[:, None] * np.arange(table.shape[1])

    def precomputed(self):
        """Return the prior in the form that kernels tilt."""
        return compiled_scores(self.log_weights)

    def moment_gradient(self, mean, var):
        """Return derivatives of the log-partition, from the moments."""
        return self._make((mean, 0 * mean))

    @classmethod
    def from_data(cls, X, n=None):
        """Fit the log-odds of the columns, with a pseudo-count of one for each outcome of a trial.

        Parameters
        ----------
        X : array of shape (n_samples, n_units)
            Integers from 0 to n.
        n : int or array of shape (n_units,), optional
            Numbers of trials; by default the largest value of all columns.
        """
        n = np.asarray(max(X.max(), 1) if n is None else n, dtype=np.float64)
        n = np.broadcast_to(n, X.shape[1])
        wrong = column_sums(X, lambda x, columns: _outside(x, np.minimum(n, MAX_SCORE)[columns]))
        if wrong.any():
            column = int(np.argmax(wrong > 0))
            values = X[:, [column]].toarray() if is_sparse(X) else X[:, [column]]
            raise ValueError(
                "Binomial.from_data: X must have integers from 0 to n, and n is at most "
                f"{MAX_SCORE}; got {values[_outside(values, min(n[column], MAX_SCORE))][0]!s}."
            )
        successes = column_sums(X)
        failures = X.shape[0] * n - successes
        field = np.log(successes + 1.0) - np.log(failures + 1.0)
        return cls(*(p.astype(floating_type(X)) for p in (field, n)))

    def refit(self, X):
        """Fit binomial units with the same n to the columns."""
        return self.from_data(X, self.n)


def _outside(x, n):
    """Return whether values are not integers from 0 to n."""
    return (x < 0) | (x > n) | (x != np.round(x))


@lru_cache(maxsize=64)
def _log_coefficients(n):
    """Return log C(n, x) for x = 0, 1, ..., n."""
    return np.array([math.log(math.comb(n, x)) for x in range(n + 1)])
