"""Units of a user's own: the values -1, 0 and 1 with weights exp(field x)."""

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


class ThreeLevels(Levels):
    """The same, which tell their weights."""

    def log_prob(self, x):
        return np.where(np.isin(x, (-1, 0, 1)), self.field * x, -np.inf)
