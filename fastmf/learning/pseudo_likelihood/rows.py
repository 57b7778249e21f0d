"""Weighted rows: merging, sampling units, available cases, and completions of missing values.

*Available cases.* The conditional probability of a unit depends only on its neighbours in the
graph. Therefore, missing values do not occur in

    sum_r w_r sum_i a_ri ln p(x_ri | neighbours of i in row r)

where a_ri = 1 if unit i and all its neighbours are observed in row r, and 0 otherwise. Its score
has mean zero if values are missing completely at random. If all pairs of units may be coupled, only
complete rows contribute.

*Expectation maximisation.* Each incomplete row is replaced by all of its completions, weighted by
their probabilities given the observed values. At the estimate the expected score of the
pseudo-likelihood is zero,

    psi(theta) = sum_r w_r E[s(x) | observed values of r; theta] = 0,

which is an unbiased estimating equation if values are missing at random, like the one of complete
rows. It is solved by repeatedly maximising the pseudo-likelihood of the completions, with their
probabilities at the last estimate. With the statistics T, d ln p(x) / d theta = T - E T,

    -d psi = H - sum_r w_r Cov(s, T | observed values of r),

whose inverse replaces H^-1 in the sandwich; it is not symmetric.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy import sparse

from fastmf._common.rows import BLOCK_ENTRIES
from fastmf.learning.pseudo_likelihood.fit import MAX_ITER, Fit


def distinct(labels, weights):
    """Return distinct rows of positive weight, their weights, and the index of each row."""
    present, members = np.flatnonzero(weights > 0), np.full(len(weights), -1)
    # Encode as many columns as fit in 63 bits as digits of one number.
    base = int(labels.max(initial=1)) - int(labels.min(initial=0)) + 1
    width = int(62 / np.log2(base))
    parts = (labels[:, j : j + width] for j in range(0, labels.shape[1], width))
    keys = np.stack([part @ base ** np.arange(part.shape[1])[::-1] for part in parts], 1)[present]
    keys = keys.view(np.dtype((np.void, keys.strides[0])) if keys.shape[1] > 1 else keys.dtype)
    keys, inverse = np.unique(keys[:, 0], return_inverse=True)
    first = np.empty(len(keys), int)
    first[inverse[::-1]] = present[::-1]
    order = first.argsort()  # the order of codes would change the folds of cross-validation
    members[present] = inverse = order.argsort()[inverse]
    return labels[first[order]], np.bincount(inverse, weights[present]), members


def sampling(members, weights, clusters=None):
    """Return the sampling weights for `PairwiseLikelihood.score_covariance`."""
    present = members >= 0
    members, share = members[present], (weights / weights.sum())[present]
    n = int(members.max(initial=-1)) + 1
    if clusters is None:
        return np.bincount(members, share**2, n)
    labels, cluster = np.unique(np.asarray(clusters)[present], return_inverse=True)
    return sparse.coo_array((share, (cluster, members)), shape=(len(labels), n)).tocsr()


def available(labels, edges=None):
    """Return a mask of the terms of each row without missing values; one column without edges."""
    seen = labels >= 0
    if edges is None:
        return seen.all(1, keepdims=True)
    terms = seen.copy()
    for i, j in edges:
        terms[:, i] &= seen[:, j]
        terms[:, j] &= seen[:, i]
    return terms


def target_labels(labels, edges):
    """Return the labels of available terms, and -1 for all other terms."""
    return np.where(available(labels, edges), labels, -1)


# Largest number of completions of a row.
MAX_OF_A_ROW = 4096
# Probability below which completions do not affect the existence of a maximum: without a maximum,
# completions that contradict the separation become ever less probable.
NEGLIGIBLE_PROBABILITY = 1e-6


class Completions(NamedTuple):
    """The possible completions of incomplete rows."""

    states: np.ndarray  # int (n_states, n_units): distinct completed rows
    # sparse (n_rows, n_states): probabilities of completions given the observed values of each row
    share: sparse.csr_array
    row_weights: np.ndarray  # (n_rows,): weights of the rows

    @classmethod
    def of(cls, labels, weights, sizes, seen_only=False):
        """Make all completions of rows, with equal probabilities."""
        values = [np.arange(size) for size in sizes]
        if seen_only:
            values = [np.unique(x[x >= 0]) if (x >= 0).any() else part
                      for x, part in zip(labels.T, values, strict=True)]  # fmt: skip
        counts = n_completions(labels, np.array([len(part) for part in values]))
        if counts.sum() > BLOCK_ENTRIES:
            raise ValueError(
                f"missing='em' sums over the completions of rows, up to {BLOCK_ENTRIES} "
                f"together, got {counts.sum():.3g}: leave out items or rows with many missing "
                "values."
            )
        complete, row = np.repeat(labels, counts.astype(int), axis=0), 0
        for part, n in zip(labels, counts.astype(int), strict=True):
            absent = np.flatnonzero(part < 0)
            if len(absent):
                complete[row : row + n, absent] = list(product(*(values[i] for i in absent)))
            row += n
        states, _, members = distinct(complete, np.ones(len(complete)))
        indptr = np.append(0, np.cumsum(counts)).astype(np.int64)
        data = np.repeat(1 / counts, counts.astype(int))
        share = sparse.csr_array((data, members, indptr), shape=(len(labels), len(states)))
        return cls(states, share, np.asarray(weights, float))

    @property
    def weights(self):
        """Weights of the states."""
        return self.row_weights @ self.share

    @property
    def likely_weights(self):
        """Weights of the states without completions of negligible probability."""
        share = self.share.copy()
        share.data = np.where(share.data > NEGLIGIBLE_PROBABILITY, share.data, 0.0)
        return self.row_weights @ share

    def given(self, log_joint):
        """Return the completions with probabilities given the log-probabilities of the states."""
        share, start = self.share, self.share.indptr[:-1]
        logs, counts = log_joint[share.indices], np.diff(share.indptr)
        logs = logs - np.repeat(np.maximum.reduceat(logs, start), counts)
        p = np.exp(logs)
        # Probabilities below machine epsilon do not matter, but weights of zero would divide by 0.
        p = np.maximum(p / np.repeat(np.add.reduceat(p, start), counts), np.finfo(float).eps)
        data = p / np.repeat(np.add.reduceat(p, start), counts)
        return self._replace(
            share=sparse.csr_array((data, share.indices, share.indptr), shape=share.shape)
        )


def n_completions(labels, sizes):
    """Return the number of completions of each row."""
    return np.exp2(((labels < 0) * np.log2(sizes)).sum(1)).round()


def expectation_maximisation(completions, objective_of, maximise, exists=None):
    """Maximise by expectation maximisation; return fit, completions and the last objective."""
    parameters, history, stopped = None, [], False
    for step in range(MAX_ITER):
        objective = objective_of(completions.weights)
        fit = maximise(objective, parameters)
        previous, parameters = parameters, fit.parameters
        history.append(fit.history[-1])
        completions = completions.given(objective.log_joint(parameters))
        if previous is not None:
            size = max(1, abs(parameters).max(initial=0))
            if abs(parameters - previous).max(initial=0) < np.sqrt(np.finfo(float).eps) * size:
                stopped = fit.stopped
                break
        # Without a maximum, iterations would not end: check for it at increasing intervals.
        if exists is not None and (not fit.stopped or (step > 8 and step.bit_count() == 1)):
            if not exists(completions, parameters):
                break
    return Fit(parameters, history, stopped), completions, objective_of(completions.weights)
