"""A prior of a user's own."""

from typing import NamedTuple

import numpy as np

from fastmf.special import exp, log


class ThreeLevels(NamedTuple):
    """Units of -1, 0 and 1."""

    field: np.ndarray

    def log_partition(self, b, a):
        """The logarithm of the normalisation, by the protocol of priors."""
        t = self.field + b
        return log(1 + exp(-a / 2) * (exp(t) + exp(-t)))

    def moments(self, b, a):
        """Mean and variance."""
        t = self.field + b
        up, down = exp(t - a / 2), exp(-t - a / 2)
        z = 1 + up + down
        mean = (up - down) / z
        return mean, (up + down) / z - mean * mean
