"""Composite likelihoods: what solvers and tests ask of them, and what solvers return."""

import copy
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import blas

from fastmf._common.linalg import symmetrize
from fastmf._threads.workers import one_blas_thread

# Rows whose log-pseudo-likelihood the tolerances of solvers are about, however many there are and
# whatever their weights add up to: weights that differ by a factor have the same maximum.
TOLERANCE_ROWS = 100_000
# Parameters beyond which no Hessian is made: 6,000 take 290 MB each.
MAX_HESSIAN_PARAMETERS = 6000
# Parameters up to which "auto" takes Newton's method; for more, L-BFGS takes less time.
MAX_NEWTON_PARAMETERS = 1300
# Smallest decrease of the function, compared with that along the gradient, for a step to be taken.
MIN_DECREASE = 1e-4
# Parameters from which BLAS keeps its threads for the Hessian, 77 units. With 1,200, on cores that
# other processes use, Newton's method took ten times as long with them.
_MIN_THREADED_PARAMETERS = 3000
# Numbers in a block of rows that fits in the cache.
BLOCK_NUMBERS = 1 << 17
# Numbers in a block of scores.
SCORE_NUMBERS = 1 << 20


class CompositeLikelihood:
    """Mean over weighted rows of their log-pseudo-likelihoods, less penalties: a concave function.

    Newton's method, L-BFGS, the sandwich and tests of likelihood ratios are written on this class.
    Parameters are one vector, in which fields come first. A subclass has the attributes

    - `total`, `weights`: weight of all rows, and weights of rows that add up to one;
    - `n_units`, `n_fields`, `n_parameters`, `n_threads`;
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
        result.ridge, result._latest, result._hessian = ridge, None, None
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
        size = max(256, SCORE_NUMBERS // width)
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


class Fit(NamedTuple):
    """Result of a solver.

    Parameters
    ----------
    parameters : array of shape (n_parameters,)
    history : list of float
        Penalised log-pseudo-likelihood of all rows together, or the minimised function, after each
        iteration.
    stopped : bool
        Whether the stopping rule ended the solver, not the limit of iterations.
    """

    parameters: np.ndarray
    history: list
    stopped: bool


def few_blas_threads(n_parameters=0):
    """Enter the context of these functions: one thread of BLAS except for Hessians."""
    return one_blas_thread(n_parameters if n_parameters >= _MIN_THREADED_PARAMETERS else 0)
