"""Composite likelihoods with one coupling for each pair of units, and coordinates of parameters."""

import copy
import math
from functools import partial

import numpy as np
from scipy import linalg, sparse
from scipy.linalg import blas

from fastmf._common.linalg import symmetrize
from fastmf._common.rows import BLOCK_ENTRIES
from fastmf._threads.workers import for_each, workers_for
from fastmf.learning.pseudo_likelihood.fit import BLOCK_NUMBERS

# Variance below which a unit is not distinguished from a constant one.
MIN_SPIN_VARIANCE = 1e-3


class SeparateCoordinates:
    """Fields at the mean of all other units, whitened, and scaled couplings.

    The Hessian of weakly coupled units is the identity in them; a coupling stays one coordinate.
    Where the penalty of fields outweighs the data, fields stay those at zero of the other units.
    """

    def __init__(self, objective):
        mean, variance, hessian, slope = objective.independent_curvature()
        first, second = objective.pairs
        ridge = np.broadcast_to(objective.ridge, objective.n_parameters)[objective.n_fields :]
        scale = np.sqrt(2 * variance[first] * variance[second] + ridge)
        self._set(objective, mean, hessian, slope, scale)

    def _set(self, objective, mean, hessian, slope, scale):
        """Set means, the Hessian and slopes of fields, and the scale of couplings."""
        self._n, self._objective, self._mean = objective.n_fields, objective, mean
        ridge = np.broadcast_to(objective.ridge, objective.n_parameters)
        self._factor = linalg.cholesky(hessian + np.diag(ridge[: self._n]), lower=True)
        # How fields follow the sum of all neighbours.
        self._slope = linalg.cho_solve((self._factor, True), hessian @ slope)
        # Scale of couplings; fields are whitened by the factor.
        self.scale = np.append(np.ones(self._n), scale)

    def _whitened(self, vector, trans):
        return linalg.solve_triangular(
            self._factor, vector, lower=True, trans=trans, check_finite=False
        )

    def _shift(self, couplings):
        """Changes of fields by the other units at their means."""
        objective, (first, second) = self._objective, self._objective.pairs
        field = np.bincount(first, couplings * self._mean[second], objective.n_units)
        field += np.bincount(second, couplings * self._mean[first], objective.n_units)
        return self._slope * field[objective.item_of_field]

    def to_parameters(self, coordinates):
        """Parameters at some coordinates."""
        parameters = coordinates / self.scale
        fields = self._whitened(parameters[: self._n], "T")
        parameters[: self._n] = fields - self._shift(parameters[self._n :])
        return parameters

    def from_parameters(self, parameters):
        """Coordinates of some parameters."""
        coordinates = parameters * self.scale
        fields = parameters[: self._n] + self._shift(parameters[self._n :])
        coordinates[: self._n] = self._factor.T @ fields
        return coordinates

    def gradient(self, by_parameters):
        """Gradient by coordinates of a gradient by parameters: the transposed matrix."""
        objective, (first, second) = self._objective, self._objective.pairs
        out, along = by_parameters / self.scale, by_parameters[: self._n] * self._slope
        out[: self._n] = self._whitened(by_parameters[: self._n], "N")
        along = np.bincount(objective.item_of_field, along, objective.n_units)
        change = self._mean[second] * along[first] + self._mean[first] * along[second]
        out[self._n :] -= change / self.scale[self._n :]
        return out


# L-BFGS takes a third of the time with them for 200 correlated units.
class Coordinates(SeparateCoordinates):
    """Coordinates in which spins may also be strongly correlated.

    If sech^2 eta_j were the same s_j in all rows, the second-order term of couplings K, scaled by
    sqrt(s_j s_k), would be trace(K A K), where A is the covariance of the units scaled in the same
    way. In the basis of the eigenvectors of A it is a sum of squares. There are `n_units` more
    coordinates than parameters, for the diagonal of K, which is ignored.
    """

    def __init__(self, objective):
        d, (first, second), l2 = objective.n_units, objective.pairs, objective.l2
        self._d, self._pairs = d, (first, second)
        covariance = objective.second - np.outer(objective.mean, objective.mean)
        diagonal = np.diag_indices(d)
        covariance[diagonal] += MIN_SPIN_VARIANCE
        # Residual variance of each unit in its linear regression on all others.
        sech2 = 1 / linalg.inv(covariance).diagonal()
        covariance[diagonal] += l2 / (2 * sech2)
        scale = np.sqrt(sech2[first] * sech2[second])
        self._set(objective, objective.mean, np.diag(sech2), np.ones(d), scale)
        scaled = covariance / np.sqrt(np.outer(sech2, sech2))
        values, self._vectors = linalg.eigh(scaled, overwrite_a=True)
        self._triangle = first, second = np.triu_indices(d)
        self._multiplicity = 1.0 + (first == second)
        self._curvature = np.sqrt((values[first] + values[second]) / self._multiplicity)

    def _rotated(self, couplings):
        """Triangle of couplings, a symmetric matrix without diagonal, in the basis."""
        matrix = np.zeros((self._d, self._d))
        matrix[self._pairs] = matrix.T[self._pairs] = couplings
        return (self._vectors.T @ matrix @ self._vectors)[self._triangle]

    def to_parameters(self, coordinates):
        """Parameters at some coordinates."""
        matrix = np.zeros((self._d, self._d))
        matrix[self._triangle] = coordinates[self._d :] / self._curvature
        matrix.T[self._triangle] = matrix[self._triangle]
        couplings = (self._vectors @ matrix @ self._vectors.T)[self._pairs]
        return super().to_parameters(np.concatenate([coordinates[: self._d], couplings]))

    def from_parameters(self, parameters):
        """Coordinates of some parameters."""
        scaled = super().from_parameters(parameters)
        rotated = self._rotated(scaled[self._d :]) * self._curvature
        return np.concatenate([scaled[: self._d], rotated])

    def gradient(self, by_parameters):
        """Gradient by coordinates of a gradient by parameters: the transposed matrix."""
        scaled = super().gradient(by_parameters)
        rotated = self._rotated(scaled[self._d :]) / (self._curvature * self._multiplicity)
        return np.concatenate([scaled[: self._d], rotated])


class PairwiseLikelihood:
    """Mean over weighted rows of their log-pseudo-likelihoods, less penalties: a concave function.

    Newton's method, L-BFGS, the sandwich and tests of likelihood ratios are written on this class.
    Parameters are one vector: fields, then one coupling for each pair of columns of `states`
    (n_rows, n_columns), the scores of units. A subclass has

    - `width`: largest number of categories;
    - `ridge`: penalty of each parameter or of all, ridge / 2 times its square;
    - `singular`: whether changes of gauge leave the value as it is;
    - `item_of_field`: unit of each field;
    - `_field_statistics(rows)`: derivatives of log-probabilities by fields;
    - `_value_and_derivatives(parameters)`: without penalty;
    - `_row_derivatives(parameters, rows)`: derivatives of rows' values by fields, and by the sum of
      the neighbours of each unit;
    - `_curvatures(parameters, rows)`: the sum over rows of the covariances of the statistics of
      fields, and for each row the covariances of these with the scores of their units, and the
      variances of scores; all are conditional, times the weights of rows;
    - `_with(states, weights, pairs)`: the objective of other rows or pairs;
    - `_slopes_of_means(parameters, factors)`: derivatives of the sums over rows of factors times
      means by fields, and of each mean, times its factor, by the sum of its neighbours.
    """

    singular = False

    def __init__(self, states, weights, n_fields, pairs, n_threads):
        self.states, self.n_threads = states, n_threads
        self.total = float(np.sum(weights))
        self.weights = np.asarray(weights, float) / self.total
        self.n_units = self.n_columns = d = states.shape[1]
        self.n_fields = n_fields
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

        work = 10 * len(self.weights) * self.n_columns * (self.n_columns + 10 * self.width)
        for_each(compute, range(len(blocks)), workers_for(len(blocks), work, self.n_threads))
        return [sum(terms) for terms in zip(*parts, strict=True)]

    def unpacked(self, parameters):
        """Couplings (..., n_columns, n_columns) and fields of vectors of parameters."""
        couplings = np.zeros((*parameters.shape[:-1], self.n_columns, self.n_columns))
        first, second = self.pairs
        values = parameters[..., self.n_fields :]
        couplings[..., first, second] = couplings[..., second, first] = values
        return couplings, parameters[..., : self.n_fields].copy()

    def _states(self, rows):
        return self.states[rows]

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

    def hessian(self, parameters):
        """Negative Hessian, penalties included, (n_parameters, n_parameters).

        The curvature of a unit by couplings to units j and k is the sum over rows of x_j x_k times
        its conditional variance: blocks of products of two columns are multiplied with the
        variances of all units.
        """
        n, d, variances = self.n_fields, self.n_units, np.empty(self.states.shape)

        def sums(rows):
            fields, both, variances[rows] = self._curvatures(parameters, rows)
            return fields, both.T @ self.states[rows]

        fields, both = self.sums_over_blocks(sums)
        columns, squares = np.ascontiguousarray(self.states.T), np.empty((d, d, d))
        first, second = np.triu_indices(d)
        size = math.isqrt(BLOCK_NUMBERS)

        def multiply(start):
            j, k, total = first[start : start + size], second[start : start + size], 0.0
            for i in range(0, len(variances), size):
                x = columns[:, i : i + size]
                total = total + (x[j] * x[k]) @ variances[i : i + size]
            squares[j, k] = squares[k, j] = total

        starts, work = range(0, len(first), size), self.states.size * d * d
        for_each(multiply, starts, workers_for(len(starts), work, self.n_threads))
        hessian = np.diag(np.broadcast_to(self.ridge, self.n_parameters).astype(float))
        hessian[:n, :n] += fields
        for i, coupled in enumerate(self.coupled):
            of_unit, couplings = np.flatnonzero(self.item_of_field == i), self.index[i, coupled]
            block = both[of_unit][:, coupled]
            hessian[np.ix_(of_unit, couplings)] += block
            hessian[np.ix_(couplings, of_unit)] += block.T
            hessian[np.ix_(couplings, couplings)] += squares[coupled][:, coupled, i]
        return hessian

    def scores(self, parameters, rows, factors):
        """Scores of rows, each times a factor, (n_rows, n_parameters)."""
        fields, sums = (x * factors[:, None] for x in self._row_derivatives(parameters, rows))
        x, r = np.ascontiguousarray(self._states(rows).T), np.ascontiguousarray(sums.T)
        first, second = self.pairs
        return np.hstack([fields, (x[first] * r[second] + r[first] * x[second]).T])

    def score_products(self, parameters, vectors, rows, factors):
        """Inner products of rows' scores, times factors, with vectors, (n_rows, n_vectors)."""
        by_fields, by_sums = self._row_derivatives(parameters, rows)
        states, out = self._states(rows), np.empty((len(factors), len(vectors)))
        for v, vector in enumerate(vectors):
            couplings, fields = self.unpacked(vector)
            out[:, v] = by_fields @ fields + ((states @ couplings) * by_sums).sum(1)
        return out * factors[:, None]

    def log_joint(self, parameters):
        """Logarithms of the probabilities of rows, but for a constant."""
        couplings, fields = self.unpacked(parameters)
        terms, states = self._field_statistics(slice(None)) @ fields, self._states(slice(None))
        return terms + ((states @ couplings) * states).sum(1) / 2

    def statistics(self, rows):
        """Derivatives of `log_joint` of rows, (n_rows, n_parameters)."""
        states, (first, second) = self._states(rows), self.pairs
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
