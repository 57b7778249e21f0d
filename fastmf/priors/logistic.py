"""Latent variables of the logistic likelihood: units whose weight is a sigmoid."""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import row
from fastmf._jit.kernel import kernel
from fastmf.priors._compiled import SPARE, UNITS_PER_BLOCK, by_kernels
from fastmf.priors._quadrature import integrate_rows, log_mass
from fastmf.special import exp, sigmoid_pair, softplus, where

# For x >= 0 the sigmoid of x, and the sigmoid of -x over z, are 1 / (1 + z) with z = exp(-|x|):
# coefficients of a polynomial in z whose relative error on [0, 1] is 2e-10.
INTERPOLATION = np.polynomial.Chebyshev.interpolate(lambda z: 1 / (1 + z), 12, domain=[0, 1])
SERIES = INTERPOLATION.convert(kind=np.polynomial.Polynomial).coef


@kernel(mode="merged")
def _sum_terms(side, b, memory, x, y):
    """Sum mass, mean and square of the exponentials on one side of zero, in the spare rows."""
    u, n = UNITS_PER_BLOCK, b.shape[0]
    for k in range(len(SERIES)):
        for i in range(n):
            x[i], x[i + 4 * u] = -1.0 * (k + side), b[i] * (1.0 - 2.0 * side)
        integrate_rows(memory, n)
        for i in range(n):
            if k == 0:  # the largest integral, to which exponents and means are relative
                y[i], y[i + u] = x[i + 6 * u], x[i + 8 * u]
                y[i + 2 * u], y[i + 3 * u], y[i + 4 * u] = 0.0, 0.0, 0.0
            weight = SERIES[k] * x[i + 7 * u] * exp(x[i + 6 * u] - y[i])
            shift = x[i + 8 * u] - y[i + u]
            y[i + 2 * u] += weight
            y[i + 3 * u] += weight * shift
            y[i + 4 * u] += weight * (x[i + 9 * u] + shift * shift)


class Logistic(NamedTuple):
    """Units with weight sigmoid(x) exp(-precision x^2 / 2).

    On either side of zero the sigmoid is a sum of exponentials. So the tilted unit is a mixture of
    Gaussians on half-lines, some of negative weight; the absolute weights sum to nine at most.
    """

    precision: np.ndarray

    def log_partition(self, b, a):
        """Return the log of the integral of the weight times exp(b x - a x^2 / 2)."""
        return by_kernels(self, "log_partition", b, a)

    def moments(self, b, a):
        """Return the mean and variance under the tilt exp(b x - a x^2 / 2)."""
        return by_kernels(self, "moments", b, a)

    @staticmethod
    def fill_block(prior, start, b, a, memory):
        """Compute log-partitions and moments of a block of units, inside kernels."""
        u, n = UNITS_PER_BLOCK, b.shape[0]
        x, y = row(memory, (0,), 10 * u), row(memory, (SPARE,), 8 * u)
        for i in range(n):
            x[i + u], x[i + 2 * u], x[i + 3 * u] = prior.precision[start + i], 0.0, np.inf
            x[i + 5 * u] = a[i]
        for side in range(2):
            _sum_terms(side, b, memory, x, y)
            for i in range(n):
                shift = y[i + 3 * u] / y[i + 2 * u]
                value, mean = y[i] + log_mass(y[i + 2 * u]), y[i + u] + shift
                var = y[i + 4 * u] / y[i + 2 * u] - shift * shift
                if side == 0:
                    y[i + 5 * u], y[i + 6 * u], y[i + 7 * u] = value, mean, var
                    continue
                above, below = sigmoid_pair(y[i + 5 * u] - value)
                distance = y[i + 6 * u] + mean
                var = above * y[i + 7 * u] + below * var + above * below * distance * distance
                value = value + softplus(y[i + 5 * u] - value)
                # Where an integral is infinite, sums of both signs are NaN.
                proper = abs(value) < np.inf
                x[i + 6 * u] = where(proper, value, np.inf)
                x[i + 8 * u] = where(proper, above * distance - mean, 0.0)
                x[i + 9 * u] = where(proper, var, np.inf)
