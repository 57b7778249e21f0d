"""Composite likelihoods: what solvers and tests ask of them, and what solvers return."""

import copy
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import blas

from fastmf._common.linalg import symmetrize
from fastmf._common.rows import BLOCK_ENTRIES
from fastmf._threads.workers import for_each, one_blas_thread, workers_for

# Rows whose log-pseudo-likelihood the tolerances of solvers are about, however many there are and
# whatever their weights add up to: weights that differ by a factor have the same maximum.
TOLERANCE_ROWS = 100_000
# Parameters beyond which no Hessian is made: 6,000 take 290 MB each.
MAX_HESSIAN_PARAMETERS = 6000
# Parameters up to which "auto" takes Newton's method; for more, L-BFGS takes less time.
MAX_NEWTON_PARAMETERS = 1300
# Smallest decrease of the function, compared with that along the gradient, for a step to be taken.
MIN_DECREASE = 1e-4
# Numbers in a block of rows that fits in the cache.
BLOCK_NUMBERS = 1 << 17
# Iterations of L-BFGS at most; Newton's method, whose iterations cost more, takes a tenth.
MAX_ITER = 1000


class CompositeLikelihood:
    """Mean over weighted rows of their log-pseudo-likelihoods, less penalties: a concave function.

    Newton's method, L-BFGS, the sandwich and tests of likelihood ratios are written on this class.
    Parameters are one vector, in which fields come first. A subclass has the attributes

    - `total`, `weights`: weight of all rows, and weights of rows that add up to one;
    - `n_units`, `n_fields`, `n_parameters`, `n_threads`;
    - `coupled`: which units are coupled, (n_units, n_units);
    - `ridge`: penalty of each parameter or of all, ridge / 2 times its square;
    - `singular`: whether changes of gauge leave the value as it is;

    and, as far as its solvers need them, the methods

    - `value_and_gradient(parameters)`: the penalised mean and its gradient;
    - `hessian(parameters)`: its negative second derivatives;
    - `coordinates(separate)`: coordinates in which they are nearly the identity, with
      `to_parameters`, `from_parameters`, `gradient` and, if couplings stay `separate`, `scale`;
    - `scores(parameters, rows, factors)`: gradients of rows' values, each times a factor;
    - `score_products(parameters, vectors, rows, factors)`: their inner products with vectors,
      (n_rows, n_vectors);
    - `indices_of(first, second)`: parameters that couple two units, or of the field of one.
    """

    singular = False

    def contrasts(self):
        """Directions of couplings, a sparse matrix, their numbers for each pair, and the pairs."""
        n = self.n_parameters - self.n_fields
        directions = sparse.eye_array(n, self.n_parameters, k=self.n_fields).tocsr()
        return directions, np.arange(n)[:, None], tuple(self.pairs)

    def term_weights(self):
        """Weights of the terms of each unit, (n_rows, n_units), or (n_rows, 1) of all alike."""
        return self.weights[:, None]

    def penalty(self, parameters):
        """Ridge penalty per unit of weight."""
        return float((self.ridge * parameters) @ parameters) / 2

    def log_likelihood(self, parameters):
        """Log-pseudo-likelihood of all rows together, without penalties."""
        value = self.value_and_gradient(parameters)[0]
        return self.total * (value + self.penalty(parameters))

    def with_ridge(self, ridge):
        """The objective of the same rows with another ridge penalty, per unit of weight."""
        result = copy.copy(self)
        result.ridge, result._latest = ridge, None
        return result

    def mean_score(self, parameters):
        """Mean of the rows' scores: zero at a maximum without penalties only."""
        return self.value_and_gradient(parameters)[1] + self.ridge * parameters

    def hessian_product(self, parameters, vector):
        """Product of `hessian` with a vector, by central differences of the gradient."""
        step = np.cbrt(np.finfo(float).eps) / abs(vector).max(initial=np.finfo(float).tiny)
        ends = (self.value_and_gradient(parameters + s * vector)[1] for s in (-step, step))
        return np.subtract(*ends) / (2 * step)

    def score_covariance(self, parameters, sampling=None):
        """Sum over units of sampling of outer products of scores about their mean."""
        n, mean = self.n_parameters, self.mean_score(parameters)
        total, cross, square = np.zeros((n, n), order="F"), np.zeros(n), 0.0
        for sums, factors in self._sums(partial(self.scores, parameters), sampling, n):
            total = blas.dsyrk(1.0, sums.T, 1.0, total, lower=1, overwrite_c=1)
            cross += factors @ sums
            square += factors @ factors
        total -= np.outer(cross, mean)
        total -= np.outer(mean, cross - square * mean)
        return symmetrize(total)

    def score_variances(self, parameters, vectors, sampling=None):
        """Products of `score_covariance` with each of some vectors from both sides."""
        means = np.asarray(vectors) @ self.mean_score(parameters)
        along = partial(self.score_products, parameters, vectors)
        total = 0.0
        for sums, factors in self._sums(along, sampling, self.n_units):
            total += np.square(sums - factors[:, None] * means).sum(0)
        return total

    def _sums(self, of_rows, sampling, width):
        """Sums of rows' values, and of ones, over blocks of the units of sampling."""
        size = max(256, BLOCK_ENTRIES // width)
        if sparse.issparse(sampling):
            sampling = sampling.tocsr()
            for start in range(0, sampling.shape[0], size):
                block = sampling[start : start + size].tocsc()
                rows = np.flatnonzero(np.diff(block.indptr))
                block = block[:, rows]
                yield block @ of_rows(rows, np.ones(len(rows))), block.sum(1)
            return
        factors = np.sqrt(self.weights if sampling is None else sampling)
        for start in range(0, len(factors), size):
            rows = slice(start, start + size)
            yield of_rows(rows, factors[rows]), factors[rows]


class PairwiseLikelihood(CompositeLikelihood):
    """Composite likelihood with one coupling for each pair of units, of the products of scores.

    `states` (n_rows, n_units) are scores. A subclass has

    - `width`: largest number of categories;
    - `item_of_field`: unit of each field;
    - `_field_statistics(rows)`: derivatives of log-probabilities by fields;
    - `_value_and_derivatives(parameters)`: without penalty;
    - `_row_derivatives(parameters, rows)`: derivatives of rows' values by fields, and by the sum of
      the neighbours of each unit;
    - `_slopes_of_means(parameters, factors)`: derivatives of the sums over rows of factors times
      means by fields, and of each mean, times its factor, by the sum of its neighbours;
    - `_with(states, weights, pairs)`: the objective of other rows or pairs.
    """

    def __init__(self, states, weights, n_fields, pairs, n_threads):
        self.states, self.n_threads = states, n_threads
        self.total = float(np.sum(weights))
        self.weights = np.asarray(weights, float) / self.total
        self.n_units, self.n_fields = d, _ = states.shape[1], n_fields
        self.pairs = np.triu_indices(d, 1) if pairs is None else tuple(pairs)
        self.n_parameters = n_fields + len(self.pairs[0])
        # The parameter that couples two units, -1 if there is none.
        self.index = np.full((d, d), -1)
        self.index[self.pairs] = n_fields + np.arange(len(self.pairs[0]))
        self.index.T[self.pairs] = self.index[self.pairs]
        self.coupled = self.index >= 0
        self._latest = None

    def blocks(self):
        """Slices of rows that fit in the cache."""
        size = max(256, BLOCK_NUMBERS // (self.n_units * self.width))
        return [slice(i, i + size) for i in range(0, len(self.weights), size)]

    def sums_over_blocks(self, function):
        """Sum each of the results of a function over blocks of rows, which threads share.

        BLAS has one thread meanwhile, see `few_blas_threads`: a block of rows is one task, so that
        results do not depend on the number of threads.
        """
        blocks = self.blocks()
        parts = [()] * len(blocks)

        def compute(k):
            parts[k] = function(blocks[k])

        work = 10 * self.states.size * (self.n_units + 10 * self.width)
        for_each(compute, range(len(blocks)), workers_for(len(blocks), work, self.n_threads))
        return [sum(terms) for terms in zip(*parts, strict=True)]

    def unpacked(self, parameters):
        """Couplings (n_units, n_units) and fields of a vector of parameters."""
        couplings = np.zeros((self.n_units, self.n_units))
        couplings[self.pairs] = parameters[self.n_fields :]
        return couplings + couplings.T, parameters[: self.n_fields].copy()

    def packed(self, couplings, fields):
        """Vector of parameters."""
        return np.concatenate([fields, couplings[self.pairs]])

    def indices_of(self, first, second):
        """Parameters of pairs of units: couplings, or all fields of one."""
        fields = [np.flatnonzero(self.item_of_field == i) for i in first]
        parts = [of_unit if i == j else self.index[i, j, None]
                 for i, j, of_unit in zip(first, second, fields, strict=True)]  # fmt: skip
        return np.concatenate([*parts, np.zeros(0, int)])

    def value_and_gradient(self, parameters):
        """Penalised value and its gradient, which are stored until parameters change."""
        if self._latest is None or not np.array_equal(self._latest[0], parameters):
            value, couplings, fields = self._value_and_derivatives(parameters)
            gradient = self.packed(couplings + couplings.T, fields) - self.ridge * parameters
            self._latest = np.array(parameters), value - self.penalty(parameters), gradient
        return self._latest[1], self._latest[2].copy()

    def correlated(self):
        """Return parameters where solvers without l1 start."""
        return self.independent()

    def scores(self, parameters, rows, factors):
        """Scores of rows, each times a factor, (n_rows, n_parameters)."""
        fields, sums = (x * factors[:, None] for x in self._row_derivatives(parameters, rows))
        x, r = np.ascontiguousarray(self.states[rows].T), np.ascontiguousarray(sums.T)
        first, second = self.pairs
        return np.hstack([fields, (x[first] * r[second] + r[first] * x[second]).T])

    def score_products(self, parameters, vectors, rows, factors):
        """Inner products of rows' scores, times factors, with vectors, (n_rows, n_vectors)."""
        by_fields, by_sums = self._row_derivatives(parameters, rows)
        states, out = self.states[rows], np.empty((len(factors), len(vectors)))
        for v, vector in enumerate(vectors):
            couplings, fields = self.unpacked(vector)
            out[:, v] = by_fields @ fields + ((states @ couplings) * by_sums).sum(1)
        return out * factors[:, None]

    def log_joint(self, parameters):
        """Logarithms of the probabilities of rows, but for a constant."""
        couplings, fields = self.unpacked(parameters)
        terms = self._field_statistics(slice(None)) @ fields
        return terms + ((self.states @ couplings) * self.states).sum(1) / 2

    def statistics(self, rows):
        """Derivatives of `log_joint` of rows, (n_rows, n_parameters)."""
        states, (first, second) = self.states[rows], self.pairs
        return np.hstack([self._field_statistics(rows), states[:, first] * states[:, second]])

    def prediction_gradients(self, parameters, factors):
        """Derivatives of the sums over rows of factors times means, (n_units, n_parameters)."""
        by_fields, by_sums = self._slopes_of_means(parameters, factors)
        out, (first, second) = np.zeros((self.n_units, self.n_parameters)), self.pairs
        out[self.item_of_field, np.arange(self.n_fields)] = by_fields
        by_couplings, indices = by_sums.T @ self.states, self.index[self.pairs]
        out[first, indices] = by_couplings[first, second]
        out[second, indices] = by_couplings[second, first]
        return out

    def reweighted(self, weights):
        """The objective of these rows with other weights; rows of weight 0 are left out."""
        positive = weights > 0
        return self._with(self.states[positive], weights[positive], self.pairs)

    def restricted(self, edges):
        """The objective with the couplings of these edges alone, (n_edges, 2)."""
        return self._with(self.states, self.weights * self.total, np.transpose(edges))


class Fit(NamedTuple):
    """Result of a solver."""

    parameters: np.ndarray  # (n_parameters,)
    # list of float: penalised log-pseudo-likelihood of all rows together, or the minimised
    # function, after each iteration
    history: list
    stopped: bool  # whether the stopping rule ended the solver, not the limit of iterations


def few_blas_threads(n_parameters=0):
    """Enter the context of these functions: one thread of BLAS except for large Hessians.

    With 1,200 parameters, on cores that other processes use, Newton's method took ten times as long
    with several threads.
    """
    return one_blas_thread(n_parameters if n_parameters >= MAX_HESSIAN_PARAMETERS // 2 else 0)


def gradient_rounding():
    """Rounding error of a mean derivative, whose terms are at most 2."""
    return 4 * np.finfo(float).eps
