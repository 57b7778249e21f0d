"""The log-pseudo-likelihood of a fully visible Boltzmann machine, and its derivatives.

Parameters are one vector: the field h_1..h_d, then the couplings J_jk, j < k, in lexicographic
order. Everything is per unit of weight: the mean over rows of Nguyen & Wood's Eq. 2.1.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

from fastmf._threads import computed_once, in_parallel, workers_for
from fastmf.kernels import pseudo_likelihood as kernels
from fastmf.learning.pseudo_likelihood.pair_sums import ProductSums

# Numbers in a block of rows, so that what one pass leaves the next finds in the cache.
_BLOCK = 1 << 17
# Residuals (numbers) and Hessians (rows) up to such a size are kept until parameters change.
_KEPT, _KEPT_HESSIAN = 1 << 22, 1300


class _Point(NamedTuple):
    """Value, gradient and, of rows that are not too many, residuals at some parameters."""

    parameters: np.ndarray
    value: float
    gradient: np.ndarray
    residuals: np.ndarray | None


def symmetric(matrix, size=512):
    """Copy the lower triangle of a matrix into its upper one, in place, a few rows at a time."""
    for i in range(0, len(matrix), size):
        rows = slice(i, i + size)
        matrix[:i, rows] = matrix[rows, :i].T
        block = matrix[rows, rows]
        np.copyto(block, block.T.copy(), where=~np.tri(len(block), dtype=bool))
    return matrix


class PseudoLikelihood:
    """Mean log-pseudo-likelihood of weighted rows, less l2 / 2 times the squared parameters.

    Parameters
    ----------
    rows : Rows
    l2 : float
    n_threads : int or None
    """

    def __init__(self, rows, l2=0.0, n_threads=None):
        self.rows, self.l2, self.n_threads = rows, l2, n_threads
        self.n_units = rows.states.shape[1]
        self.total = rows.total
        self.weights = rows.weights / self.total
        self.mean, self.second = rows.moments()
        self.pairs = np.triu_indices(self.n_units, 1)
        self.n_parameters = self.n_units + len(self.pairs[0])
        self._point = self._hessian = None

    def __getstate__(self):
        # What is kept for speed is not worth a pickle.
        kept = dict(self.__dict__) | {"_point": None, "_hessian": None}
        for name in ("_product_sums", "_places"):
            kept.pop(name, None)
        return kept

    # --- parameters -----------------------------------------------------------------------------

    def unpacked(self, parameters):
        """Couplings and field of a vector of parameters."""
        couplings = np.zeros((self.n_units, self.n_units))
        couplings[self.pairs] = parameters[self.n_units :]
        return couplings + couplings.T, parameters[: self.n_units].copy()

    def packed(self, couplings, field):
        """Vector of parameters."""
        return np.concatenate([field, couplings[self.pairs]])

    @computed_once
    def index(self):
        """Place, in the vector, of the field of unit j (column 0) and of J_jk (column k + 1)."""
        d = self.n_units
        index = np.zeros((d, d + 1), np.int64)
        index[:, 0] = np.arange(d)
        index[self.pairs[0], self.pairs[1] + 1] = d + np.arange(len(self.pairs[0]))
        index[self.pairs[1], self.pairs[0] + 1] = d + np.arange(len(self.pairs[0]))
        index[np.arange(d), np.arange(d) + 1] = -1
        return index

    # --- value and gradient ---------------------------------------------------------------------

    def blocks(self):
        """Slices of rows that fit in the cache."""
        size = max(256, _BLOCK // self.n_units)
        return [slice(i, i + size) for i in range(0, len(self.weights), size)]

    def residuals(self, couplings, field, rows=slice(None)):
        """weight * (x - tanh eta) and weight * log-pseudo-likelihood of rows."""
        states, weights = self.rows.states[rows], self.weights[rows]
        products = states @ couplings
        value = np.empty(len(states))
        # A tanh and a softplus are worth some six multiply-adds each.
        n_workers = workers_for(-(-len(states) // kernels.TASK_ROWS), 12 * products.size, self.n_threads)
        queue = np.zeros(1, np.int64)
        in_parallel(
            kernels.residuals,
            (products, field, states, weights, queue, products, value),
            n_workers,
        )
        return products, value

    def value_and_gradient(self, parameters):
        """Penalised value and its gradient: two matrix products."""
        point = self._at(parameters)
        return point.value, point.gradient.copy()

    def _at(self, parameters):
        """What the latest parameters gave is kept."""
        if self._point is not None and np.array_equal(self._point.parameters, parameters):
            return self._point
        couplings, field = self.unpacked(parameters)
        value, of_field = 0.0, np.zeros(self.n_units)
        of_couplings = np.zeros((self.n_units, self.n_units))
        kept = self.rows.states.size <= _KEPT
        for block in [slice(None)] if kept else self.blocks():
            residuals, values = self.residuals(couplings, field, block)
            value += values.sum()
            of_field += np.ones(len(residuals)) @ residuals
            of_couplings += self.rows.states[block].T @ residuals
        value -= self.l2 / 2 * (parameters @ parameters)
        gradient = self.packed(of_couplings + of_couplings.T, of_field) - self.l2 * parameters
        self._point = _Point(np.array(parameters), value, gradient, residuals if kept else None)
        return self._point

    def _residuals_of(self, parameters, rows):
        if self.rows.states.size <= _KEPT:
            return self._at(parameters).residuals[rows]
        return self.residuals(*self.unpacked(parameters), rows)[0]

    # --- second derivatives ---------------------------------------------------------------------

    @computed_once
    def _product_sums(self):
        return ProductSums(self.rows.states, self.n_threads)

    @computed_once
    def _places(self):
        """Places in the flat Hessian of products k, l of unit j's features, and where they are."""
        d = self.n_units
        k, l = np.nonzero(~np.eye(d + 1, dtype=bool))
        first, second = self.index[:, k], self.index[:, l]
        j, pair = np.nonzero((first >= 0) & (second >= 0))
        places = first[j, pair] * self.n_parameters + second[j, pair]
        return places, (k[pair] * (d + 1) + l[pair]) * d + j

    def hessian(self, parameters):
        """Negative Hessian, penalty included, (n_parameters, n_parameters).

        Notes
        -----
        The terms of unit j are those of a logistic regression on the others, the sum over rows of
        w_i s_ij z_i z_i' with s = sech^2 eta and z = [1, x]. Those of all units come from
        `ProductSums`; only the diagonal has two of them.
        """
        if self._hessian is not None and np.array_equal(self._hessian[0], parameters):
            return self._hessian[1]
        hessian = self.hessian_of_slopes(self.slopes(parameters))
        if self.n_parameters <= _KEPT_HESSIAN:
            hessian.flags.writeable = False
            self._hessian = np.array(parameters), hessian
        return hessian

    def hessian_of_slopes(self, slopes):
        """The same for given weight * slope of tanh eta, (n_rows, n_units)."""
        return self._hessian_of(self._product_sums(slopes))

    def common_hessian(self, slopes):
        """The same if tanh eta_j had the slope `slopes[j]` in all rows: moments are enough."""
        mean = np.append(1.0, self.mean)
        moments = np.outer(mean, mean)
        moments[1:, 1:] = self.second
        return self._hessian_of(moments[:, :, None] * slopes)

    def _hessian_of(self, sums):
        """Negative Hessian from sums of w_i s_ij z_ik z_il, (n_units + 1, n_units + 1, n_units)."""
        hessian = np.zeros((self.n_parameters, self.n_parameters))
        places, of_sums = self._places
        hessian.reshape(-1)[places] = sums.reshape(-1)[of_sums]
        of_fields = sums[0, 0]
        of_couplings = of_fields[self.pairs[0]] + of_fields[self.pairs[1]]
        np.fill_diagonal(hessian, np.concatenate([of_fields, of_couplings]) + self.l2)
        return hessian

    def slopes(self, parameters, rows=slice(None)):
        """weight * sech^2 eta of rows."""
        residuals = abs(self._residuals_of(parameters, rows))
        # With u = |x - tanh eta| this is u (2 - u).
        slopes = residuals / self.weights[rows, None]
        np.subtract(2, slopes, out=slopes)
        slopes *= residuals
        return slopes

    def curvatures(self, parameters):
        """The Hessian as a function of vectors, for more parameters than matrices are made for."""
        slopes = np.empty_like(self.rows.states)
        for block in self.blocks():
            slopes[block] = self.slopes(parameters, block)

        def times(vector):
            couplings, field = self.unpacked(vector)
            of_couplings, of_field = np.zeros_like(couplings), np.zeros_like(field)
            for block in self.blocks():
                changes = self.rows.states[block] @ couplings
                changes += field
                changes *= slopes[block]
                of_field += changes.sum(0)
                of_couplings += self.rows.states[block].T @ changes
            return self.packed(of_couplings + of_couplings.T, of_field) + self.l2 * vector

        return times

    def leverages(self, inverse):
        """z_ij' inverse z_ij of the features of eta_ij, (n_rows, n_units)."""
        states = self.rows.states
        with_one = np.hstack([np.ones((len(states), 1)), states])
        out = np.empty(states.shape)
        for j in range(self.n_units):
            kept = self.index[j] >= 0
            features, places = with_one[:, kept], self.index[j][kept]
            out[:, j] = ((features @ inverse[np.ix_(places, places)]) * features).sum(1)
        return out

    # --- scores ---------------------------------------------------------------------------------

    def score_covariance(self, parameters):
        """Covariance of the rows' scores about their mean at a maximum, l2 * parameters."""
        pull = self.l2 * parameters
        total = np.outer(-pull, pull).T
        size = max(256, 8 * _BLOCK // self.n_parameters)
        for i in range(0, len(self.weights), size):
            scores = self._scores(parameters, slice(i, i + size))
            total = blas.dsyrk(1.0, scores.T, 1.0, total, lower=1, overwrite_c=1)
        return symmetric(total)

    def score_variances(self, parameters, vectors):
        """Variances of the rows' scores along each of some vectors."""
        unpacked = [self.unpacked(vector) for vector in vectors]
        total = -np.square([self.l2 * (vector @ parameters) for vector in vectors])
        for block in self.blocks():
            residuals = self._residuals_of(parameters, block)
            states, weights = self.rows.states[block], self.weights[block]
            for v, (couplings, field) in enumerate(unpacked):
                along = ((states @ couplings + field) * residuals).sum(1)
                total[v] += along @ (along / weights)
        return total

    def _scores(self, parameters, rows):
        """Scores of rows times the square root of their weights."""
        states, residuals = self.rows.states[rows], self._residuals_of(parameters, rows)
        residuals = residuals / np.sqrt(self.weights[rows, None])
        scores = np.empty((len(states), self.n_parameters))
        n_workers = workers_for(-(-len(states) // kernels.TASK_ROWS), 2 * scores.size, self.n_threads)
        in_parallel(kernels.scores, (states, residuals, np.zeros(1, np.int64), scores), n_workers)
        return scores
