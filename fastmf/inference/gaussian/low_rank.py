"""The Gaussian side of a linear model with fewer rows than units, by the Woodbury identity.

With D = diag(1 / t2) and B = s2 I + X D X', the covariance of the data,

    A^-1 = D - D X' B^-1 X D
"""

from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg.blas import dtrmm

from fastmf._common.linalg import inverse_factor
from fastmf._threads.workers import VECTOR_SPEED, for_each, workers_for
from fastmf.inference.gaussian.dense import Dense, GaussianMoments, GaussianSide, with_zeros

# Number of entries of X that are converted to double precision at a time.
ENTRIES_AT_A_TIME = 1 << 18
# Largest number of parts of the columns whose products are summed separately, and of threads.
MAX_PARTS = 8
# Fraction of the precision of the data below which a site has low precision: see `LowRank`.
LOW_PRECISION = 1e-6


def slices(n, width):
    """Divide n columns into slices of a width."""
    return [slice(k, min(k + width, n)) for k in range(0, n, width)]


class LowRank(GaussianSide):
    """A linear model with fewer rows than units, by the Woodbury identity: O(n_units n_rows^2).

    Sites with t2 < floor, a millionth of the precision x'x / s2 of the data, would make B
    ill-conditioned, or indefinite if negative. Their t2 is replaced by a proper precision p, which
    is corrected by a second update, whose rank k is the number of these sites:

        A^-1 = A0^-1 + C S^-1 C',  C = columns of A0^-1,  S = 1 / (p - t2) - (A0^-1)_kk

    so that A is positive definite if and only if S is. Memory: X without a copy, at most ten
    matrices of n_rows by n_rows (together not larger than X), and vectors of length n_units.
    """

    def __init__(self, X, y, noise_variance, n_threads=None):
        self.X, self.y, self.noise_variance = X, y, noise_variance
        self.n_threads = n_threads
        self.n_rows, self.n_units = X.shape
        self.floor = LOW_PRECISION * self._prepared_squares() / noise_variance

    def _prepared_squares(self):
        """Divide the columns into chunks, and return their sums of squares."""
        X, width = self.X, max(64, ENTRIES_AT_A_TIME // self.n_rows // 64 * 64)
        self.pieces = slices(self.n_units, width)
        self.max_workers = len(self.pieces)
        self.chunks = slices(self.n_units, max(width, 2 * self.n_rows))
        self._workspace = np.empty((self.n_rows, self.chunks[0].stop))
        # The number of sums does not depend on the number of threads, so that results do not.
        self.n_parts = min(MAX_PARTS, self.n_units // (4 * self.n_rows) + 1)
        squares = np.empty(self.n_units)
        for units in self.chunks:
            chunk = X[:, units] if X.dtype == np.float64 else self.chunk(units)
            np.einsum("ij,ij->j", chunk, chunk, out=squares[units])
        return squares

    def dense(self):
        """Return the Gaussian side with a full matrix."""
        return Dense.of_regression(self.X, self.y, self.noise_variance)

    def chunk(self, units):
        """Convert some columns of X to double precision."""
        columns = self._workspace[:, : units.stop - units.start]
        np.copyto(columns, self.X[:, units])
        return columns

    def data_covariance(self, precision):
        """Compute B for sites of positive precisions."""
        n, d, scale = self.n_rows, self.n_units, 1 / np.sqrt(precision)
        sums = np.zeros((self.n_parts, n, n))

        def add(part):
            for units in self.chunks[part :: self.n_parts]:
                columns = self.X[:, units] * scale[units]
                sums[part] += columns @ columns.T

        n_workers = workers_for(self.n_parts, n * n * d // 2 // VECTOR_SPEED, self.n_threads)
        for_each(add, range(self.n_parts), n_workers)
        B = sums.sum(0)
        B.flat[:: n + 1] += self.noise_variance
        return B

    def whitened_columns(self, whiten, directions, z, offset):
        """Compute sums of squares of the whitened columns of X, and their products with z."""
        out = np.empty((2, self.n_units))

        def fill(units):
            white = self.whitened(units, whiten)
            along = white @ directions
            out[0, units] = np.einsum("ji,ji->j", white, white) - (along * along).sum(1)
            out[1, units] = white @ z - along @ offset

        work = (self.n_rows // 2 + len(offset)) * self.n_rows * self.n_units // VECTOR_SPEED
        for_each(fill, self.pieces, workers_for(self.max_workers, work, self.n_threads))
        return out

    def whitened(self, units, whiten):
        """Return some whitened columns of X, as rows."""
        columns = np.array(self.X[:, units], np.float64, order="C")
        return dtrmm(1.0, whiten.T, columns.T, side=1, overwrite_b=1)

    def predict(self, w):
        """Compute X w in double precision, without a copy of X."""
        if self.X.dtype == np.float64:
            return self.X @ w
        return sum(self.chunk(units) @ w[units] for units in self.chunks)

    def project(self, residual):
        """Compute X' residual in double precision, without a copy of X."""
        if self.X.dtype == np.float64:
            return self.X.T @ residual
        return np.concatenate([residual @ self.chunk(units) for units in self.chunks])

    def _inverse(self, precision):
        units, proper = np.flatnonzero(precision < self.floor), precision
        if units.size:
            proper = precision.copy()
            proper[units] = np.maximum(abs(precision[units]), 100 * self.floor[units])
        if not (proper > 0).all():
            raise LinAlgError("a precision is not positive.")
        B = self.data_covariance(proper)
        whiten, half_log_determinant = inverse_factor(B)
        correction = None
        if units.size:
            correction = self._correction(units, proper[units], precision[units], whiten)
        return LowRankInverse(self, proper, whiten, half_log_determinant, correction)

    def _correction(self, units, p, t2, whiten):
        """Compute the correction for units of precision t2 that have p in the first inverse."""
        columns = self.whitened(units, whiten).T / p
        inverse = -columns.T @ columns
        inverse.flat[:: units.size + 1] += 1 / p
        S = -inverse
        S.flat[:: units.size + 1] += 1 / (p - t2)
        half, half_log_determinant = inverse_factor(S)
        return Correction(
            units=units,
            columns=columns,
            whiten=half,
            inverse=inverse,
            log_partition=-half_log_determinant - np.log(p - t2).sum() / 2,
        )


class Correction(NamedTuple):
    """Update of rank k of the inverse for the k sites of low precision."""

    units: np.ndarray  # int, (k,)
    columns: np.ndarray  # (n_rows, k), their columns of X, whitened, over their precisions
    whiten: np.ndarray  # (k, k), inverse Cholesky factor of S
    inverse: np.ndarray  # (k, k), the block of A0^-1
    log_partition: float  # contribution to the log-partition


class LowRankInverse(NamedTuple):
    """A^-1 of `LowRank`: D - V V' + H H', see `_halves`."""

    side: LowRank
    precision: np.ndarray  # (n_units,), of the sites in the first inverse
    whiten: np.ndarray  # (n_rows, n_rows), inverse Cholesky factor of B
    half_log_determinant: float  # of B
    correction: Correction | None  # for the sites of low precision

    def _solution(self, linear):
        """Return means D linear, the vectors z and offset of V and H, and the log-partition."""
        side, low = self.side, self.correction
        mean, offset = linear / self.precision, np.empty(0)
        z = self.whiten @ (side.y - side.predict(mean))
        log_partition = (linear @ mean - np.log(self.precision / (2 * np.pi)).sum()) / 2
        log_partition -= z @ z / 2 + self.half_log_determinant
        log_partition -= side.n_rows * np.log(2 * np.pi) / 2
        if low is not None:
            offset = low.whiten @ (mean[low.units] + low.columns.T @ z)
            log_partition += low.log_partition + offset @ offset / 2
        return mean, z, offset, log_partition

    def moments(self, linear):
        """Compute means, variances and log-partition with these linear site coefficients."""
        mean, z, offset, log_partition = self._solution(linear)
        side, variance, low = self.side, 1 / self.precision, self.correction
        directions = np.empty((side.n_rows, 0)) if low is None else low.columns @ low.whiten.T
        marginal = side.whitened_columns(self.whiten, directions, z, offset)[::-1]
        marginal *= variance
        marginal[0] += mean
        var = marginal[1]
        np.subtract(1, var, out=var)
        var *= variance
        if low is not None:
            half = low.whiten @ low.inverse
            marginal[0, low.units] = mean[low.units] + low.columns.T @ z + half.T @ offset
            marginal[1, low.units] = low.inverse.diagonal() + (half * half).sum(0)
        return GaussianMoments(marginal, log_partition)

    def moments_and_covariances(self, linear, blocks):
        """Compute moments, and covariances of blocks of units; single units are blocks of one."""
        mean, z, offset, log_partition = self._solution(linear)
        single = np.ones(len(mean), bool)
        for units in blocks:
            single[units] = False
        var, covariances = np.empty(len(mean)), []
        for units in (*blocks, np.flatnonzero(single)[:, None]):
            n, c = units.shape
            covariances.append(np.empty((n, c, c)))
            width = max(1, self.side.chunks[0].stop // c)
            for first in range(0, n, width):
                part = slice(first, first + width)
                V, H = self._halves(units[part])
                covariances[-1][part] = self._covariances(units[part], V, H)
                mean[units[part]] += V @ z + H @ offset
            var[units] = np.einsum("kii->ki", covariances[-1])
        return GaussianMoments(np.stack([mean, var]), log_partition), covariances[:-1]

    def solve(self, right):
        """Multiply by a vector."""
        solution, low = self._solve_proper(right), self.correction
        if low is not None:
            change = np.zeros(len(right))
            change[low.units] = low.whiten.T @ (low.whiten @ solution[low.units])
            solution += self._solve_proper(change)
        return solution

    def _solve_proper(self, right):
        """Multiply the first inverse by a vector."""
        whitened = self.whiten @ self.side.predict(right / self.precision)
        return (right - self.side.project(whitened @ self.whiten)) / self.precision

    def covariance(self, units):
        """Return the covariance of some units."""
        units = np.arange(self.side.n_units)[None, units]
        return self._covariances(units, *self._halves(units))[0]

    def _halves(self, units):
        """Return rows of V = D X' L and H = C M for blocks of units; B^-1 = L L', S^-1 = M M'."""
        low, precision = self.correction, self.precision[units][..., None]
        columns = self.side.whitened(units.ravel(), self.whiten)
        V = columns.reshape(*units.shape, -1) / precision
        if low is None:
            return V, V[..., :0]
        alike = (units[..., None] == low.units) / precision
        return V, (alike - V @ low.columns) @ low.whiten.T

    def _covariances(self, units, V, H):
        """Return the covariances of blocks of units of one size."""
        covariance = H @ np.swapaxes(H, 1, 2) - V @ np.swapaxes(V, 1, 2)
        np.einsum("kii->ki", covariance)[:] += 1 / self.precision[units]
        return covariance

    def variance_along(self, rows):
        """Compute variances of r'w for the rows r of a matrix, of all or of the first units."""
        rows = with_zeros(rows, self.side.n_units)
        scaled, low = rows / self.precision, self.correction
        whitened = self.whiten @ (self.side.X @ scaled.T)
        var = np.einsum("ij,ij->i", rows, scaled) - (whitened * whitened).sum(0)
        if low is not None:
            half = low.whiten @ (scaled[:, low.units].T - low.columns.T @ whitened)
            var += (half * half).sum(0)
        return var


class StoredLowRank(LowRank):
    """`LowRank` of `StoredColumns`: the same sums, over chunks of converted columns."""

    def _prepared_squares(self):
        self.chunks = self.pieces = self.X.chunks()
        self.n_parts = self.max_workers = 1  # more memory is needed for several at a time
        return self.X.squares()


class SparseLowRank(StoredLowRank):
    """`LowRank` of `StoredColumns` with sparse products."""

    def data_covariance(self, precision):
        """Compute B for sites of positive precisions."""
        B = self.X.outer(1 / precision)
        B.flat[:: self.n_rows + 1] += self.noise_variance
        return B

    def whitened(self, units, whiten):
        """Return some whitened columns of X, as rows."""
        return self.X.transposed_product(units, whiten.T.copy())
