"""Next term of the loop series of sum-product: what the cycles of a graph add to its log-partition.

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

from typing import NamedTuple

import numpy as np
import scipy

from fastmf._threads.workers import one_blas_thread
from fastmf.priors._queries import two_values

# Rows of H up to which it is dense; and rows and entries of the largest sparse H.
MAX_DENSE, MAX_ROWS, MAX_NONZEROS = 2000, 100_000, 1_000_000
# Largest singular value of a pair that is not certain, and smallest standard deviation.
MAX_CORRELATION, SMALLEST_DEVIATION = 1 - 1e-9, 1e-10


@one_blas_thread()
def loop_correction(sizes, edges, covariances):
    """Terms of cycles in the log-partition, to first order."""
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


def corrected(result, terms_of):
    """Next term for the log-partition of each row, or None.

    terms_of(row, solutions) gives the terms of the fixed points of a row, one or its `Solutions`.
    """
    out = np.full(np.size(result.converged), np.nan)
    for row in np.flatnonzero(np.atleast_1d(result.converged)):
        solutions = result.solutions
        if solutions is not None and np.ndim(result.converged):
            solutions = solutions[row]
        terms = terms_of(row, solutions)
        if None in terms:
            return None
        weights = np.ones(1) if solutions is None else solutions.weights
        out[row] = scipy.special.logsumexp(np.log(weights) + np.array(terms))
    return out


def correction_of_spins(p, q, exponents, edges):
    """The term of a fixed point of two-valued units, from their probabilities."""
    correlations = spin_correlations(p, q, exponents, edges)
    return loop_correction(np.ones(len(p), int), edges, correlations)


class LayerLoops(NamedTuple):
    """The RBM of two-valued units with which `Beliefs.loop_correction` is computed."""

    model: object

    def __call__(self, result):
        """Next term of the loop series for the log-partition of each row, or None."""
        model = self.model
        if None in map(two_values, model.layers):
            return None
        edges = np.stack(np.nonzero(model.weights), 1)
        scales = [high - low for low, high in map(two_values, model.layers)]
        exponents = model.weights[tuple(edges.T)].astype(np.float64) * scales[0] * scales[1]
        edges[:, 1] += len(model.weights)

        def terms_of(row, solutions):
            points = [[np.atleast_2d(mean)[row] for mean in result.mean]]
            if solutions is not None:
                points = zip(solutions.visible, solutions.hidden, strict=True)
            spins = map(self._probabilities, points)
            return [correction_of_spins(p, q, exponents, edges) for p, q in spins]

        return corrected(result, terms_of)

    def _probabilities(self, means):
        """Probabilities of the values of both layers' units, (2, n_units), from their means."""
        parts = []
        for mean, prior in zip(means, self.model.layers, strict=True):
            low, high = two_values(prior)
            mean = mean.astype(np.float64)
            parts.append(np.stack([(mean - low), (high - mean)]) / (high - low))
        p = np.concatenate(parts, axis=1)
        # Smaller ones are the rounding errors of means.
        return np.where(p < 4 * np.finfo(self.model.dtype).eps, 0, p)


class GraphLoops(NamedTuple):
    """The graph with which `Beliefs.loop_correction` is computed.

    Parameters
    ----------
    units : GraphUnits
    beliefs : list of arrays of shape (n_solutions, n_states)
        Probabilities of states at the fixed points of each row, largest weight first.
    pairs : list of arrays of shape (n_solutions, n_values), or None
        Probabilities of pairs of states; None if they are many, or units two-valued.
    """

    units: object
    beliefs: list
    pairs: list | None

    def __call__(self, result):
        """Next term of the loop series for the log-partition of each row, or None."""
        if self.units.is_forest:
            return np.zeros(np.size(result.converged))
        return corrected(result, self._terms)

    def _terms(self, row, solutions):
        """The terms of the fixed points of a row."""
        graph, beliefs = self.units.graph, self.beliefs[row]
        if self.units.binary is not None:
            low, high = two_values(self.units.model.prior)
            exponents = graph.values * (high - low) ** 2
            return [correction_of_spins(b[1::2], b[::2], exponents, graph.edges) for b in beliefs]
        if self.pairs is None:
            return [None]
        edges, sizes = graph.edges, graph.n_states
        covariances = [
            state_covariances(*point, edges, sizes)
            for point in zip(beliefs, self.pairs[row], strict=True)
        ]
        return [loop_correction(sizes, edges, c) for c in covariances]
