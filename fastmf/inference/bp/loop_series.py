"""Next term of the loop series of sum-product: contributions of cycles to the log-partition.

At a fixed point Z = Z_Bethe (1 + sum of terms of subgraphs without leaves; Chertkov & Chernyak
2006). The term of a single cycle is the trace of the product along it of the normalised covariances

    M_ij(a, b) = (b_ij(a, b) - b_i(a) b_j(b)) / sqrt(b_i(a) b_j(b)),

for two-valued units the correlation of the pair. All closed walks that never turn back have

    c = -log det(1 - B) / 2,        B_(i->j),(k->i) = M_ij for k != j,

which is the sum of the terms of all cycles to first order. By the formula of Ihara and Bass,

    det(1 - B) = det(H) prod_ij det(1 - M_ij M_ij'),
    H_ij = -(1 - M_ij M_ij')^-1 M_ij,    H_ii = 1 + sum_j [(1 - M_ij M_ij')^-1 - 1],

with a row of H for each state. H is the Hessian of the Bethe free energy in other coordinates: it
is positive definite at minima, and only there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy

from fastmf._threads.workers import one_blas_thread

# Rows of H up to which it is dense; and rows and entries of the largest sparse H.
MAX_DENSE, MAX_ROWS, MAX_NONZEROS = 2000, 100_000, 1_000_000
# Largest singular value of a pair that is not certain, and smallest standard deviation.
MAX_CORRELATION, SMALLEST_DEVIATION = 1 - 1e-9, 1e-10


@one_blas_thread()
def loop_correction(sizes, edges, covariances):
    """Terms of cycles in the log-partition, to first order; None if the graph is very large."""
    ones, n_units = np.ones(len(edges)), len(sizes)
    graph = scipy.sparse.csr_array((ones, edges.T), shape=(n_units, n_units))
    n_components, _ = scipy.sparse.csgraph.connected_components(graph, directed=False)
    if len(edges) == n_units - n_components:  # a forest
        return 0.0
    if covariances is None:
        return None
    first, n_rows = np.cumsum(sizes) - sizes, int(sizes.sum())
    shapes = sizes[edges]
    n_entries = 2 * shapes.prod(1).sum() + (sizes**2).sum()
    if n_rows > MAX_DENSE and (n_rows > MAX_ROWS or n_entries > MAX_NONZEROS):
        return None
    offsets, total = np.cumsum(shapes.prod(1)) - shapes.prod(1), 0.0
    rows, columns, values = [np.arange(n_rows)], [np.arange(n_rows)], [np.ones(n_rows)]

    def add(i, j, blocks):
        (q, r), at = blocks.shape[1:], np.zeros(blocks.shape, np.int64)
        rows.append((at + first[i][:, None, None] + np.arange(q)[:, None]).ravel())
        columns.append((at + first[j][:, None, None] + np.arange(r)).ravel())
        values.append(blocks.ravel())

    for q, r in np.unique(shapes, axis=0):
        index = np.flatnonzero((shapes == (q, r)).all(1))
        i, j = edges[index].T
        m = covariances[offsets[index][:, None] + np.arange(q * r)].reshape(-1, q, r)
        transposed = m.swapaxes(1, 2)
        products = m @ transposed
        squares = products if q == 1 else np.linalg.eigvalsh(products)
        if squares.max() >= MAX_CORRELATION**2:
            return np.nan
        total += np.log1p(-squares.clip(min=0)).sum()
        inverse = 1 / (1 - products) if q == 1 else np.linalg.inv(np.eye(q) - products)
        coupled = inverse @ m
        add(i, i, inverse - np.eye(q))
        add(j, j, transposed @ coupled)
        add(i, j, -coupled)
        add(j, i, -coupled.swapaxes(1, 2))
    cells = np.concatenate(rows), np.concatenate(columns)
    hessian = scipy.sparse.csc_array((np.concatenate(values), cells), shape=(n_rows, n_rows))
    log_determinant = _log_determinant(hessian)
    return np.nan if log_determinant is None else float(-(total + log_determinant) / 2)


def _log_determinant(matrix):
    """Logarithm of the determinant of a positive definite matrix; None if it is none."""
    if len(matrix.indptr) - 1 <= MAX_DENSE:
        try:
            diagonal = np.linalg.cholesky(matrix.toarray()).diagonal() ** 2
        except np.linalg.LinAlgError:
            return None
    else:
        options = {"SymmetricMode": True}
        try:
            factors = scipy.sparse.linalg.splu(
                matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options
            )
        except RuntimeError:  # singular
            return None
        diagonal = factors.U.diagonal()
    return np.log(diagonal).sum() if (diagonal > 0).all() else None


def spin_correlations(p, q, exponents, edges):
    """Correlations of coupled two-valued units at a fixed point, from their probabilities.

    The covariance c solves a c^2 - (1 + a (p q' + p' q)) c + a p q p' q' = 0 with
    a = exp(exponent) - 1, without cancellation where units are nearly certain.
    """
    i, j = edges.T
    x, y = np.sqrt(p[i] * q[j]), np.sqrt(p[j] * q[i])
    small = np.expm1(-abs(exponents))
    # a and 1, divided by exp(exponent) where that is large.
    a, one = np.where(
        exponents > 0, [-small, np.exp(-abs(exponents))], [small, np.ones(len(small))]
    )
    root = np.sqrt(((one + a * (x - y) ** 2) * (one + a * (x + y) ** 2)).clip(min=0))
    return 2 * a * x * y / np.maximum(one + a * (x * x + y * y) + root, 1e-300)


def state_covariances(beliefs, pairs, edges, sizes):
    """Normalised covariances of pairs of units with states, table after table."""
    first, counts = np.cumsum(sizes) - sizes, sizes[edges].prod(1)
    edge = np.repeat(np.arange(len(edges)), counts)
    within = np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)
    a, b = np.divmod(within, sizes[edges[edge, 1]])
    root = np.sqrt(beliefs)
    a, b = first[edges[edge, 0]] + a, first[edges[edge, 1]] + b
    both = root[a] * root[b]
    return np.where(both > SMALLEST_DEVIATION, pairs / np.maximum(both, 1e-300) - both, 0.0)


@dataclass
class SpinLoops:
    """Fixed points of two-valued units, for `Beliefs.loop_correction`.

    couplings() gives edges and exponents, values(x) the units with these {0, 1} states; p and q are
    the probabilities of 1 and 0, of shape (n_rows, n_units).
    """

    couplings: Callable
    values: Callable
    p: np.ndarray
    q: np.ndarray

    def of_rows(self, rows):
        """Some of the fixed points."""
        return replace(self, p=self.p[rows], q=self.q[rows])

    def assignment(self, weights):
        """The more probable value of each unit in a mixture."""
        return self.values((weights @ self.p > weights @ self.q)[None])

    def terms(self, rows):
        """The term of each fixed point, or None."""
        edges, exponents = self.couplings()
        sizes, parts = np.ones(self.p.shape[1], int), ((self.p[k], self.q[k]) for k in rows)
        return [
            loop_correction(sizes, edges, spin_correlations(p, q, exponents, edges))
            for p, q in parts
        ]


@dataclass
class StateLoops:
    """Fixed points of `GraphUnits`, for `Beliefs.loop_correction`.

    Probabilities of states have the shape (n_rows, n_states), and of pairs (n_rows, n_values) or
    None if they are too large to keep.
    """

    units: object
    beliefs: np.ndarray
    pairs: np.ndarray | None

    def of_rows(self, rows):
        """Some of the fixed points."""
        pairs = None if self.pairs is None else self.pairs[rows]
        return replace(self, beliefs=self.beliefs[rows], pairs=pairs)

    def assignment(self, weights):
        """The most probable state of each unit in a mixture."""
        return self.units.values_of(self.units.labels((weights @ self.beliefs)[None]))

    def terms(self, rows):
        """The term of each fixed point, or None."""
        edges, sizes, covariances = self.units.graph.edges, self.units.graph.n_states, None
        out = []
        for k in rows:
            if self.pairs is not None:
                covariances = state_covariances(self.beliefs[k], self.pairs[k], edges, sizes)
            out.append(loop_correction(sizes, edges, covariances))
        return out


class MixedLoops(NamedTuple):
    """The fixed points of each row of a mixture, and their weights."""

    loops: list
    weights: list

    def terms(self, rows):
        """The term of each row, or None."""
        out = []
        for k in rows:
            terms = self.loops[k].terms(range(len(self.weights[k])))
            if None in terms:
                return [None]
            out.append(scipy.special.logsumexp(np.log(self.weights[k]) + np.array(terms)))
        return out


def terms_of_rows(loops, result):
    """The term of each row, NaN if it has not converged; or None."""
    converged = np.atleast_1d(result.converged)
    terms, out = loops.terms(np.flatnonzero(converged)), np.full(len(converged), np.nan)
    if None in terms:
        return None
    out[converged] = terms
    return out
