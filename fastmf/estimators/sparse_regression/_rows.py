"""Data of sparse regressions: moments, summary statistics, stored features, unpenalised columns.

The moments X'X, X'y and y'y are sufficient statistics of a linear model. Let U'U = X'X be a pivoted
Cholesky factorisation, where U has rank(X) rows, and U'v = X'y. Then the regression of v on U has
the same moments, except for a part of y'y that is orthogonal to all features.

Sparse matrices, memory-mapped files, and integers of one or two bytes are converted in blocks. If
there are at least as many rows as features, rows are read twice, for means and scales and for the
moments, which replace them; otherwise each iteration converts columns, or multiplies sparse ones.

Unpenalised columns, which have a flat prior, are projected out of y and the features. Let W be
these columns and X the other features. The coefficients w of X have the posterior of a regression
with the residuals of y and X on W; given w, the coefficients of W are Gaussian, with

    mean  W+ y - K w,  K = W+ X,      covariance  noise variance times (W'W)+
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy
from scipy.sparse import csc_array, csr_array, issparse

from fastmf._common import rows as table_rows
from fastmf._common.arguments import doubles, positive
from fastmf._common.linalg import MIN_EIGENVALUE
from fastmf._common.rows import row_blocks
from fastmf._common.stored_columns import StoredColumns, column_squares
from fastmf._common.warning import listed, warn_user
from fastmf.estimators.common.data import dense_rows, warn_of_missing_codes

# Absolute correlation above which two features may share an effect.
MIN_LINK = 0.5
# Number of features up to which small blocks are joined.
MAX_JOINED = 200


def factor(gram):
    """Return rows U with U'U equal to a positive semidefinite matrix, and the pivots."""
    n = len(gram)
    scale = np.sqrt(np.maximum(gram.diagonal(), 0))
    scale[scale == 0] = 1.0
    scaled = gram / scale / scale[:, None]
    upper, pivots, rank, _ = scipy.linalg.lapack.dpstrf(scaled, tol=MIN_EIGENVALUE)
    U = np.zeros((max(rank, 1), n))
    U[:rank, pivots - 1] = np.triu(upper)[:rank]
    probe = np.random.default_rng(0).choice([-1.0, 1.0], (n, 4))
    expected = scaled @ probe
    error = abs(U.T @ (U @ probe) - expected).max(initial=0)
    # Pivots below `MIN_EIGENVALUE` are rounding errors, and the same holds for their square roots.
    limit = np.sqrt(n * MIN_EIGENVALUE) * max(1.0, abs(expected).max(initial=0))
    if not error <= limit:
        raise ValueError("not positive semidefinite")
    return U * scale, pivots[:rank] - 1


def target_of(X, pivots, moment):
    """Return the target y of rows X from `factor` with X'y equal to `moment`."""
    y = np.zeros(len(X))
    if len(pivots):
        y[:] = scipy.linalg.solve_triangular(X[:, pivots], moment[pivots], trans=1)
    return y


def parts_of_moments(gram, moment, y_square):
    """Return the features of each block of X'X, and rows and a target with these moments."""
    blocks, moment = blocks_of(gram), doubles("moment", moment)
    n_features = sum(len(units) for units, _ in blocks)
    if moment.shape != (n_features,):
        raise ValueError(f"moment must have shape {(n_features,)}, X'y, got {moment.shape}.")
    if y_square != 0:
        y_square = positive("y_square", y_square)
    rows = [rows_of_moments(block, moment[units], y_square) for units, block in blocks]
    return [units for units, _ in blocks], rows


def rows_of_moments(gram, moment, y_square):
    """Return rows and a target with these moments; raise if no data have these moments."""
    for name, value in {"gram": gram, "moment": moment}.items():
        if not np.isfinite(value).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity.")
        if (largest := abs(value).max(initial=0)) > np.sqrt(np.finfo(float).max):
            raise ValueError(
                f"{name} must have squares below 1.8e308, got {largest:g}: take larger units."
            )
    diagonal = gram.diagonal()
    if (diagonal < 0).any():
        raise ValueError(f"gram must have no negative squares, got {diagonal.min():g}.")
    scale = np.sqrt(diagonal)
    if (abs(gram - gram.T) > 1e-6 * np.maximum(np.outer(scale, scale), 1e-300)).any():
        raise ValueError("gram must be symmetric, X'X.")
    try:
        X, pivots = factor(gram)
    except ValueError:
        raise ValueError(
            "gram must be positive semidefinite, as X'X is: it is not, beyond rounding. Add a "
            "multiple of the identity, or compute it in double precision."
        ) from None
    y = target_of(X, pivots, moment)
    error = abs(moment - y @ X)
    limit = 1e-5 * np.sqrt(np.maximum(diagonal * y_square, 0)) + 1e-300
    if (error > limit).any():
        raise ValueError(
            f"moment must be X'y for the X of gram: element {int(np.argmax(error - limit))} is "
            "none, as gram says that its feature is a combination of others."
        )
    if y @ y - y_square > 1e-6 * y_square:
        raise ValueError(
            f"y_square must be y'y: gram and moment alone explain {y @ y:g}, got {y_square:g}."
        )
    return X, y


def unexplained_of(targets, y_square, n):
    """Return the number of rows, and the part of y'y that no block explains."""
    # Correlations from a reference panel may explain more than y'y, or have a rank that exceeds the
    # number of rows: then the rows of the blocks are all the data.
    rank = sum(map(len, targets))
    unexplained = y_square - sum(float(y @ y) for y in targets)
    if rank > n or unexplained < -1e-6 * y_square:
        return float(rank), 0.0
    return float(n), max(unexplained, 0.0)


def blocks_of(matrix, name="gram"):
    """Return the blocks of a block-diagonal matrix, as pairs of features and block."""
    if isinstance(matrix, (list, tuple)) and len(matrix) and np.ndim(matrix[0]) == 2:
        parts = [_square(f"{name}[{k}]", doubles(name, part)) for k, part in enumerate(matrix)]
        ends = np.cumsum([len(part) for part in parts])
        return [(np.arange(e - len(part), e), part) for e, part in zip(ends, parts, strict=True)]
    if not scipy.sparse.issparse(matrix):
        matrix = _square(name, doubles(name, matrix))
        if matrix.all():
            return [(np.arange(len(matrix)), matrix)]
    pattern = _square(name, scipy.sparse.csr_array(matrix, dtype=np.float64))
    _, labels = scipy.sparse.csgraph.connected_components(pattern, directed=False)
    order = np.argsort(labels, kind="stable")
    # Join small blocks: a problem with several features costs no more than with a single feature.
    ends, first, cuts = np.cumsum(np.bincount(labels)), 0, []
    for before, end in pairwise(ends.tolist()):
        if end - first > MAX_JOINED:
            first = before
            cuts.append(first)
    return [(units, pattern[units][:, units].toarray()) for units in np.split(order, cuts)]


def _square(name, matrix):
    """Return the matrix; raise unless it is square."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}.")
    return matrix


# --- z-scores -------------------------------------------------------------------------------------
#
# For standardised features and target the moments are X'X = n R and X'y = n r, where r are the
# correlations of features and target, r^2 = z^2 / (n - 2 + z^2). Published z-scores are rounded,
# and R may come from another sample than z. In the model for effects b
#
#     z  ~  N(sqrt(n) R b, noise variance * ((1 - s) R + s I)),
#
# s is the share of variance that correlations do not explain: it bounds the noise from below where
# R has small eigenvalues (for s = 0 and s = 1 see Zou, Carbonetto, Wang & Stephens 2022). With the
# eigenvectors u_i and eigenvalues l_i of R, the rows
#
#     sqrt(n) l_i / sqrt(v_i) u_i',  v_i = (1 - s) l_i + s,  with targets  u_i'z / sqrt(v_i)
#
# form a regression with this likelihood. The estimate of s maximises the likelihood in which u_i'z
# has the variance t l_i^2 sum_j u_ij^2 z_j^2 + v_i due to effects and noise; t is at most 1, its
# value for a single effect. s is 0 unless another value is better by Schwarz's criterion (BIC). The
# sign of one of p scores is flipped if this raises its likelihood given the other scores by a
# factor above p^2: for a prior probability 1 / p of a wrong sign, the posterior odds are then p.
#
# With or without effects, z'z is not smaller than expected from noise: about p, with the relative
# deviation of a chi-squared variable whose degrees of freedom are the number of independent
# features. Smaller values are not z-scores, but p-values or coefficients.

# Warnings report a share above NOTABLE_SHARE, and features with small scores whose probability,
# together with the features that are linked to them, exceeds PROBABLE.
NOTABLE_SHARE, PROBABLE = 0.02, 0.95
# Grids of the share s and of t.
SHARES, EFFECTS = np.geomspace(1e-12, 1.0, 121), np.geomspace(1e-5, 1.0, 11)
# Values are not taken as z-scores if values as small have a smaller probability without effects.
MIN_NULL_PROBABILITY = 1e-3
# Number of different absolute correlations from which R counts as rounded to one decimal.
MIN_MODULI = 4


class Summary(NamedTuple):
    """Rows with the moments of summary statistics, block by block."""

    units: list  # int arrays: the features of each block
    rows: list  # pairs of rows and their target
    blocks: list  # correlations
    z: np.ndarray  # (n_features,)
    share: float  # largest share s of a block: 0 if R fits z
    flipped: np.ndarray  # features whose z-scores have a sign that contradicts the other scores
    remarks: list  # warnings about z and R

    def message(self, names=None):
        """Return a warning about a mismatch of z and R, with all remarks, or None."""
        faults, remarks = [], self.remarks
        if self.share > NOTABLE_SHARE:
            faults.append(
                f"{self.share:.2g} of the variance of z is not of correlations R, and was taken "
                "for noise"
            )
        if len(self.flipped):
            faults.append(
                f"the z-scores of {named(self.flipped, names)} have the wrong sign, and were turned"
            )
        if faults:
            remarks = [
                f"R does not fit z: {', and '.join(faults)}. Give the R of the rows of z, and "
                "check the coding of the features.", *remarks,
            ]  # fmt: skip
        return " ".join(remarks) or None

    def message_of_hidden(self, included, noise_variance, names=None):
        """Return a warning about included features without large correlated scores, or None."""
        hidden, limit = [], largest_by_chance(len(self.z)) * np.sqrt(noise_variance)
        for units, block in zip(self.units, self.blocks, strict=True):
            linked = abs(block) > MIN_LINK
            probability = included[units]
            certain = linked @ probability > PROBABLE
            small = np.where(linked, abs(self.z[units]), 0).max(1) < limit
            is_largest = probability >= np.where(linked, probability, 0).max(1)
            hidden += [*units[certain & small & is_largest]]
        if hidden:
            return (
                f"{named(hidden, names)} seem to have effects, alone or with correlated "
                f"features, although no z-score of these is beyond {limit:.2g}, as chance makes "
                "them: they follow from differences of z-scores that R says are alike. Check "
                "that z and R are of the same rows and coding."
            )


def named(units, names=None):
    """Return a text that names the first of some features."""
    text = listed(units, text=lambda unit: str(unit if names is None else names[unit]))
    return f"features {text}" if len(units) > 1 else f"feature {text}"


def largest_by_chance(p):
    """Return the |z| that one of p independent null scores is expected to exceed."""
    return -float(scipy.special.ndtri(0.5 / p))


def summary_of(z, R, n, names=None):
    """Return the `Summary` of z-scores, correlations and a number of rows."""
    z, n = _checked(z, n, names)
    # Unlike z itself, sqrt(n) r is in the range of R if both are from the same rows.
    z = z * np.sqrt(n / (n - 2 + z * z))
    blocks = blocks_of(R, "R")
    if (total := sum(len(units) for units, _ in blocks)) != len(z):
        raise ValueError(f"R must have as many rows as z has elements, {len(z)}, got {total}.")
    for units, block in blocks:
        _check_correlations(block, units, names)
    remarks = [*too_small(z, blocks), *_rounded(z, blocks), *_squared(z, blocks)]
    rows, share, flipped = [], 0.0, []
    for units, block in blocks:
        scores = Scores.of(z[units], block)
        scores, wrong = scores.with_right_signs()
        share_of_block = scores.maximum()[1]
        share, flipped = max(share, share_of_block), [*flipped, *units[wrong]]
        rows.append(scores.rows(share_of_block, n))
    units, blocks = zip(*blocks, strict=True)
    return Summary(units, rows, blocks, z, share, np.array(sorted(flipped), int), remarks)


class Scores(NamedTuple):
    """Scores of a block, and the eigenvectors of its correlations."""

    z: np.ndarray  # (n_features,)
    values: np.ndarray  # (rank,)
    vectors: np.ndarray  # (rank, n_features)

    @classmethod
    def of(cls, z, R):
        """Make scores of features with these correlations; eigenvalues up to 0 are dropped."""
        values, vectors = np.linalg.eigh(R)
        positive = values > MIN_EIGENVALUE
        return cls(z, values[positive], vectors[:, positive].T)

    def noise(self, share):
        """Return the noise variances along the eigenvectors."""
        return (1 - share) * self.values + share

    def maximum(self):
        """Return maximum-likelihood variances along the eigenvectors, and the share s."""
        projected = self.vectors @ self.z
        residual = self.z - projected @ self.vectors
        residual[abs(residual) < MIN_EIGENVALUE * abs(self.z).max()] = 0
        # Copies of a feature with equal scores carry no information about s.
        n_null = min(len(self.z) - len(self.values), np.count_nonzero(residual))
        shares = SHARES if n_null else np.append(0, SHARES)
        effects = np.square(self.vectors) @ np.square(self.z) * self.values**2
        loss = np.empty((len(EFFECTS), len(shares)))
        for k, t in enumerate(EFFECTS):
            variances = t * effects + self.noise(shares[:, None])
            loss[k] = (np.log(variances) + projected**2 / variances).sum(1) / 2
        if n_null:
            loss += (n_null * np.log(shares) + residual @ residual / shares) / 2
        best = int(np.argmin(loss.min(0)))
        if loss[:, 0].min() - loss[:, best].min() < np.log(1 + len(self.z)) / 2:
            best = 0
        share = shares[best]
        return EFFECTS[np.argmin(loss[:, best])] * effects + self.noise(share), share

    def with_right_signs(self):
        """Flip signs that contradict the other scores; return the scores and the places."""
        z, flipped = self.z.copy(), np.zeros(len(self.z), bool)
        while not flipped.all():
            variances, share = self._replace(z=z).maximum()
            share = max(share, MIN_EIGENVALUE)
            shrunk = (1 / variances - 1 / share)[:, None] * self.vectors
            precision = 1 / share + (self.vectors * shrunk).sum(0)
            solved = z / share + (self.vectors @ z) @ shrunk
            # Log-likelihood ratio of the opposite sign of each score, given the other scores.
            gain = np.where(flipped, 0, 2 * z * (solved - precision * z))
            worst = int(np.argmax(gain))
            if gain[worst] <= 2 * np.log(1 + len(z)):
                break
            z[worst] *= -1
            flipped[worst] = True
        return self._replace(z=z), np.flatnonzero(flipped)

    def rows(self, share, n):
        """Return rows and target of a regression with this likelihood."""
        deviations = np.sqrt(self.noise(share))
        X = (np.sqrt(n) * self.values / deviations)[:, None] * self.vectors
        return X, self.vectors @ self.z / deviations


def too_small(z, blocks):
    """Yield a remark if values are too small for z-scores."""
    n_independent = _n_independent(blocks)
    kind = "coefficients"
    probability = float(scipy.special.chdtr(n_independent, n_independent * np.mean(z * z)))
    if (z >= 0).all() and (z <= 1).all() and z.any():
        # Probability that all z are in [0, 1], the smallest one as close to 0, as for p-values.
        inside, beyond = scipy.special.ndtr(1.0) - scipy.special.ndtr([0.0, z[z > 0].min()])
        in_unit = inside**n_independent - beyond**n_independent
        probability, kind = min(probability, in_unit), "p-values"
    if probability < MIN_NULL_PROBABILITY:
        yield (
            f"z seem to be {kind}, not z-scores: they are from {z.min():.3g} to {z.max():.3g}, and "
            f"z-scores are as small with probability {probability:.1g} even without any effect. "
            "Give z = coefficient / standard error, or sign(coefficient) * "
            "scipy.stats.norm.isf(p_value / 2)."
        )


def _n_independent(blocks):
    """Return the effective number of independent features, by the sum of squared correlations."""
    n = sum(len(units) for units, _ in blocks)
    return n**2 / sum(float(np.square(block).sum()) for _, block in blocks)


def _rounded(z, blocks):
    """Yield a remark if correlations seem to be rounded to one decimal."""
    seen = np.zeros(11, bool)
    # By row, which stops at the first row if R is not rounded: a copy of R may exceed memory.
    for row in (block[k, k + 1 :] for _, block in blocks for k in range(len(block))):
        tenths = np.rint(10 * row)
        if abs(row - tenths / 10).max(initial=0) > 1e-6:
            return
        seen[abs(tenths).astype(int)] = True
    if seen.sum() >= MIN_MODULI:
        yield (
            "R seems to be rounded to one decimal: next to an effect, scores are wrong by up to "
            f"{0.05 * abs(z).max():.2g}, and probabilities of correlated features with them. Give "
            "four decimals or more."
        )


def _squared(z, blocks):
    """Yield a remark if R seems to hold squared correlations."""
    limit = largest_by_chance(len(z))
    if any(block.min() < 0 for _, block in blocks) or not z.min() < -limit < limit < z.max():
        return
    # Sample correlations of independent features are negative with probability 1/2.
    n_pairs = sum(n * (n - 1) / 2 for n in (_n_independent([block]) for block in blocks))
    if 0.5**n_pairs < MIN_NULL_PROBABILITY:
        yield (
            "R has no negative element, although z has large values of both signs: if R holds "
            "squared correlations, r^2, give r."
        )


def _checked(z, n, names):
    z = doubles("z", z)
    if z.ndim != 1 or not len(z):
        raise ValueError(f"z must be a vector of z-scores, one trait a fit, got shape {z.shape}.")
    if (wrong := np.flatnonzero(~np.isfinite(z))).size:
        raise ValueError(
            f"z must be finite, got {z[wrong[0]]} for {named(wrong, names)}: give coefficient / "
            "standard error where a p-value was rounded to 0, and leave features without a score "
            "out of z and R."
        )
    n = np.asarray(n)
    if n.shape == z.shape and n.dtype.kind in "iuf":
        low, high = n.argmin(), n.argmax()
        if n[low] < n[high]:
            raise ValueError(
                f"n must be one number of rows for all features, got {n[low]:g} for "
                f"{named([low], names)} and {n[high]:g} for {named([high], names)}: leave features "
                "of much fewer rows out of z and R, and give the median of n."
            )
        n = n[low]
    if n.ndim or n.dtype.kind not in "iuf" or not 2 < n < np.inf:
        raise ValueError(f"n must be a number of rows above 2, got {n!s:.40}.")
    return z, float(n)


def _check_correlations(R, units, names):
    if (missing := (~np.isfinite(R)).sum(1)).any():
        worst = units[missing == missing.max()]
        raise ValueError(
            f"R must be finite, got NaN or infinity at {named(worst, names)}, as for features "
            "that are constant: leave these out of z and R."
        )
    if abs(R.diagonal() - 1).max() > 1e-3:
        raise ValueError(
            "R must have ones on its diagonal, as correlations do: for covariances use fit_moments."
        )
    if abs(R - R.T).max() > 1e-5 or abs(R).max() > 1 + 1e-3:
        raise ValueError("R must be symmetric, of correlations between -1 and 1.")


# --- features that are stored as they are ---------------------------------------------------------


def is_stored(X):
    """Whether X has a type that is converted in blocks if it is large."""
    if issparse(X) or isinstance(X, np.memmap):
        return True
    return isinstance(X, np.ndarray) and X.dtype.kind in "iub" and X.dtype.itemsize <= 2


def is_large(X):
    """Whether features exceed the size of one block."""
    return np.prod(X.shape, dtype=float) > table_rows.BLOCK_ENTRIES


def as_array(estimator, X):
    """Return checked features, as an array of floats if small; warn of missing-value codes."""
    warn_of_missing_codes(estimator, X)
    return X if is_large(X) else as_floats(X, np.float64)


def as_floats(X, dtype=np.float32):
    """Return checked features as an array, converted to `dtype` unless they are floats."""
    X = X.toarray() if issparse(X) else X
    return X if X.dtype in (np.float32, np.float64) else X.astype(dtype)


def by_blocks(function, X):
    """Apply a function to blocks of rows in float64; concatenate along the last axis."""
    X = csr_array(X) if issparse(X) else X
    parts = [function(dense_rows(X, rows)) for rows in row_blocks(X, dense=True)]
    return np.concatenate(parts, axis=-1)


def rows_of_stored(X, y, weights, offset, scale, constant):
    """Return rows and a target with the moments of standardised data, and the rest of y'y."""
    n, p = X.shape
    roots = np.sqrt(weights)
    factors = np.where(constant, 0.0, 1 / scale)
    if n < p:
        columns = csc_array(X) if issparse(X) else X
        offsets = roots[:, None], (offset * factors)[None]
        return StoredColumns(columns, roots, factors, *offsets), y, 0.0
    X = csr_array(X) if issparse(X) else X
    gram, moment = np.zeros((p, p)), np.zeros(p)
    for rows in table_rows.row_blocks(X, dense=True):
        part = dense_rows(X, rows) - offset
        part *= factors
        part *= roots[rows, None]
        gram += part.T @ part
        moment += y[rows] @ part
    X, pivots = factor(gram)
    target = target_of(X, pivots, moment)
    return X, target, max(float(y @ y - target @ target), 0.0)


# --- unpenalised columns --------------------------------------------------------------------------

# Norm of the residual of a column, relative to its norm and in units of machine epsilon, below
# which the column is a linear combination of the others.
MIN_NORM = 100


def without_unpenalised(rows, units, columns, excluded):
    """Project the unpenalised columns out of parts (X, y); arrays X are changed in place.

    Features in the mask `excluded` become zero. Return the residuals of the parts, the rank of the
    columns in each part, the coefficients of y on the columns, the matrix K with zeros for the
    columns themselves, and a square root of (W'W)+.
    """
    n_columns, residuals, roots = len(columns), [], []
    flat, gain = np.zeros(n_columns), np.zeros((n_columns, sum(map(len, units))))
    for (X, y), features in zip(rows, units, strict=True):
        X = without_columns(X, excluded[features])
        members = np.flatnonzero(np.isin(features, columns))
        place = np.searchsorted(columns, features[members])
        root = np.zeros((n_columns, 0))
        if members.size:
            X, basis, root_of_part, products = _projection(X, members)
            flat[place], y = root_of_part @ (y @ basis), y - basis @ (y @ basis)
            gain[place[:, None], features] = root_of_part @ products
            root = np.zeros((n_columns, basis.shape[1]))
            root[place] = root_of_part
        residuals.append((X, y))
        roots.append(root)
    gain[:, columns] = 0
    ranks = [root.shape[1] for root in roots]
    return residuals, ranks, flat, gain, np.concatenate(roots, axis=1)


def _projection(X, units):
    """Return residuals X on W = X[:, units], a basis of W, a root of (W'W)+, and basis'X."""
    W = X[:, units].astype(np.float64)
    scale = np.sqrt((W * W).sum(0))
    scale[scale == 0] = 1.0
    basis, values, right = np.linalg.svd(W / scale, full_matrices=False)
    rounding = MIN_NORM * np.finfo(X.dtype).eps
    rank = int((values > rounding * max(W.shape)).sum())
    if rank < len(units):
        warn_user(
            f"{len(units) - rank} of the {len(units)} unpenalised columns are constant, or linear "
            "combinations of the others: their coefficients are those of smallest norm."
        )
    basis = basis[:, :rank]
    root = (right[:rank] / values[:rank, None]).T / scale[:, None]
    squares = column_squares(X)
    if isinstance(X, StoredColumns):
        products = (X.T @ basis).T
        X = X.less(basis, products)
    else:
        products = sum(basis[rows].T @ X[rows] for rows in row_blocks(X))
        for rows in row_blocks(X):
            X[rows] -= basis[rows] @ products
    is_zero = column_squares(X) <= squares * rounding**2 * len(X)
    is_zero[units] = True
    return without_columns(X, is_zero), basis, root, products


def without_columns(X, columns):
    """Set the columns in a mask to zero; an array is changed in place."""
    if isinstance(X, StoredColumns):
        return X.without(columns)
    X[:, columns] = 0
    return X


def columns_of(estimator, given, argument="unpenalised"):
    """Return sorted indices of columns that are given by indices, names or a mask."""
    n_features, names = estimator.n_features_in_, getattr(estimator, "feature_names_in_", ())
    place = {name: k for k, name in enumerate(names)}
    try:
        columns = np.asarray([] if given is None else given)
        if columns.dtype.kind in "OU":
            columns = np.array([place[name] for name in columns.tolist()])
        if columns.ndim != 1:
            raise ValueError("not a list")
        columns = np.arange(n_features)[columns if columns.size else slice(0)]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"{argument} must be numbers of columns below {n_features}, their names in a data "
            f"frame, or a mask, got {given!r:.60}: {error!s:.60}."
        ) from error
    columns = np.unique(columns)
    if len(columns) == n_features and argument == "unpenalised":
        raise ValueError("unpenalised must leave a feature that is selected, got all columns.")
    return columns
