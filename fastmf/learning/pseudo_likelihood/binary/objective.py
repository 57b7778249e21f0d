"""The log-pseudo-likelihood of a fully visible Boltzmann machine, and its derivatives.

With the local field eta_ij = sum_k J_jk x_ik + h_j of unit j in row i and weights w_i that add up
to one (Nguyen & Wood 2016, Eq. 2.1):

    P        = sum_i w_i sum_j (x_ij eta_ij - ln cosh eta_ij - ln 2) - l2 |parameters|^2 / 2
    dP/dh_j  = sum_i w_i (x_ij - tanh eta_ij) - l2 h_j
    dP/dJ_jk = sum_i w_i (x_ik (x_ij - tanh eta_ij) + x_ij (x_ik - tanh eta_ik)) - l2 J_jk
    H        = -d^2P = sum_ij w_i sech^2(eta_ij) z_ij z_ij' + l2 I,   z_ij = d eta_ij / d parameters

Parameters are one vector: the field h_1..h_d, then the couplings J_jk, j < k, in lexicographic
order.

Fits of available cases (`fastmf.learning.pseudo_likelihood.rows`) leave out some terms (i, j).
Their x_ij is 0 in the place of the unit itself: the residual is then 0, and the value is -ln 2,
which is taken off. Missing values of neighbours are 0, too, but only in terms that are left out.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

from fastmf._common.linalg import symmetrize
from fastmf._threads.workers import computed_once, for_each, in_parallel, workers_for
from fastmf.kernels.pseudo_likelihood import binary as pl_kernels
from fastmf.learning.pseudo_likelihood.binary.coordinates import Coordinates, SeparateCoordinates
from fastmf.learning.pseudo_likelihood.existence import Items
from fastmf.learning.pseudo_likelihood.fit import (
    BLOCK_NUMBERS,
    MAX_NEWTON_PARAMETERS,
    SCORE_NUMBERS,
    TOLERANCE_ROWS,
    CompositeLikelihood,
)

# Such blocks that threads share.
_SHARED_BLOCKS = 8


class _Evaluation(NamedTuple):
    """Value, gradient and, unless there are too many, residuals at some parameters."""

    parameters: np.ndarray
    value: float
    gradient: np.ndarray
    residuals: np.ndarray | None


class PseudoLikelihood(CompositeLikelihood):
    """Mean log-pseudo-likelihood of weighted rows, less l2 / 2 times the squared parameters.

    `edges` are the pairs j < k of units with a coupling, (n_edges, 2), by default all.
    """

    def __init__(self, rows, l2=0.0, n_threads=None, edges=None):
        self.rows, self.n_threads = rows, n_threads
        self.l2 = self.ridge = l2
        self.n_units = self.n_fields = rows.states.shape[1]
        self.total = rows.total
        self.weights = rows.weights / self.total
        self.mean, self.second = rows.moments()
        self.edges = edges
        self.pairs = np.triu_indices(self.n_units, 1) if edges is None else tuple(edges.T)
        self.n_parameters = self.n_units + len(self.pairs[0])
        self._latest = self._hessian = None

    def term_weights(self):
        """Weights of the terms of each unit, which add up to one for each."""
        if self.rows.targets is None:
            return super().term_weights()
        weights = self.weights[:, None] * (self.rows.targets != 0)
        return weights / weights.sum(0)

    def __getstate__(self):
        # Without results that are stored for speed only.
        return dict(self.__dict__) | {"_latest": None, "_hessian": None}

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
        """Index, in the vector, of the field of unit j (column 0) and of J_jk (column k + 1)."""
        d = self.n_units
        index = np.full((d, d + 1), -1, np.int64)
        index[:, 0] = np.arange(d)
        index[self.pairs[0], self.pairs[1] + 1] = d + np.arange(len(self.pairs[0]))
        index[self.pairs[1], self.pairs[0] + 1] = d + np.arange(len(self.pairs[0]))
        return index

    def indices_of(self, first, second):
        """Parameters of pairs of units: couplings, or the field where both are the same."""
        return self.index[first, np.where(first == second, 0, second + 1)]

    def independent(self, n_rows=TOLERANCE_ROWS):
        """Return the parameters of uncoupled units, with half a row more of each value."""
        parameters = np.zeros(self.n_parameters)
        parameters[: self.n_units] = np.arctanh(n_rows / (n_rows + 1) * self.mean)
        return parameters

    def coordinates(self, separate):
        """`Coordinates`, or `SeparateCoordinates`."""
        return (SeparateCoordinates if separate else Coordinates)(self)

    # --- value and gradient ---------------------------------------------------------------------

    def row_blocks(self, n_rows=None, at_once=1):
        """Slices of rows, by default of all, which fit in the cache, `at_once` together."""
        n_rows = len(self.weights) if n_rows is None else n_rows
        size = at_once * max(256, BLOCK_NUMBERS // self.n_units)
        return [slice(i, i + size) for i in range(0, n_rows, size)]

    def residuals(self, couplings, field, rows=slice(None)):
        """Residuals weight * (x - tanh eta) of rows, and weight * their log-pseudo-likelihood."""
        states, weights = self.rows.own[rows], self.weights[rows]
        products = self._products(self.rows.states[rows], couplings)
        value = np.empty(len(states))
        # A tanh and a softplus take the time of some six multiply-adds each.
        n_tasks = -(-len(states) // pl_kernels.ROWS_AT_A_TIME)
        n_workers = workers_for(n_tasks, 12 * products.size, self.n_threads)
        memory = np.empty((n_workers, 6, pl_kernels.ROWS_AT_A_TIME * self.n_units))
        queue = np.zeros(2, np.int64)
        in_parallel(
            pl_kernels.residuals,
            (products, field, states, weights, memory, queue, products, value),
            n_workers,
        )
        return products, self._of_available(value, rows)

    def _of_available(self, value, rows):
        """Values of rows without the terms that are left out, ln 1/2 each."""
        if self.rows.targets is None:
            return value
        return value + self.weights[rows] * np.log(2) * (self.rows.targets[rows] == 0).sum(1)

    # BLAS has one thread meanwhile, see `few_blas_threads`: a block of rows is one task, so that
    # results do not depend on the number of threads.

    def _products(self, rows, matrix):
        """rows @ matrix."""
        out = np.empty(rows.shape)

        def multiply(block):
            np.matmul(rows[block], matrix, out=out[block])

        blocks = self.row_blocks(len(rows))
        for_each(multiply, blocks, self._n_workers(len(blocks), rows))
        return out

    def _sum_of_products(self, left, right):
        """left' right, the sum over blocks of rows."""
        total, parts = 0.0, np.empty((_SHARED_BLOCKS, self.n_units, self.n_units))
        blocks = self.row_blocks(len(left))

        def multiply(task):
            k, block = task
            np.matmul(left[block].T, right[block], out=parts[k])

        for first in range(0, len(blocks), _SHARED_BLOCKS):
            tasks = list(enumerate(blocks[first : first + _SHARED_BLOCKS]))
            for_each(multiply, tasks, self._n_workers(len(tasks), left))
            total += parts[: len(tasks)].sum(0)
        return total

    def _n_workers(self, n_tasks, rows):
        return workers_for(n_tasks, rows.size * self.n_units, self.n_threads)

    def value_and_gradient(self, parameters):
        """Penalised value and its gradient: two matrix products."""
        latest = self._evaluate(parameters)
        return latest.value, latest.gradient.copy()

    def _evaluate(self, parameters):
        """Value, gradient and residuals, which are stored until parameters change."""
        if self._latest is not None and np.array_equal(self._latest.parameters, parameters):
            return self._latest
        couplings, field = self.unpacked(parameters)
        value, field_gradient = 0.0, np.zeros(self.n_units)
        coupling_gradient = np.zeros((self.n_units, self.n_units))
        small = self.rows.states.size <= 4 * SCORE_NUMBERS
        for block in [slice(None)] if small else self.row_blocks(at_once=_SHARED_BLOCKS):
            residuals, values = self.residuals(couplings, field, block)
            value += values.sum()
            field_gradient += np.ones(len(residuals)) @ residuals
            coupling_gradient += self._sum_of_products(self.rows.states[block], residuals)
        value -= self.penalty(parameters)
        gradient = self.packed(coupling_gradient + coupling_gradient.T, field_gradient)
        gradient -= self.ridge * parameters
        self._latest = _Evaluation(
            np.array(parameters), value, gradient, residuals if small else None
        )
        return self._latest

    def _residuals_at(self, parameters, rows):
        if self.rows.states.size <= 4 * SCORE_NUMBERS:
            return self._evaluate(parameters).residuals[rows]
        return self.residuals(*self.unpacked(parameters), rows)[0]

    # --- existence of the maximum ---------------------------------------------------------------

    def items(self, l1=0.0):
        """`Items` of the rows."""
        states, targets = self.rows.states, self.rows.own
        labels = np.where(states == 0, -1, states > 0)
        targets = labels if targets is states else np.where(targets == 0, -1, targets > 0)
        tables, free = [np.array([[-1.0], [1.0]])] * self.n_units, self.l2 == 0
        remedies = "solver='firth', more rows or fewer units"
        coupled, free = self.index[:, 1:] >= 0, (free, free and not l1)
        return Items(labels, targets, tables, tables, coupled, free, "units", remedies)

    def look(self, parameters):
        """Return the smallest residual w p_b, and whether all margins are positive."""
        smallest, largest = np.inf, 0.0
        for rows in self.row_blocks():
            present = self.rows.own[rows] != 0
            # 2 (1 - p) of each value, times its weight.
            residuals = abs(self._residuals_at(parameters, rows))
            smallest = min(smallest, residuals.min(initial=np.inf, where=present) / 2)
            largest = max(largest, (residuals / self.weights[rows, None]).max(initial=0.0))
        return smallest, largest < 1

    # --- second derivatives ---------------------------------------------------------------------

    def hessian(self, parameters):
        """Negative Hessian, penalty included: sums over rows of w_i s_ij z_i z_i', z = [1, x]."""
        if self._hessian is not None and np.array_equal(self._hessian[0], parameters):
            return self._hessian[1]
        roots, parts = np.sqrt(self.weighted_sech2(parameters)), [None] * self.n_units
        with_one = self._with_one()

        def add_rows(j):
            columns = np.flatnonzero(self.index[j] >= 0)
            total = np.zeros(2 * (len(columns),), order="F")
            for block in self.row_blocks():
                features = with_one[block, columns] * roots[block, j, None]
                total = blas.dsyrk(1.0, features.T, 1.0, total, lower=1, overwrite_c=1)
            parts[j] = self.index[j, columns], symmetrize(total)

        work = self.rows.states.size * self.n_units**2
        for_each(add_rows, range(self.n_units), workers_for(self.n_units, work, self.n_threads))
        hessian = np.diag(np.broadcast_to(self.ridge, self.n_parameters))
        for indices, part in parts:
            hessian[np.ix_(indices, indices)] += part
        if self.n_parameters <= MAX_NEWTON_PARAMETERS:
            hessian.flags.writeable = False
            self._hessian = np.array(parameters), hessian
        return hessian

    def _with_one(self):
        """The features [1, x] of all rows."""
        states = self.rows.states
        return np.hstack([np.ones((len(states), 1)), states])

    def weighted_sech2(self, parameters, rows=slice(None)):
        """weight * sech^2 eta of rows, (n_rows, n_units)."""
        residuals = abs(self._residuals_at(parameters, rows))
        # With u = |x - tanh eta| this is u (2 - u).
        sech2 = residuals / self.weights[rows, None]
        np.subtract(2, sech2, out=sech2)
        sech2 *= residuals
        return sech2

    def leverages(self, inverse):
        """z_ij' inverse z_ij of the features of eta_ij, (n_rows, n_units)."""
        with_one, out = self._with_one(), np.empty(self.rows.states.shape)
        for j in range(self.n_units):
            small = self.index[j] >= 0
            features, indices = with_one[:, small], self.index[j][small]
            out[:, j] = ((features @ inverse[np.ix_(indices, indices)]) * features).sum(1)
        return out

    # --- scores ---------------------------------------------------------------------------------

    def _factored_residuals(self, parameters, rows, factors):
        """States of rows, and their residuals without weights, times factors."""
        residuals = self._residuals_at(parameters, rows)
        return self.rows.states[rows], residuals * (factors / self.weights[rows])[:, None]

    def score_products(self, parameters, vectors, rows, factors):
        """Inner products of rows' scores, times factors, with vectors, (n_rows, n_vectors)."""
        states, residuals = self._factored_residuals(parameters, rows, factors)
        out = np.empty((len(states), len(vectors)))
        for v, vector in enumerate(vectors):
            couplings, field = self.unpacked(vector)
            out[:, v] = ((states @ couplings + field) * residuals).sum(1)
        return out

    def scores(self, parameters, rows, factors):
        """Scores of rows, each times a factor, (n_rows, n_parameters)."""
        states, residuals = self._factored_residuals(parameters, rows, factors)
        d = self.n_units
        scores = np.empty((len(states), d + d * (d - 1) // 2))
        n_tasks = -(-len(states) // pl_kernels.ROWS_AT_A_TIME)
        n_workers = workers_for(n_tasks, 2 * scores.size, self.n_threads)
        in_parallel(
            pl_kernels.scores, (states, residuals, np.zeros(1, np.int64), scores), n_workers
        )
        if self.edges is None:
            return scores
        first, second = self.pairs
        place = first * (2 * d - first - 1) // 2 + second - first - 1
        return scores[:, np.concatenate([np.arange(d), d + place])]

    # --- other rows, weights and edges ----------------------------------------------------------

    def log_joint(self, parameters):
        """Logarithms of the probabilities of rows, but for a constant."""
        couplings, field = self.unpacked(parameters)
        states = self.rows.states
        return states @ field + ((states @ couplings) * states).sum(1) / 2

    def statistics(self, rows):
        """Derivatives of `log_joint` of rows, (n_rows, n_parameters)."""
        states, (first, second) = self.rows.states[rows], self.pairs
        return np.hstack([states, states[:, first] * states[:, second]])

    def predictions(self, parameters):
        """Rows, their means given all others, and what the more probable value hits."""
        couplings, field = self.unpacked(parameters)
        states = self.rows.states
        means = np.tanh(states @ couplings + field)
        mean = self.mean if self.rows.targets is None else (self.term_weights() * states).sum(0)
        return states, means, (1 + np.sign(states * means)) / 2, (1 + abs(mean)) / 2

    def prediction_gradients(self, parameters, factors):
        """Derivatives of the sums over rows of factors times means, (n_units, n_parameters)."""
        states, means, *_ = self.predictions(parameters)
        slopes = factors * (1 - means**2)
        by_field, by_couplings = slopes.sum(0), slopes.T @ states
        out = np.zeros((self.n_units, self.n_parameters))
        for j in range(self.n_units):
            out[j, j] = by_field[j]
            neighbours = np.flatnonzero(self.index[j][1:] >= 0)
            out[j, self.index[j][1 + neighbours]] = by_couplings[j, neighbours]
        return out

    def reweighted(self, weights):
        """The objective of these rows with other weights; rows of weight 0 are left out."""
        return PseudoLikelihood(self.rows.weighted(weights), self.l2, self.n_threads, self.edges)

    def joined(self, other):
        """The objective of the rows of two objectives."""
        return PseudoLikelihood(self.rows.joined(other.rows), self.l2, self.n_threads, self.edges)

    def restricted(self, edges):
        """The objective with the couplings of these edges alone, (n_edges, 2)."""
        return PseudoLikelihood(self.rows, self.l2, self.n_threads, edges)
