"""Units with two values: Bernoulli {0, 1} and Ising {-1, +1}."""

from typing import NamedTuple

import numpy as np

from fastmf._common.rows import column_sums
from fastmf.priors._registry import floating_type, unit_prior
from fastmf.special import constant, exp, log_2_cosh, narrow, sigmoid_pair, softplus, where


@unit_prior("bernoulli")
class Bernoulli(NamedTuple):
    """Units with values 0 and 1 and weight exp(field x).

    Parameters
    ----------
    field : float or array of shape (n_units,)
        Log-odds of the value 1.

    Notes
    -----
    Tramel et al. (2018), Eqs. 110-118. As x^2 = x, the tilt `a` acts as a field of -a / 2.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> prior = mf.Bernoulli(np.array([0.0, np.log(3)]))
    >>> mean, var = prior.moments(0.0, 0.0)
    >>> mean.round(12), var.round(12)
    (array([0.5 , 0.75]), array([0.25  , 0.1875]))
    """

    field: np.ndarray

    support = (0.0, 1.0)
    log_prob_is_linear = True
    hidden_unit = (0.0,)

    def log_partition(self, b, a):
        """Return log(1 + exp(field + b - a / 2))."""
        return softplus(self.field + b - constant(0.5, a) * a)

    def moments(self, b, a):
        """Return mean and variance under the tilt exp(b x - a x^2 / 2)."""
        p, q = sigmoid_pair(self.field + b - constant(0.5, a) * a)
        return p, p * q

    def log_prob(self, x):
        """Return field x for x in {0, 1}, -inf elsewhere."""
        return np.where((x == 0) | (x == 1), self.field * x, -np.inf)

    def draw(self, b, a, u):
        """Return a draw from the tilted distribution, as a function of a uniform number."""
        mean = self.moments(b, a)[0]
        return narrow(u < mean, mean)

    def moment_gradient(self, mean, var):
        """Return derivatives of the log-partition, from the moments."""
        return self._make((mean,))

    def third_cumulant(self, mean):
        """Return the third cumulant as a function of the mean, and its derivative."""
        one, two, six = constant(1.0, mean), constant(2.0, mean), constant(6.0, mean)
        return mean * (one - mean) * (one - two * mean), one - six * mean * (one - mean)

    @classmethod
    def from_data(cls, X):
        """Fit the log-odds of the columns, with a pseudo-count of one for each value."""
        ones = column_sums(X)
        log_odds = np.log(ones + 1.0) - np.log(X.shape[0] - ones + 1.0)
        return cls(log_odds.astype(floating_type(X)))


@unit_prior("ising")
class Ising(NamedTuple):
    """Units with values -1 and +1 and weight exp(field x).

    Parameters
    ----------
    field : float or array of shape (n_units,)
        Half the log-odds of the value +1.

    Notes
    -----
    As x^2 = 1, the tilt `a` only shifts the log-partition, by -a / 2.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> prior = mf.Ising(np.zeros(2))
    >>> mean, var = prior.moments(np.array([0.5, -0.5]), 0.0)
    >>> np.allclose(mean, np.tanh([0.5, -0.5])), np.allclose(var, 1 - mean**2)
    (True, True)
    """

    field: np.ndarray

    support = (-1.0, 1.0)
    log_prob_is_linear = True
    hidden_unit = (0.0,)

    def log_partition(self, b, a):
        """Return log(2 cosh(field + b)) - a / 2."""
        return log_2_cosh(self.field + b) - constant(0.5, a) * a

    def moments(self, b, a):
        """Return mean and variance under the tilt exp(b x - a x^2 / 2)."""
        # Adding 0 a gives the result the shape of both tilts, and changes no value.
        t = self.field + b + constant(0.0, a) * a
        e = exp(constant(-2.0, t) * abs(t))
        one = constant(1.0, t)
        scale = one / (one + e)
        size = (one - e) * scale
        return where(t > 0, size, -size), constant(4.0, t) * e * scale * scale

    def log_prob(self, x):
        """Return field x for x in {-1, +1}, -inf elsewhere."""
        return np.where(abs(x) == 1, self.field * x, -np.inf)

    def draw(self, b, a, u):
        """Return a draw from the tilted distribution, as a function of a uniform number."""
        mean = self.moments(b, a)[0]
        one = constant(1.0, mean)
        return narrow(2.0 * u - 1.0 < mean, mean) * (one + one) - one

    def moment_gradient(self, mean, var):
        """Return derivatives of the log-partition, from the moments."""
        return self._make((mean,))

    def third_cumulant(self, mean):
        """Return the third cumulant as a function of the mean, and its derivative."""
        two, six = constant(2.0, mean), constant(6.0, mean)
        return -two * mean * (constant(1.0, mean) - mean * mean), six * mean * mean - two

    @classmethod
    def from_data(cls, X):
        """Fit half the log-odds of the columns, with a pseudo-count of one for each value."""
        n, sums = X.shape[0], column_sums(X)
        log_odds = np.log((n + sums) / 2 + 1.0) - np.log((n - sums) / 2 + 1.0)
        return cls((log_odds / 2).astype(floating_type(X)))
