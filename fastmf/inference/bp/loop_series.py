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

A single cycle has log(1 + r) for the trace r, of which c = -log(1 - r) is the first order only. For
two-valued units the difference is c of the squares of M, -log(1 - r^2). Of frustrated graphs of 14
to 25 units the error of Bethe's log-partition lies between c(M) and c(M) - c(M^2), near their mean.
There is no c(M^2) where random perturbations of messages grow along the walks (de Almeida &
Thouless 1978).

Derivatives of c by the fields add to the beliefs b: with s = sqrt(b (1 - b)) and R = H^-1,

    db = s R s^-1 dc/du,    dc/du = sum_ij G_ij dM_ij/du,    u = log(b / (1 - b)),
    G_ij = n M - (R_ii + R_jj) n^2 M + R_ij n^2 (1 + M^2),    n = 1 / (1 - M^2).
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array
from scipy.sparse.linalg import splu

from fastmf._threads.workers import one_blas_thread

# Rows of H up to which it is dense; and rows and entries of the largest sparse H.
MAX_DENSE, MAX_ROWS, MAX_NONZEROS = 2000, 100_000, 1_000_000
# Largest singular value of a pair that is not certain, and smallest standard deviation.
MAX_CORRELATION, SMALLEST_DEVIATION = 1 - 1e-9, 1e-10
# Units up to which H is inverted for changes of beliefs, and step of log-odds in differences.
MAX_CHANGED, LOG_ODDS_STEP = 1000, 1e-4
# Derivatives by correlations, relative to their terms, that are rounding errors.
CANCELLATION = 1e-13


@one_blas_thread()
def loop_correction(sizes, edges, covariances):
    """Terms of cycles in the log-partition, to first order.

    Parameters
    ----------
    sizes : int array of shape (n_units,)
        Rows of H for each unit: its number of states, or 1 for two-valued units.
    edges : int array of shape (n_edges, 2)
    covariances : array of shape (sum of sizes[i] * sizes[j],)
        Normalised covariances of the pairs, table after table.

    Returns
    -------
    float
        NaN where the fixed point is no minimum of the Bethe free energy; None if the graph is too
        large.
    """
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
        here = np.flatnonzero((shapes == (q, r)).all(1))
        i, j = edges[here].T
        m = covariances[offsets[here][:, None] + np.arange(q * r)].reshape(-1, q, r)
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
    hessian = csc_array((np.concatenate(values), cells), shape=(n_rows, n_rows))
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
            factors = splu(
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

    Parameters
    ----------
    p, q : array of shape (n_units,)
        Probabilities of the upper and of the lower value.
    exponents : array of shape (n_edges,)
        Exponents of the pair of upper values, of {0, 1} units.
    edges : int array of shape (n_edges, 2)
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


class SpinLoops(NamedTuple):
    """Terms of cycles of two-valued units.

    Parameters
    ----------
    first : float
        c(M): NaN where the fixed point is no minimum of the Bethe free energy.
    both : float
        c(M) - c(M^2) / 2, by both orders: NaN where random perturbations grow, too.
    changes : array of shape (n_units,), or None
        Changes by these of the probabilities of the upper values; None if they are not known.
    """

    first: float
    both: float
    changes: np.ndarray | None


@one_blas_thread()
def loops_of_spins(p, q, exponents, edges):
    """The `SpinLoops` of a fixed point; None if the graph is too large.

    Parameters
    ----------
    p, q, exponents, edges
        As for `spin_correlations`.
    """
    correlations, sizes = spin_correlations(p, q, exponents, edges), np.ones(len(p), int)
    first, squares = (loop_correction(sizes, edges, m) for m in (correlations, correlations**2))
    if first is None:
        return None
    both, changes = first - squares / 2, None
    if np.isfinite(both) and len(p) <= MAX_CHANGED:
        response, by_first = _inverse_and_derivatives(edges, correlations, len(p))
        _, by_squares = _inverse_and_derivatives(edges, correlations**2, len(p))
        by_log_odds = _by_log_odds(by_first - correlations * by_squares, p, q, exponents, edges)
        deviations = np.sqrt(p * q)
        by_log_odds /= np.maximum(deviations, SMALLEST_DEVIATION)
        changes = deviations * (response @ by_log_odds)
    return SpinLoops(first, both, changes)


def _inverse_and_derivatives(edges, m, n_units):
    """The inverse of H, and the derivatives of c by the correlations."""
    (i, j), n = edges.T, 1 / (1 - m * m)
    hessian = np.eye(n_units)
    np.add.at(hessian, (edges.T, edges.T), n * m * m)
    hessian[i, j] = hessian[j, i] = -n * m
    inverse = np.linalg.inv(hessian)
    own, both = inverse[i, i] + inverse[j, j], inverse[i, j]
    terms = np.array([n * m, -own * n * n * m, both * n * n * (1 + m * m)])
    derivatives = terms.sum(0)
    # The terms of a pair that is in no cycle cancel, and are large where it is nearly certain.
    is_rounding = abs(derivatives) < CANCELLATION * abs(terms).sum(0)
    return inverse, np.where(is_rounding, 0.0, derivatives)


def _by_log_odds(by_correlations, p, q, exponents, edges):
    """Derivatives by the log-odds of units, from those by the correlations of pairs."""
    out, n = np.zeros(len(p)), len(p)
    for end in (0, 1):
        # The same units once more, shifted.
        pairs = edges + n * (np.arange(2) == end)
        ends = []
        for step in (LOG_ODDS_STEP, -LOG_ODDS_STEP):
            total = p * np.exp(step) + q
            p_q = np.append(p, p * np.exp(step) / total), np.append(q, q / total)
            ends.append(spin_correlations(*p_q, exponents, pairs))
        slopes = by_correlations * (ends[0] - ends[1]) / (2 * LOG_ODDS_STEP)
        out += np.bincount(edges[:, end], slopes, n)
    return out


def state_covariances(beliefs, pairs, edges, sizes):
    """Normalised covariances of pairs of units with states, table after table.

    Parameters
    ----------
    beliefs : array of shape (n_states,)
        Probabilities of the states of all units.
    pairs : array of shape (n_values,)
        Probabilities of the pairs of states, table after table.
    edges : int array of shape (n_edges, 2)
    sizes : int array of shape (n_units,)
    """
    first, counts = np.cumsum(sizes) - sizes, sizes[edges].prod(1)
    edge = np.repeat(np.arange(len(edges)), counts)
    within = np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)
    a, b = np.divmod(within, sizes[edges[edge, 1]])
    root = np.sqrt(beliefs)
    a, b = first[edges[edge, 0]] + a, first[edges[edge, 1]] + b
    both = root[a] * root[b]
    return np.where(both > SMALLEST_DEVIATION, pairs / np.maximum(both, 1e-300) - both, 0.0)
