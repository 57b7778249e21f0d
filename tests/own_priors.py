"""Units of a user's own: of the values -1, 0 and 1 with weights exp(field x), or of two."""

from typing import NamedTuple

import numpy as np

from fastmf.special import exp, log


class Levels(NamedTuple):
    """Units with the required methods only: they can be neither sampled nor learned."""

    field: np.ndarray

    def log_partition(self, b, a):
        t = self.field + b
        return log(1 + exp(-a / 2) * (exp(t) + exp(-t)))

    def moments(self, b, a):
        t = self.field + b
        up, down = exp(t - a / 2), exp(-t - a / 2)
        z = 1 + up + down
        mean = (up - down) / z
        return mean, (up + down) / z - mean * mean


class Biased(NamedTuple):
    """A Bernoulli unit whose field has another name, and whose odds may overflow to infinity."""

    bias: np.ndarray

    def log_partition(self, b, a):
        return np.logaddexp(0, self.bias + b - a / 2)

    def moments(self, b, a):
        p = 1 / (1 + np.exp(a / 2 - self.bias - b))
        return p, p * (1 - p)

    def moment_gradient(self, mean, var):
        return self._make((mean,))


class ThreeLevels(Levels):
    """The same, which tell their weights."""

    def log_prob(self, x):
        return np.where(np.isin(x, (-1, 0, 1)), self.field * x, -np.inf)
