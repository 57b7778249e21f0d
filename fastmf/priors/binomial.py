"""Binomial units: counts {0, 1, ..., n}, the sum of n Bernoulli units of the same field."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import column_sums, is_sparse
from fastmf.priors._registry import floating_type, unit_prior
from fastmf.priors.ordinal import MAX_SCORE, ScoreTable, compiled_scores
from fastmf.special import widen


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
        Number of trials, from 1 to 1000, kept as a floating-point number. Not learned.

    Raises
    ------
    ValueError
        If a number of trials is not an integer from 1 to 1000.

    Notes
    -----
    With n = 1 this is `Bernoulli`. For a = 0 the log-partition is n log(1 + exp(field + b)), and
    the mean n sigmoid(field + b). All are computed as sums over the values, in float64 also for
    float32 units.

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
        """Logarithms of the weights of all values, (n_units, n_values), -inf beyond n."""
        table = np.full((len(self.n), self.n_scores.max(initial=1)), -np.inf)
        for n in np.unique(self.n).astype(int):
            table[self.n == n, : n + 1] = _log_coefficients(n)
        return table + widen(self.field)[:, None] * np.arange(table.shape[1])

    def precomputed(self):
        """The same prior in the form that kernels tilt."""
        return compiled_scores(self.log_weights)

    def moment_gradient(self, mean, var):
        """Derivatives of the log-partition, from the moments."""
        return self._make((mean, 0 * mean))

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
        wrong = column_sums(X, lambda x, columns: _outside(x, np.minimum(n, MAX_SCORE)[columns]))
        if wrong.any():
            column = int(np.argmax(wrong > 0))
            values = X[:, [column]].toarray() if is_sparse(X) else X[:, [column]]
            raise ValueError(
                "Binomial.from_data: X must have integers from 0 to n, and n is at most "
                f"{MAX_SCORE}; got {values[_outside(values, min(n[column], MAX_SCORE))][0]:g}."
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
