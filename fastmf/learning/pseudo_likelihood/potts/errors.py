"""Standard errors and tests of Potts machines by the sandwich (Godambe) covariance.

All couplings and fields are parameters, so that the negative Hessian H of the log-pseudo-likelihood
is singular along changes of gauge. The scores g_s of the rows have no component there, and the
covariance of estimates, in the gauge where such changes are zero, is

    H^+ G H^+,   G = sum_s w_s^2 (g_s - g)(g_s - g)',   g the weighted mean of g_s

A gauge is a linear map of parameters, and so of their errors. The composite likelihood ratio of a
machine with some couplings and one without is distributed as a sum of chi-squared variables times
the eigenvalues of G^1/2 (H^+ - H_0^+) G^1/2, with H_0 the part of H of what both have (Kent 1982).
"""

import numpy as np

from fastmf.learning.pseudo_likelihood.chi_squares import survival
from fastmf.models._gauge import in_gauge

# Parameters, couplings of all pairs of states and fields, up to which matrices of them are made.
MAX_PARAMETERS = 4000
# Eigenvalues of H below this fraction of the largest belong to gauge directions.
_MIN_EIGENVALUE = 1e-10
# Weights of chi-squared variables below this fraction of the largest are square roots of rounding
# errors.
_MIN_WEIGHT = 1e-6
# Numbers in a block of rows.
_BLOCK_NUMBERS = 1 << 21


class Sandwich:
    """Second derivatives and scores at an estimate.

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

    Raises
    ------
    ValueError
        If there are more than `MAX_PARAMETERS` parameters.
    """

    def __init__(self, labels, weights, couplings, field, sizes, *, l2=0.0, l2_field=0.0):
        self.labels, self.weights, self.sizes = labels, weights, np.asarray(sizes)
        self.first = np.cumsum(self.sizes) - self.sizes
        self.site = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.n_states = len(self.site)
        upper = np.triu(self.site[:, None] != self.site, 1)
        self.pairs = np.nonzero(upper)
        self.n_parameters = self.n_states + len(self.pairs[0])
        if self.n_parameters > MAX_PARAMETERS:
            raise ValueError(
                f"standard errors are for up to {MAX_PARAMETERS} parameters, couplings of all "
                f"pairs of states and fields, got {self.n_parameters}: take fewer sites or states."
            )
        # Of each pair of states, its parameter; of a state and itself, the field.
        self.index = np.zeros((self.n_states, self.n_states), np.int64)
        self.index[self.pairs] = self.n_states + np.arange(len(self.pairs[0]))
        self.index += self.index.T
        self.index[np.diag_indices(self.n_states)] = np.arange(self.n_states)
        total = weights.sum()
        ridge = np.full(self.n_parameters, total * l2)
        ridge[: self.n_states] = total * l2_field
        self._accumulate(couplings, field, ridge)

    def _accumulate(self, couplings, field, ridge):
        n = self.n_parameters
        self.hessian, second, mean = np.diag(ridge), np.zeros((n, n)), np.zeros(n)
        weighted = np.zeros(n)
        for x, one_hot, w, p in self._blocks(couplings, field):
            for i in range(len(self.sizes)):
                self._add_curvature(i, one_hot, w * (x[:, i] >= 0), p)
            scores = self._scores(one_hot, p)
            second += scores.T @ (w[:, None] ** 2 * scores)
            mean += w @ scores
            weighted += w**2 @ scores
        mean /= self.weights.sum()
        cross = np.outer(weighted, mean)
        self.mean_score = mean
        self.scores_covariance = (
            second - cross - cross.T + (self.weights**2).sum() * np.outer(mean, mean)
        )
        self.inverse = _pseudo_inverse(self.hessian)

    def _blocks(self, couplings, field):
        """Labels, one-hot rows, weights and conditional probabilities of blocks of rows."""
        size = max(16, _BLOCK_NUMBERS // self.n_parameters)
        for start in range(0, len(self.labels), size):
            x = self.labels[start : start + size]
            rows, columns = np.nonzero(x >= 0)
            one_hot = np.zeros((len(x), self.n_states))
            one_hot[rows, self.first[columns] + x[rows, columns]] = 1
            eta = one_hot @ couplings + field
            eta -= np.maximum.reduceat(eta, self.first, axis=1)[:, self.site]
            p = np.exp(eta)
            p /= np.add.reduceat(p, self.first, axis=1)[:, self.site]
            p *= (x >= 0)[:, self.site]
            yield x, one_hot, self.weights[start : start + size], p

    def _scores(self, one_hot, p):
        """Derivatives of the rows' log-pseudo-likelihoods, (n_rows, n_parameters)."""
        r = one_hot - p
        u, v = self.pairs
        return np.hstack([r, one_hot[:, u] * r[:, v] + r[:, u] * one_hot[:, v]])

    def _add_curvature(self, i, one_hot, weights, p):
        """Add the curvature of the multinomial regression of site i on the others."""
        own = np.arange(self.first[i], self.first[i] + self.sizes[i])
        others = np.flatnonzero(self.site != i)
        features = np.hstack([np.ones((len(one_hot), 1)), one_hot[:, others]])
        indices = [np.append(a, self.index[a, others]) for a in own]
        for k, a in enumerate(own):
            for l, b in enumerate(own):
                curvature = weights * p[:, a] * ((a == b) - p[:, b])
                block = features.T @ (curvature[:, None] * features)
                self.hessian[np.ix_(indices[k], indices[l])] += block

    # --- errors ---------------------------------------------------------------------------------

    def covariance(self):
        """Covariance of all parameters: fields, then couplings of pairs of states u < v."""
        return self.inverse @ self.scores_covariance @ self.inverse

    def unpacked(self, parameters):
        """Couplings (..., n_states, n_states) and fields of vectors of parameters."""
        couplings = np.zeros((*parameters.shape[:-1], self.n_states, self.n_states))
        u, v = self.pairs
        couplings[..., u, v] = couplings[..., v, u] = parameters[..., self.n_states :]
        return couplings, parameters[..., : self.n_states]

    def standard_errors(self, gauge):
        """Standard errors of couplings and fields in a gauge, or (None) as estimated."""
        values, vectors = np.linalg.eigh(self.covariance())
        factor = (vectors * np.sqrt(np.maximum(values, 0))).T
        of_couplings = np.zeros((self.n_states, self.n_states))
        of_field = np.zeros(self.n_states)
        for start in range(0, len(factor), 64):
            couplings, field = self.unpacked(factor[start : start + 64])
            if gauge is not None:
                couplings, field = in_gauge(couplings, field, self.sizes, gauge)
            of_couplings += np.square(couplings).sum(0)
            of_field += np.square(field).sum(0)
        of_couplings[self.site[:, None] == self.site] = 0
        return np.sqrt(of_couplings), np.sqrt(of_field)

    def ratio_test(self, statistic, pairs):
        """p-value and weights of twice a difference of log-pseudo-likelihoods.

        Parameters
        ----------
        statistic : float
        pairs : int array of shape (n_pairs, 2)
            Sites whose couplings the smaller machine lacks.
        """
        lacking = np.zeros((len(self.sizes),) * 2, bool)
        lacking[pairs[:, 0], pairs[:, 1]] = lacking[pairs[:, 1], pairs[:, 0]] = True
        u, v = self.pairs
        kept = np.append(np.ones(self.n_states, bool), ~lacking[self.site[u], self.site[v]])
        difference = self.inverse.copy()
        difference[np.ix_(kept, kept)] -= _pseudo_inverse(self.hessian[np.ix_(kept, kept)])
        values, vectors = np.linalg.eigh(self.scores_covariance)
        root = vectors * np.sqrt(np.maximum(values, 0))
        weights = np.linalg.eigvalsh(root.T @ difference @ root)[::-1]
        weights = weights[weights > _MIN_WEIGHT * max(weights[0], 0)]
        p_value = survival(statistic, weights) if len(weights) else 1.0
        return p_value, weights


def _pseudo_inverse(matrix):
    values, vectors = np.linalg.eigh(matrix)
    kept = values > _MIN_EIGENVALUE * values[-1]
    return (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
