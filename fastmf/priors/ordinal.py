"""Ordinal units: scores {0, 1, ..., m} with a weight of their own each.

With t = log_weights_c + b c - a c^2 / 2 the scores have the probabilities softmax(t). The
log-weights are one row a unit; kernels, which know vectors only, receive the address of each row.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import number, real_array
from fastmf._common.rows import is_sparse, row_blocks
from fastmf._jit.intrinsics import larger, row, view
from fastmf._jit.kernel import compilable, kernel
from fastmf.priors._compiled import LOG_PARTITIONS, MEANS, UNITS_PER_BLOCK, VARIANCES
from fastmf.priors._quadrature import MAX_TILT
from fastmf.priors._registry import floating_type, unit_prior
from fastmf.special import clip, exp, log_of_normal, narrow, where, widen

# Scores beyond are taken for a mistake in the data.
MAX_SCORE = 1000


class ScoreTable:
    """Methods of units that have `log_weights` of scores, an array (n_units, n_scores)."""

    __slots__ = ()

    def n_units(self):
        """Number of units."""
        return len(self.log_weights)

    @property
    def n_scores(self):
        """Number of scores of each unit, int array of shape (n_units,)."""
        return np.isfinite(self.log_weights).sum(1)

    def log_partition(self, b, a):
        """Log of the sum over x of exp(log_weights[x] + b x - a x^2 / 2)."""
        top, total, _, _ = self._sums(self._exponents(b, a))
        return narrow(top + np.log(total), self._like(b, a))

    def moments(self, b, a):
        """Mean and variance under the tilt exp(b x - a x^2 / 2)."""
        _, total, mean, squares = self._sums(self._exponents(b, a))
        return narrow(mean, self._like(b, a)), narrow(squares / total, self._like(b, a))

    def draw(self, b, a, u):
        """The value that a uniform number draws from the tilted distribution: its quantile."""
        exponents = self._exponents(b, a)
        top, total, _, _ = self._sums(exponents)
        log_total = top + np.log(total)
        drawn = 0 * log_total, exp(exponents[0] - log_total)
        for exponent in exponents[1:]:
            drawn = _past_score(exponent, log_total, u, drawn)
        return narrow(drawn[0], self._like(b, a))

    def _like(self, b, a):
        """An array of the type of results."""
        return np.zeros((), np.result_type(self.log_weights, b, a))

    def _exponents(self, b, a):
        """The logs of the tilted weights, an array of the shape of the tilts for each score."""
        b, a = (np.clip(widen(np.asarray(tilt)), -MAX_TILT, MAX_TILT) for tilt in (b, a))
        return [w + x * (b - 0.5 * a * x) for x, w in enumerate(widen(self.log_weights).T)]

    @staticmethod
    def _sums(exponents):
        """Largest exponent, and sums over the weights relative to it."""
        sums = exponents[0], *np.array([1.0, 0.0, 0.0]).reshape(3, *[1] * exponents[0].ndim)
        for x, exponent in enumerate(exponents[1:], 1):
            sums = _with_score(x, exponent, sums)
        return sums


class _LogWeights(NamedTuple):
    log_weights: np.ndarray


@unit_prior("ordinal")
class Ordinal(ScoreTable, _LogWeights):
    """Units with scores 0, 1, ..., m and weight exp(log_weights[x]) of each.

    Parameters
    ----------
    log_weights : array of shape (n_units, m + 1)
        -inf beyond a unit's own largest score.

    Raises
    ------
    ValueError
        If a unit has fewer than two scores, or -inf in their midst.

    Notes
    -----
    A unit of two scores is a `Bernoulli` unit of the field log_weights[1] - log_weights[0]; the
    weights C(n, x) exp(field x) make a `Binomial` unit. float32 units are computed in float64.

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

    @property
    def support(self):
        """The values of each unit, (n_values, n_units), padded with NaN."""
        x = np.arange(float(self.log_weights.shape[-1]))[:, None]
        return np.where(x < self.n_scores, x, np.nan)

    def log_prob(self, x):
        """The log-weight of x for x in {0, 1, ..., m}, -inf elsewhere."""
        x, inside, index = self._index(x)
        value = np.where(inside, self.log_weights[np.arange(x.shape[-1]), index], -np.inf)
        return value.astype(np.result_type(self.log_weights, x), copy=False)

    def contains(self, x):
        """Whether values are scores of their units."""
        return self._index(x)[1]

    def _index(self, x):
        """Values by unit, whether they are scores of it, and their numbers."""
        x = np.broadcast_to(x, np.broadcast_shapes(np.shape(x), (self.n_units(),)))
        inside = (x >= 0) & (x < self.n_scores) & (x == np.round(x))
        return x, inside, np.where(inside, x, 0).astype(int)

    def gradient(self, b, a):
        """Derivatives of the log-partition, (..., n_units, m + 1): the probabilities of scores."""
        exponents = np.stack(self._exponents(b, a), axis=-1)
        weights = np.exp(exponents - exponents.max(-1, keepdims=True))
        probabilities = weights / weights.sum(-1, keepdims=True)
        return self._make((narrow(probabilities, self._like(b, a)),))

    def log_prob_gradient(self, x):
        """Derivatives of log_prob, (..., n_units, m + 1)."""
        x, inside, index = self._index(x)
        hit = inside[..., None] & (index[..., None] == np.arange(self.log_weights.shape[-1]))
        return self._make((hit.astype(np.result_type(self.log_weights, x)),))

    def project(self):
        """The prior with log-weight 0 of score 0."""
        return self._make((self.log_weights - self.log_weights[:, :1],))

    @classmethod
    def from_data(cls, X, sizes=None, *, pseudocount=1.0):
        """Log-weights of independent units with the frequencies of data.

        Parameters
        ----------
        X : array of shape (n_samples, n_units)
            Scores 0, 1, ...
        sizes : int or int array of shape (n_units,), optional
            Scores of each unit. Default: one more than the largest of each column, at least 2.
        pseudocount : float, default 1.0
            Added to the count of each score.

        Returns
        -------
        Ordinal
            Log-weights of score 0 are 0.
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
                    f"got {x[wrong][0]:g}."
                )
            counts += (x[..., None] == scores).sum(0)
        counts = np.where(scores < sizes[:, None], counts, 0.0)
        if (counts[scores < sizes[:, None]] == 0).any():
            raise ValueError("Ordinal: a score never occurs; pass a positive pseudocount.")
        with np.errstate(divide="ignore"):
            log_weights = np.log(counts) - np.log(counts[:, :1])
        return cls(log_weights.astype(floating_type(X)))

    def refit(self, X):
        """Ordinal units with the same scores, fitted to the columns."""
        return self.from_data(X, self.n_scores)

    def precomputed(self):
        """The same prior in the form that kernels tilt."""
        return compiled_scores(self.log_weights)


def compiled_scores(log_weights):
    """Units of scores in the form that kernels tilt."""
    table = np.ascontiguousarray(log_weights)
    address = table.ctypes.data + table.strides[0] * np.arange(len(table), dtype=np.int64)
    return CompiledScores(table, address, np.isfinite(table).sum(1, dtype=np.int64))


class _Rows(NamedTuple):
    log_weights: np.ndarray
    address: np.ndarray
    size: np.ndarray


class CompiledScores(ScoreTable, _Rows):
    """Units of scores as kernels receive them: the address and the length of each unit's row."""

    __slots__ = ()

    @staticmethod
    def fill_block(prior, start, b, a, memory):
        """Log-partitions and moments of a block of units, inside kernels."""
        n, last = b.shape[0], np.int64(0)
        t, s, exponent, _, _, total, top, mean, squares = _rows_of_block(memory, n)
        for i in range(n):
            t[i] = clip(widen(b[i]), -MAX_TILT, MAX_TILT)
            s[i] = clip(widen(a[i]), -MAX_TILT, MAX_TILT)
            total[i], mean[i], squares[i] = 1.0, 0.0, 0.0
            last = larger(last, prior.size[start + i])
        _exponents(prior, start, 0, t, s, top)
        for x in range(1, last):
            _exponents(prior, start, x, t, s, exponent)
            for i in range(n):
                sums = top[i], total[i], mean[i], squares[i]
                top[i], total[i], mean[i], squares[i] = _with_score(x, exponent[i], sums)
        for i in range(n):
            top[i] += log_of_normal(total[i])
            squares[i] /= total[i]

    @staticmethod
    def draw_block(prior, start, u, out, memory):
        """Draws of a block of units, inside kernels."""
        n, last = u.shape[0], np.int64(0)
        t, s, exponent, drawn, below, _, log_total, _, _ = _rows_of_block(memory, n)
        _exponents(prior, start, 0, t, s, exponent)
        for i in range(n):
            drawn[i], below[i] = 0.0, exp(exponent[i] - log_total[i])
            last = larger(last, prior.size[start + i])
        for x in range(1, last):
            _exponents(prior, start, x, t, s, exponent)
            for i in range(n):
                score = drawn[i], below[i]
                drawn[i], below[i] = _past_score(exponent[i], log_total[i], u[i], score)
        for i in range(n):
            out[i] = drawn[i]


# --- sums over scores, of arrays and inside kernels ----------------------------------------------
# One score after the other; inside kernels the inner loop, over the units of a block, is a vector.


@compilable(mode="inline")
def _with_score(x, exponent, sums):
    """Add the weight of the score `x` to sums over the weights of the scores before.

    West's (1979) updates of weighted means and squares: all terms are positive, so that variances
    much smaller than the squared mean keep their digits.
    """
    top, total, mean, squares = sums
    larger = exponent > top
    # The root of the ratio, whose square may be 0.
    root = exp(-0.5 * abs(exponent - top))
    old, new = where(larger, root, 1.0), where(larger, 1.0, root)
    before, added = total * old * old, new * new
    total = before + added
    fraction, difference = added / total, x - mean
    mean = mean + fraction * difference
    squares = squares * old * old + before * fraction * difference * difference
    return where(larger, exponent, top), total, mean, squares


@compilable(mode="inline")
def _past_score(exponent, log_total, u, drawn):
    """Move to the next score where the probability before it is not above `u`.

    `drawn` is the score so far, and the probability of the scores before the next one.
    """
    x, below = drawn
    root = exp(0.5 * (exponent - log_total))
    x = x + where((exponent > -np.inf) & (u >= below), 1.0, 0.0)
    return x, below + root * root


@kernel(mode="merged")
def _exponents(prior, start, x, b, a, out):
    """Fill in the logs of the tilted weights of the score x, -inf beyond the last ones."""
    like = prior.log_weights
    for i in range(out.shape[0]):
        log_weight = view(prior.address[start + i], (x + 1,), like)[x]
        out[i] = widen(log_weight) + x * (b[i] - 0.5 * a[i] * x)


@kernel(mode="merged")
def _rows_of_block(memory, n):
    """Tilts, exponents, draws, probabilities below them, and sums of the `n` units of a block."""
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
