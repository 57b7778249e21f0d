"""The Gaussian side of machines of two layers.

With couplings W between a large and a small layer of site precisions t2 and s2, everything follows
from the Schur complement of the small layer

    S = diag(s2) - W' diag(1 / t2) W

whose inverse is the covariance of the small layer; A is positive definite if S is and t2 > 0.
"""

import copy
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg.blas import get_blas_funcs

from fastmf._common.linalg import cholesky
from fastmf.inference.gaussian.dense import Dense, GaussianMoments, GaussianSide


class Bipartite(GaussianSide):
    """Couplings between two layers, by the Schur complement of the smaller one.

    Matrices are computed in the type of the weights, single or double precision; moments are
    doubles. `tilt` is exp(b w - a w^2 / 2) of each unit from outside, added to the sites.
    """

    def __init__(self, weights):
        n_visible, n_hidden = weights.shape
        self.n_units = n_visible + n_hidden
        self.flipped = n_visible < n_hidden
        self.weights = np.ascontiguousarray(weights.T if self.flipped else weights)
        first, second = slice(0, n_visible), slice(n_visible, self.n_units)
        self.large, self.small = (second, first) if self.flipped else (first, second)
        self.dtype = self.weights.dtype
        self.tilt = np.zeros((2, self.n_units))

    def tilted(self, tilt):
        """The same couplings with another tilt from outside."""
        tilted = copy.copy(self)
        tilted.tilt = tilt
        return tilted

    def dense(self):
        """The same Gaussian side with a full matrix."""
        precision = np.diag(self.tilt[1])
        precision[self.large, self.small] = -self.weights
        precision[self.small, self.large] = -self.weights.T
        return Dense(precision, self.tilt[0], 0.0)

    def _inverse(self, precision):
        precision = precision + self.tilt[1]
        t2, s2 = precision[self.large], precision[self.small]
        if not (t2 > 0).all():
            raise LinAlgError("a precision of the large layer is not positive.")
        syrk = get_blas_funcs("syrk", dtype=self.dtype)
        scale = (1 / np.sqrt(t2)).astype(self.dtype)
        schur = syrk(-1.0, (self.weights * scale[:, None]).T, lower=1)
        schur.flat[:: len(s2) + 1] += s2
        factor = cholesky(schur, overwrite=True)
        half_log_determinant = factor.half_log_determinant
        return BipartiteInverse(self, t2, factor.inverse_factor(True), half_log_determinant)

    def mean_covariance(self, sites):
        """Covariances of visible with hidden units, averaged over rows."""
        total, n_rows = np.zeros(self.weights.shape), 0
        plain = self.tilted(np.zeros_like(self.tilt))
        for _, precision in sites:
            inverse = plain.inverse(precision)
            if inverse is not None:
                total += inverse.covariance_of_layers()
                n_rows += 1
        total /= n_rows or np.nan
        return total.T if self.flipped else total


class BipartiteInverse(NamedTuple):
    """A^-1 of `Bipartite`, and of other sides that couple units of two layers."""

    side: GaussianSide
    precision: np.ndarray  # (n_large,), of the units of the larger layer, tilt included
    whiten: np.ndarray  # (n_small, n_small), inverse Cholesky factor of the Schur complement
    half_log_determinant: float  # half the log-determinant of the Schur complement

    def moments(self, linear):
        """Means, variances and log-partition with sites of these linear coefficients."""
        side, t2, linear = self.side, self.precision, linear + self.side.tilt[0]
        t1 = linear[side.large]
        mean, whitened = self._solve(linear)
        var = np.empty(side.n_units)
        var[side.small] = np.einsum("ij,ij->j", self.whiten, self.whiten)
        across = self._whitened_weights()
        var[side.large] = (1 + np.einsum("ij,ij->j", across, across) / t2) / t2
        log_partition = (t1 * t1 / t2 - np.log(t2)).sum() / 2 + whitened @ whitened / 2
        log_partition += side.n_units * np.log(2 * np.pi) / 2 - self.half_log_determinant
        return GaussianMoments(np.stack([mean, var]), log_partition + side.constant)

    def solve(self, right):
        """The product with a vector."""
        return self._solve(right)[0]

    def _solve(self, right):
        """The product with a vector, and its whitened half."""
        side, t2, t1 = self.side, self.precision, right[self.side.large]
        solution = np.empty(side.n_units)
        trmv = get_blas_funcs("trmv", dtype=self.whiten.dtype)
        whitened = trmv(self.whiten, right[side.small] + (t1 / t2) @ side.weights, lower=1)
        solution[side.small] = trmv(self.whiten, whitened, lower=1, trans=1)
        solution[side.large] = (t1 + side.weights @ solution[side.small]) / t2
        return solution, whitened

    def _whitened_weights(self):
        trmm = get_blas_funcs("trmm", dtype=self.whiten.dtype)
        return trmm(1.0, self.whiten, self.side.weights.T, lower=1)

    def covariance_of_layers(self):
        """The covariance of the units of the larger layer with those of the smaller."""
        trmm = get_blas_funcs("trmm", dtype=self.whiten.dtype)
        across = trmm(1.0, self.whiten, self._whitened_weights(), lower=1, trans_a=1, overwrite_b=1)
        return across.T / self.precision[:, None]

    def covariance(self, units):
        """The covariance of some units."""
        side, t2 = self.side, self.precision
        half = np.empty((len(self.whiten), side.n_units))
        half[:, side.small] = self.whiten
        half[:, side.large] = (self.whiten @ side.weights.T) / t2
        half, diagonal = half[:, units], np.zeros(side.n_units)
        diagonal[side.large] = 1 / t2
        return half.T @ half + np.diag(diagonal[units])

    def moments_and_covariances(self, linear, blocks):
        """The moments, and covariances of blocks of units of the smaller layer, which is first."""
        of_blocks = (self.whiten.T[units] for units in blocks)
        return self.moments(linear), [W @ np.swapaxes(W, 1, 2) for W in of_blocks]

    def variance_along(self, rows):
        """Variances of r'w for every row r of a matrix."""
        side, scaled = self.side, rows[:, self.side.large] / self.precision
        half = self.whiten @ (rows[:, side.small] + scaled @ side.weights).T
        return (scaled * rows[:, side.large]).sum(1) + (half * half).sum(0)
