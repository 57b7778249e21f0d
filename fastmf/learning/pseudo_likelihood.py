"""The log-pseudo-likelihood of a fully visible Boltzmann machine, and its derivatives.

Parameters are one vector: the field h_1..h_d, then the couplings J_jk, j < k, in lexicographic
order. Everything is per unit of weight: the mean over rows of Nguyen & Wood's Eq. 2.1.
"""

from functools import cached_property

import numpy as np

from fastmf._threads import in_parallel, workers_for
from fastmf.kernels import pseudo_likelihood as kernels

# Numbers in a block of rows, so that what one pass leaves the next finds in the cache.
_BLOCK = 1 << 17


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

    def __getstate__(self):
        # What is kept for speed is not worth a pickle.
        kept = dict(self.__dict__)
        for name in ("_all_column_products", "_places", "_columns"):
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

    @cached_property
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
        # A tanh and a softplus are worth some twenty multiply-adds each.
        n_workers = workers_for(-(-len(states) // kernels.ROWS), 40 * products.size, self.n_threads)
        queue = np.zeros(1, np.int64)
        in_parallel(
            kernels.residuals,
            (products, field, states, weights, queue, products, value),
            n_workers,
        )
        return products, value

    def value_and_gradient(self, parameters):
        """Penalised value and its gradient: two matrix products."""
        couplings, field = self.unpacked(parameters)
        value, of_field = 0.0, np.zeros(self.n_units)
        of_couplings = np.zeros((self.n_units, self.n_units))
        for block in self.blocks():
            residuals, values = self.residuals(couplings, field, block)
            value += values.sum()
            of_field += residuals.sum(0)
            of_couplings += self.rows.states[block].T @ residuals
        gradient = self.packed(of_couplings + of_couplings.T, of_field)
        value -= self.l2 / 2 * (parameters @ parameters)
        return value, gradient - self.l2 * parameters

    # --- second derivatives ---------------------------------------------------------------------

    @cached_property
    def _columns(self):
        """Pairs k <= l of columns of [1, x]."""
        return np.triu_indices(self.n_units + 1)

    @cached_property
    def _places(self):
        """Places in the flat Hessian of the terms of every unit: (unit and pair, place)."""
        k, l = self._columns
        first, second = self.index[:, k], self.index[:, l]
        used = (first >= 0) & (second >= 0)
        low, high = np.minimum(first, second)[used], np.maximum(first, second)[used]
        return used, low * self.n_parameters + high

    def _column_products(self, rows):
        with_one = np.vstack([np.ones((1, len(self.weights[rows]))), self.rows.states[rows].T])
        k, l = self._columns
        return with_one[k] * with_one[l]

    @cached_property
    def _all_column_products(self):
        return self._column_products(slice(None))

    def hessian(self, parameters):
        """Negative Hessian, penalty included, (n_parameters, n_parameters).

        Notes
        -----
        The terms of unit j are those of a logistic regression on the others, the sum over rows of
        w_i s_ij z_i z_i' with s = sech^2 eta and z = [1, x]. For all units at once this is one
        matrix product with the products of columns, half the work of d products of the rows with
        themselves.
        """
        couplings, field = self.unpacked(parameters)
        n_pairs = len(self._columns[0])
        terms = np.zeros((self.n_units, n_pairs))
        if len(self.weights) * n_pairs <= 16 * _BLOCK:
            blocks, products = [slice(None)], lambda rows: self._all_column_products
        else:
            size = max(64, 2 * _BLOCK // n_pairs)
            blocks = [slice(i, i + size) for i in range(0, len(self.weights), size)]
            products = self._column_products
        for rows in blocks:
            slopes = self.slopes(couplings, field, rows)
            terms += slopes.T @ products(rows).T
        used, places = self._places
        flat = np.bincount(places, terms[used], self.n_parameters**2)
        hessian = flat.reshape(self.n_parameters, self.n_parameters)
        hessian = hessian + np.triu(hessian, 1).T
        hessian[np.diag_indices_from(hessian)] += self.l2
        return hessian

    def slopes(self, couplings, field, rows=slice(None)):
        """weight * sech^2 eta of rows."""
        eta = self.rows.states[rows] @ couplings + field
        e = np.exp(-2 * abs(eta))
        return self.weights[rows, None] * 4 * e / (1 + e) ** 2

    def leverages(self, inverse, rows=slice(None)):
        """z_ij' inverse z_ij of the features of eta_ij, (n_rows, n_units)."""
        states = self.rows.states[rows]
        with_one = np.hstack([np.ones((len(states), 1)), states])
        out = np.empty(states.shape)
        for j in range(self.n_units):
            kept = self.index[j] >= 0
            features, places = with_one[:, kept], self.index[j][kept]
            out[:, j] = ((features @ inverse[np.ix_(places, places)]) * features).sum(1)
        return out

    # --- scores ---------------------------------------------------------------------------------

    def score_covariance(self, parameters):
        """Mean outer product of the rows' scores (not of their mean: it vanishes at a maximum)."""
        couplings, field = self.unpacked(parameters)
        total = np.zeros((self.n_parameters, self.n_parameters))
        first, second = self.pairs
        size = max(64, _BLOCK // self.n_parameters)
        for i in range(0, len(self.weights), size):
            rows = slice(i, i + size)
            weights = self.weights[rows, None]
            residuals = self.residuals(couplings, field, rows)[0] / weights
            x, r = self.rows.states[rows].T, residuals.T
            scores = np.concatenate([r, x[first] * r[second] + r[first] * x[second]])
            # The square root on both sides lets BLAS see a product with itself.
            scores *= np.sqrt(weights.T)
            total += scores @ scores.T
        return total
