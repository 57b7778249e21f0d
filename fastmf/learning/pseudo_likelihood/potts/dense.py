"""The log-pseudo-likelihood of a Potts machine as a function of all fields and couplings.

It is used for Newton's method, standard errors and tests, which need matrices of all parameters.
The negative Hessian H is singular along changes of gauge. The scores of the rows have no component
along these, and the sandwich with the pseudo-inverse of H is the covariance of estimates in the
gauge in which these components are zero. Other gauges are linear maps of the parameters.
"""

import copy
from itertools import pairwise

import numpy as np
from scipy import linalg, sparse

from fastmf._threads.workers import computed_once
from fastmf.learning.pseudo_likelihood.existence import Items
from fastmf.learning.pseudo_likelihood.fit import MAX_HESSIAN_PARAMETERS, TOLERANCE_ROWS
from fastmf.learning.pseudo_likelihood.graph import coupled_units
from fastmf.learning.pseudo_likelihood.pairwise import PairwiseLikelihood
from fastmf.learning.pseudo_likelihood.potts.couplings import one_hot
from fastmf.models._gauge import PositionStates, in_gauge


class DenseObjective(PairwiseLikelihood):
    """Mean log-pseudo-likelihood as a function of flat fields and couplings of states u < v.

    `labels` (n_rows, n_groups) are negative if absent; `targets` are -1 for conditional
    probabilities that are omitted. If not `symmetric`, only `items` may be used.
    """

    singular = True

    def __init__(self, labels, weights, sizes, l2=0.0, l2_field=0.0, edges=None, targets=None,
                 symmetric=True):  # fmt: skip
        self.symmetric = symmetric
        self.labels, self.positions, self.n_threads = labels, PositionStates(sizes), None
        self.options = float(l2), float(l2_field), edges, targets
        self.targets, self.incomplete = labels if targets is None else targets, targets is not None
        self.total = float(weights.sum())
        self.weights, self._latest = weights / self.total, None
        self.position = self.positions.position
        self.n_units, self.n_fields = len(self.positions.sizes), len(self.position)
        self.n_columns, self.width = self.n_fields, int(self.positions.sizes.max())
        self.coupled = coupled_units(edges, self.n_units)
        n_pairs = self.positions.sizes @ self.coupled @ self.positions.sizes // 2
        self.n_parameters = self.n_fields + int(n_pairs)

    @computed_once
    def pairs(self):
        """The coupled pairs of states u < v."""
        return np.nonzero(np.triu(self.coupled[self.position[:, None], self.position]))

    @computed_once
    def index(self):
        """Index of the coupling of each pair of states; on the diagonal, of fields."""
        index = np.zeros((self.n_fields, self.n_fields), np.int64)
        index[self.pairs] = self.n_fields + np.arange(len(self.pairs[0]))
        index += index.T
        index[np.diag_indices(self.n_fields)] = np.arange(self.n_fields)
        return index

    @computed_once
    def ridge(self):
        """Ridge penalties of all parameters."""
        l2, l2_field, *_ = self.options
        return np.repeat([l2_field, l2], [self.n_fields, self.n_parameters - self.n_fields])

    def check_size(self):
        """Raise if there are too many parameters for matrices of all parameters."""
        if self.n_parameters > MAX_HESSIAN_PARAMETERS:
            raise ValueError(
                "Newton's method, standard errors and incomplete rows are for up to "
                f"{MAX_HESSIAN_PARAMETERS} parameters, couplings of pairs of states and fields, "
                f"got {self.n_parameters}: take fewer positions, states or edges, or 'lbfgs'."
            )

    def reweighted(self, weights):
        """Return the objective with other weights of the rows."""
        result = copy.copy(self)
        result.total = float(weights.sum())
        result.weights, result._latest = weights / result.total, None
        return result

    def independent(self):
        """Return the parameters of uncoupled positions, with pseudocounts of one row."""
        counts = TOLERANCE_ROWS * (self.weights @ one_hot(self.labels, self.positions.sizes))
        field = self.positions.zero_sum(np.log(counts + 1))
        return np.append(field, np.zeros(len(self.pairs[0])))

    def _value_and_derivatives(self, parameters):
        """Compute the value, half its derivatives by couplings, and derivatives by fields."""
        couplings, field = self.unpacked(parameters)

        def sums(rows):
            w, (x, targets, present) = self.weights[rows], self._one_hot(rows)
            logs = self.positions.log_softmax(x @ couplings + field)
            residuals = w[:, None] * (targets - present * np.exp(logs))
            return w @ (targets * logs).sum(1), x.T @ residuals, residuals.sum(0)

        return self.sums_over_blocks(sums)

    def contrasts(self):
        """Return orthonormal gauge-invariant directions of couplings, their indices, and pairs."""
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
        indices_by_pair = [np.arange(a, b) for a, b in pairwise(offsets)]
        return matrix, indices_by_pair, pairs

    def indices_of(self, first, second):
        """Return the indices of couplings of pairs of positions, or of fields (equal indices)."""
        selected = np.zeros((self.n_units, self.n_units), bool)
        selected[first, second] = selected[second, first] = True
        u, v = self.pairs
        fields = selected.diagonal()[self.position]
        return np.flatnonzero(np.append(fields, selected[self.position[u], self.position[v]]))

    def items(self, l1=0.0):
        """Return the `Items` of the rows, in the zero-sum gauge if probabilities allow it."""
        l2, l2_field, *_ = self.options
        of_size = {q: linalg.helmert(int(q)).T for q in set(self.positions.sizes)}
        contrasts = [of_size[q] for q in self.positions.sizes]
        in_gauge = (not l2_field) & (self.labels >= 0).all(0)
        scores = [contrasts[i] if in_gauge[i] else np.eye(len(c)) for i, c in enumerate(contrasts)]
        labels, targets = self.labels.astype(np.int64), self.targets.astype(np.int64)
        pairs = zip(scores, labels.T, strict=True)
        features = np.hstack([np.vstack([table, 0 * table[:1]])[column] for table, column in pairs])
        return Items(labels, targets, features, contrasts, scores, self.coupled,
                     (not l2_field, not l2), "positions", "or merge rare states",
                     self.symmetric)  # fmt: skip

    def look(self, parameters):
        """Return the smallest residual w p_b of each row, and whether all margins are positive."""
        smallest, separates, unpacked = np.empty(len(self.weights)), True, self.unpacked(parameters)
        for rows in self.blocks():
            (_, observed, present), p = self._one_hot(rows), self._conditionals(unpacked, rows)[1]
            neighbours, observed = present & (observed == 0), observed > 0
            best = np.maximum.reduceat(np.where(neighbours, p, 0), self.positions.first, axis=1)
            separates = separates and bool((p > best[:, self.position])[observed].all())
            smallest[rows] = self.weights[rows] * p.min(1, initial=1.0, where=neighbours)
        return smallest, separates

    def _one_hot(self, rows):
        """Return one-hot rows and targets, and a mask of the states of positions with targets."""
        labels, targets, sizes = self.labels[rows], self.targets[rows], self.positions.sizes
        x = one_hot(labels, sizes).toarray()
        states = x if self.targets is self.labels else one_hot(targets, sizes).toarray()
        return x, states, (targets >= 0)[:, self.position]

    def _conditionals(self, unpacked, rows):
        """Return one-hot rows and their conditional probabilities."""
        (couplings, field), (x, _, present) = unpacked, self._one_hot(rows)
        return x, self.positions.softmax(x @ couplings + field) * present

    def _states(self, rows):
        return self._one_hot(rows)[0]

    _field_statistics = _states

    def _row_derivatives(self, parameters, rows):
        p = self._conditionals(self.unpacked(parameters), rows)[1]
        residuals = self._one_hot(rows)[1] - p
        return residuals, residuals

    def hessian(self, parameters):
        """Compute the negative Hessian with penalties, (n_parameters, n_parameters)."""
        self.check_size()
        hessian, unpacked = np.diag(self.ridge), self.unpacked(parameters)
        for rows in self.blocks():
            x, p = self._conditionals(unpacked, rows)
            for i in range(self.n_units):
                self._add_curvature(hessian, i, x, self.weights[rows], p)
        return hessian

    def _add_curvature(self, hessian, i, x, weights, p):
        """Add the curvature of the multinomial regression of position i on its neighbours."""
        states = np.flatnonzero(self.position == i)
        neighbours = np.flatnonzero(self.coupled[i, self.position])
        features = np.hstack([np.ones((len(x), 1)), x[:, neighbours]])
        indices = [np.append(a, self.index[a, neighbours]) for a in states]
        for k, a in enumerate(states):
            for l, b in enumerate(states):
                curvature = weights * p[:, a] * ((a == b) - p[:, b])
                block = features.T @ (curvature[:, None] * features)
                hessian[np.ix_(indices[k], indices[l])] += block

    def errors_in_gauge(self, covariance, gauge):
        """Compute standard errors of couplings and fields in a gauge; None: as estimated."""
        values, vectors = np.linalg.eigh(covariance)
        factor = (vectors * np.sqrt(np.maximum(values, 0))).T
        J_var, h_var = np.zeros((self.n_fields, self.n_fields)), np.zeros(self.n_fields)
        for start in range(0, len(factor), 64):
            couplings, field = self.unpacked(factor[start : start + 64])
            if gauge is not None:
                couplings, field = in_gauge(couplings, field, self.positions.sizes, gauge)
            J_var += np.square(couplings).sum(0)
            h_var += np.square(field).sum(0)
        J_var[self.position[:, None] == self.position] = 0
        return np.sqrt(J_var), np.sqrt(h_var)
