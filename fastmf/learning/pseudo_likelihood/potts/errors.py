"""Standard errors and tests of Potts machines by the sandwich (Godambe) covariance.

All couplings and fields are parameters, so that the negative Hessian H of the log-pseudo-likelihood
is singular along changes of gauge. The scores of the rows have no component there, and the sandwich
with the pseudo-inverse of H is the covariance of estimates in the gauge where such changes are
zero. Another gauge is a linear map of parameters, and so of their errors.
"""

import copy
from itertools import pairwise

import numpy as np
from scipy import linalg, sparse

from fastmf._threads.workers import computed_once
from fastmf.learning.pseudo_likelihood.fit import CompositeLikelihood
from fastmf.learning.pseudo_likelihood.godambe import Godambe
from fastmf.learning.pseudo_likelihood.missing import IncompleteGodambe
from fastmf.learning.pseudo_likelihood.potts.couplings import DenseCouplings, one_hot
from fastmf.learning.pseudo_likelihood.potts.existence import items_of, looked_at
from fastmf.models._gauge import PositionStates, in_gauge

# Parameters, couplings of all pairs of states and fields, up to which matrices of them are made.
MAX_PARAMETERS = 4000
# Ridge of Newton's method, of the largest curvature: rounding errors of derivatives, divided by it,
# are below the tolerance of parameters.
_DAMPING = 1e-6
# Numbers in a block of rows.
_SANDWICH_NUMBERS = 1 << 21


class DenseObjective(CompositeLikelihood):
    """Mean log-pseudo-likelihood as a function of flat fields and couplings of states u < v.

    Parameters
    ----------
    labels : int array of shape (n_rows, n_groups)
        Negative if absent.
    weights : array of shape (n_rows,)
    sizes : int array of shape (n_groups,)
    l2, l2_field : float, default 0.0
        Penalties, per unit of weight.
    edges : int array of shape (n_edges, 2), optional
        Pairs of positions that are coupled; default all.
    targets : int array of shape (n_rows, n_groups), optional
        Labels of the positions whose conditional probabilities are in the sum, and -1 of all
        others; default `labels`.

    Raises
    ------
    ValueError
        If there are more than `MAX_PARAMETERS` parameters.
    """

    singular = True

    def __init__(self, labels, weights, sizes, l2=0.0, l2_field=0.0, edges=None, targets=None):
        self.labels, self.positions, self.n_threads = labels, PositionStates(sizes), None
        self.options = float(l2), float(l2_field), edges, targets
        self.targets = labels if targets is None else targets
        self.total = float(weights.sum())
        self.weights = weights / self.total
        self.position = self.positions.position
        self.n_units, self.n_fields = len(self.positions.sizes), len(self.position)
        self.coupled = ~np.eye(self.n_units, dtype=bool)
        if edges is not None:
            self.coupled[...] = False
            self.coupled[tuple(edges.T)] = self.coupled[tuple(edges.T[::-1])] = True
        self.pairs = np.nonzero(np.triu(self.coupled[self.position[:, None], self.position]))
        self.n_parameters = self.n_fields + len(self.pairs[0])
        if self.n_parameters > MAX_PARAMETERS:
            raise ValueError(
                f"standard errors and missing='em' are for up to {MAX_PARAMETERS} parameters, "
                f"couplings of pairs of states and fields, got {self.n_parameters}: take fewer "
                "positions, states or edges."
            )
        # Parameter of each pair of states; the field of a state and itself.
        self.index = np.zeros((self.n_fields, self.n_fields), np.int64)
        self.index[self.pairs] = self.n_fields + np.arange(len(self.pairs[0]))
        self.index += self.index.T
        self.index[np.diag_indices(self.n_fields)] = np.arange(self.n_fields)
        self.ridge = np.full(self.n_parameters, float(l2))
        self.ridge[: self.n_fields] = l2_field

    def unpacked(self, parameters):
        """Couplings (..., n_states, n_states) and fields of vectors of parameters."""
        couplings = np.zeros((*parameters.shape[:-1], self.n_fields, self.n_fields))
        u, v = self.pairs
        couplings[..., u, v] = couplings[..., v, u] = parameters[..., self.n_fields :]
        return couplings, parameters[..., : self.n_fields]

    def packed(self, couplings, field):
        """Vector of parameters."""
        return np.append(field, couplings[self.pairs])

    def reweighted(self, weights):
        """The objective of these rows with other weights."""
        other = copy.copy(self)
        other.total = float(weights.sum())
        other.weights = weights / other.total
        return other

    def independent(self):
        """Parameters of uncoupled positions, with a row more for each state."""
        counts = self.total * (self.weights @ one_hot(self.labels, self.positions.sizes))
        field = self.positions.zero_sum(np.log(counts + 1))
        return np.append(field, np.zeros(len(self.pairs[0])))

    def value_and_gradient(self, parameters):
        """Penalised value and its gradient."""
        couplings, field = self.unpacked(parameters)
        value, gradient = -self.penalty(parameters), -self.ridge * parameters
        for rows in self._blocks():
            w, (x, targets, present) = self.weights[rows], self._one_hot(rows)
            logs = self.positions.log_softmax(x @ couplings + field)
            value += w @ (targets * logs).sum(1)
            residuals = w[:, None] * (targets - present * np.exp(logs))
            products = x.T @ residuals
            gradient += self.packed(products + products.T, residuals.sum(0))
        return float(value), gradient

    def log_joint(self, parameters):
        """Logarithms of the probabilities of complete rows, but for a constant."""
        couplings, field = self.unpacked(parameters)
        x = one_hot(self.labels, self.positions.sizes)
        return x @ field + x.multiply(x @ couplings).sum(1) / 2

    def statistics(self, rows):
        """Derivatives of `log_joint` of rows, (n_rows, n_parameters)."""
        x, (u, v) = one_hot(self.labels[rows], self.positions.sizes).toarray(), self.pairs
        return np.hstack([x, x[:, u] * x[:, v]])

    def contrasts(self):
        """Directions of couplings that no change of gauge moves, orthonormal, pair by pair."""
        pairs, offsets = np.nonzero(np.triu(self.coupled)), [0]
        rows, columns, values = [], [], []
        helmert = [linalg.helmert(int(q)) for q in self.positions.sizes]
        states = [np.flatnonzero(self.position == i) for i in range(self.n_units)]
        for i, j in zip(*pairs, strict=True):
            block = np.kron(helmert[i], helmert[j])
            indices = self.index[np.ix_(states[i], states[j])].ravel()
            rows.append(offsets[-1] + np.repeat(np.arange(len(block)), len(indices)))
            columns.append(np.tile(indices, len(block)))
            values.append(block.ravel())
            offsets.append(offsets[-1] + len(block))
        entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
        matrix = sparse.coo_array(entries, shape=(offsets[-1], self.n_parameters)).tocsr()
        of_pairs = [np.arange(a, b) for a, b in pairwise(offsets)]
        return matrix, of_pairs, pairs

    def field_contrasts(self):
        """The same of fields: directions in which those of a position add up to zero."""
        blocks = [linalg.helmert(int(q)) for q in self.positions.sizes]
        of_fields = linalg.block_diag(*blocks)
        return np.hstack([of_fields, np.zeros((len(of_fields), len(self.pairs[0])))])

    def indices_of(self, first, second):
        """Parameters of pairs of positions: couplings of all states, or fields of one.

        One number -1 for each pair that is not coupled, in the place of its parameters.
        """
        absent = ~self.coupled[first, second] & (first != second)
        if absent.any():
            return np.where(absent, -1, 0)
        wanted = np.zeros((self.n_units, self.n_units), bool)
        wanted[first, second] = wanted[second, first] = True
        u, v = self.pairs
        fields = wanted.diagonal()[self.position]
        return np.flatnonzero(np.append(fields, wanted[self.position[u], self.position[v]]))

    def items(self, l1=0.0):
        """`Items` of the rows."""
        l2, l2_field, *_ = self.options
        sizes = self.positions.sizes
        return items_of(self.labels, self.targets, sizes, self.coupled, (not l2_field, not l2))

    def look(self, parameters):
        """`Look` at parameters."""
        couplings, field = self.unpacked(parameters)
        rows, sizes = (self.labels, self.targets, self.weights), self.positions.sizes
        return looked_at(rows, sizes, self.items(), DenseCouplings(couplings, sizes), field)

    @computed_once
    def _tables(self):
        return self._tables_of(slice(None))

    def _tables_of(self, rows):
        labels, targets, sizes = self.labels[rows], self.targets[rows], self.positions.sizes
        x = one_hot(labels, sizes).toarray()
        own = x if self.targets is self.labels else one_hot(targets, sizes).toarray()
        return x, own, (targets >= 0)[:, self.position]

    def _one_hot(self, rows):
        """Rows and their targets as ones and zeros, and which states belong to a target."""
        if len(self.labels) * self.n_fields > _SANDWICH_NUMBERS:
            return self._tables_of(rows)
        return tuple(table[rows] for table in self._tables)

    def _conditionals(self, parameters, rows):
        """One-hot rows and conditional probabilities of rows."""
        couplings, field = self.unpacked(parameters)
        x, _, present = self._one_hot(rows)
        return x, self.positions.softmax(x @ couplings + field) * present

    def _residuals(self, parameters, rows):
        """One-hot rows and residuals of rows, without weights."""
        x, p = self._conditionals(parameters, rows)
        return x, self._one_hot(rows)[1] - p

    def _blocks(self):
        size = max(16, _SANDWICH_NUMBERS // self.n_parameters)
        return [slice(start, start + size) for start in range(0, len(self.labels), size)]

    def scores(self, parameters, rows, factors):
        """Scores of rows, each times a factor, (n_rows, n_parameters)."""
        x, r = self._residuals(parameters, rows)
        r = r * factors[:, None]
        u, v = self.pairs
        return np.hstack([r, x[:, u] * r[:, v] + r[:, u] * x[:, v]])

    def mean_score(self, parameters):
        """Mean of the scores of all rows."""
        return sum(self.scores(parameters, rows, self.weights[rows]).sum(0)
                   for rows in self._blocks())  # fmt: skip

    def hessian(self, parameters):
        """Negative Hessian, penalties included, (n_parameters, n_parameters)."""
        hessian = np.diag(self.ridge)
        for rows in self._blocks():
            x, p = self._conditionals(parameters, rows)
            for i in range(self.n_units):
                self._add_curvature(hessian, i, x, self.weights[rows], p)
        return hessian

    def _add_curvature(self, hessian, i, x, weights, p):
        """Add the curvature of the multinomial regression of position i on the others."""
        own, others = (
            np.flatnonzero(self.position == i),
            np.flatnonzero(self.coupled[i, self.position]),
        )
        features = np.hstack([np.ones((len(x), 1)), x[:, others]])
        indices = [np.append(a, self.index[a, others]) for a in own]
        for k, a in enumerate(own):
            for l, b in enumerate(own):
                curvature = weights * p[:, a] * ((a == b) - p[:, b])
                block = features.T @ (curvature[:, None] * features)
                hessian[np.ix_(indices[k], indices[l])] += block


class DampedObjective(DenseObjective):
    """The same with a little curvature along changes of gauge, so that Newton's steps have none."""

    def hessian(self, parameters):
        """Negative Hessian, (n_parameters, n_parameters), with a small ridge."""
        hessian = super().hessian(parameters)
        hessian[np.diag_indices_from(hessian)] += _DAMPING * hessian.diagonal().max()
        return hessian


class GaugeErrors(Godambe):
    """Godambe's information with a `DenseObjective`, with standard errors in a gauge."""

    def standard_errors(self, gauge):
        """Standard errors of couplings and fields in a gauge, or (None) as estimated."""
        objective = self.objective
        values, vectors = np.linalg.eigh(self.covariance())
        factor = (vectors * np.sqrt(np.maximum(values, 0))).T
        of_couplings = np.zeros((objective.n_fields, objective.n_fields))
        of_field = np.zeros(objective.n_fields)
        for start in range(0, len(factor), 64):
            couplings, field = objective.unpacked(factor[start : start + 64])
            if gauge is not None:
                couplings, field = in_gauge(couplings, field, objective.positions.sizes, gauge)
            of_couplings += np.square(couplings).sum(0)
            of_field += np.square(field).sum(0)
        of_couplings[objective.position[:, None] == objective.position] = 0
        return np.sqrt(of_couplings), np.sqrt(of_field)


class IncompleteSandwich(GaugeErrors, IncompleteGodambe):
    """The same of incomplete rows, whose expected scores are multiplied by their weights.

    Parameters
    ----------
    completions : Completions
    couplings, field, sizes, l2, l2_field, edges
        As in `Sandwich`.
    """

    def __init__(self, completions, couplings, field, sizes, **options):
        states, weights = completions.states, completions.weights
        objective = DenseObjective(states, weights, sizes, **options)
        sampling = sparse.diags_array(completions.row_weights / objective.total)
        super().__init__(objective, objective.packed(couplings, field), completions, sampling)


class Sandwich(GaugeErrors):
    """Godambe's information of an estimate, in which scores of rows are multiplied by weights.

    Parameters
    ----------
    labels : int array of shape (n_rows, n_groups)
        Negative if absent; as they were observed, not merged.
    weights : array of shape (n_rows,)
    couplings : array of shape (n_states, n_states)
    field : array of shape (n_states,)
    sizes : int array of shape (n_groups,)
    l2, l2_field : float
        Penalties of the estimate, per unit of weight.
    edges : int array of shape (n_edges, 2), optional
        Pairs of positions that are coupled; default all.
    targets : int array of shape (n_rows, n_groups), optional
        As in `DenseObjective`.

    Raises
    ------
    ValueError
        If there are more than `MAX_PARAMETERS` parameters.
    """

    def __init__(self, labels, weights, couplings, field, sizes, **options):
        objective = DenseObjective(labels, weights, sizes, **options)
        parameters = objective.packed(couplings, field)
        super().__init__(objective, parameters, np.square(objective.weights))
