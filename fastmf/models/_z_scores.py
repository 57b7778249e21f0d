"""Rows from summary statistics: z-scores of single features, their correlations and n.

With standardised features and target the moments are X'X = n R and X'y = n r, with r the
correlations of features and target, r^2 = z^2 / (n - 2 + z^2). R may be of other rows than z. Then
z has parts that no effects explain: with u_i, l_i the eigenvectors and eigenvalues of R

    variance of u_i'z  =  t l_i^2 + (1 - s) l_i + s

has, beside the polygenic effects t and noise of covariance R, a share s that is no correlation of
these features. s is estimated by maximum likelihood (for t = 0 see Zou, Carbonetto, Wang & Stephens
2022), and where it is not small (1 - s) R + s I takes the place of R.

Whatever the effects are, scores are not smaller than noise alone would make them: z'z is at least
about p, with the deviation of p / (number of independent features) chi-squared variables. What is
smaller was no z-score: a p-value, or a coefficient.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import chdtr, ndtr

from fastmf._common.arguments import doubles
from fastmf.models._moments import blocks_of, factor, rows_of

# A share below this is the rounding of printed z-scores; one above is said to the user.
ROUNDING_SHARE, NOTABLE_SHARE = 1e-3, 0.02
# Smallest eigenvalue of a factorised R: that of correlations printed with some digits.
MIN_ROUNDING = 1e-10
# Distance of a z-score from what the others say, and size of both, for a wrong sign.
FLIP_DEVIATIONS, FLIP_SIZE, MAX_FLIPS = 4.0, 2.0, 20
# Nats by which a share must be likelier than the smallest one.
MIN_GAIN = 4.0
# Probability of z-scores of no effects to be as small as those given, below which they are none;
# and the probability of one score to be between 0 and 1, as p-values are.
MIN_NULL_PROBABILITY, PROBABILITY_OF_UNIT_INTERVAL = 1e-3, float(ndtr(1.0) - ndtr(0.0))
# Correlations of features, and their different moduli, from which one decimal is no coincidence.
MIN_CORRELATIONS, MIN_MODULI = 10, 4


class Summary(NamedTuple):
    """Rows with the moments of a summary, block by block.

    Parameters
    ----------
    units : list of int arrays
        The features of every block.
    rows : list of (array, array)
        Rows and their target.
    share : float
        Largest share s of a block: 0 if R fits z.
    flipped : int array
        Features whose z-scores have other signs than R and the other z-scores say.
    remarks : list of str
        Texts about other faults of z and R.
    """

    units: list
    rows: list
    share: float
    flipped: np.ndarray
    remarks: list

    def message(self):
        """Text about a mismatch and other remarks, or None."""
        return " ".join([*self._mismatch(), *self.remarks]) or None

    def _mismatch(self):
        if self.share <= NOTABLE_SHARE and not len(self.flipped):
            return
        faults = []
        if self.share > 0:
            faults.append(
                f"{self.share:.2g} of the variance of z is not of correlations R, which was drawn "
                "to the identity by as much"
            )
        if len(self.flipped):
            listed = ", ".join(map(str, self.flipped[:10]))
            faults.append(f"the z-scores of features {listed} have the wrong sign")
        yield (
            f"R does not fit z: {', and '.join(faults)}. Give the R of the rows of z, and check "
            "the coding of the features."
        )


def summary_of(z, R, n):
    """Rows with the moments of z-scores, correlations and a number of rows.

    Parameters
    ----------
    z : array of shape (n_features,)
    R : array, list of arrays (blocks), or SciPy sparse matrix
    n : float

    Returns
    -------
    Summary
    """
    z, n = _checked(z, n)
    # In the range of R, if that is of the same rows; z itself is not.
    z = z * np.sqrt(n / (n - 2 + z * z))
    blocks = blocks_of(R, "R")
    if sum(len(units) for units, _ in blocks) != len(z):
        total = sum(len(units) for units, _ in blocks)
        raise ValueError(f"R must have as many rows as z has elements, {len(z)}, got {total}.")
    for _, block in blocks:
        _check_correlations(block)
    remarks = [*too_small(z, blocks), *_rounded(z, blocks)]
    rows, share, flipped = [], 0.0, []
    for units, block in blocks:
        own, found, wrong = mismatch(z[units], block)
        share, flipped = max(share, found), [*flipped, *units[wrong]]
        if found > ROUNDING_SHARE:
            block = (1 - found) * block + found * np.eye(len(own))
        X, y = _rows(block, own / np.sqrt(n))
        # Features explain at most all of y. (Blocks together may seem to explain more, if they are
        # not quite uncorrelated in these rows.)
        if (explained := float(y @ y)) > 1 + 1e-9:
            y, share = y / np.sqrt(explained), max(share, 1 - 1 / explained)
        rows.append((np.sqrt(n) * X, np.sqrt(n) * y))
    units = [units for units, _ in blocks]
    return Summary(units, rows, share, np.array(sorted(flipped), int), remarks)


def too_small(z, blocks):
    """Text about values that are too small for z-scores, if they are."""
    n_independent = len(z) ** 2 / sum(float(np.square(block).sum()) for _, block in blocks)
    probability, kind = float(chdtr(n_independent, n_independent * np.mean(z * z))), "coefficients"
    if (z >= 0).all() and (z <= 1).all() and z.any():
        # Between 0 and 1, and the smallest one as near to 0 as it is, as p-values of effects are.
        beyond = ndtr(1.0) - ndtr(z[z > 0].min())
        in_unit = PROBABILITY_OF_UNIT_INTERVAL**n_independent - beyond**n_independent
        probability, kind = min(probability, in_unit), "p-values"
    if probability < MIN_NULL_PROBABILITY:
        yield (
            f"z seem to be {kind}, not z-scores: they are from {z.min():.3g} to {z.max():.3g}, and "
            f"z-scores are as small with probability {probability:.1g} even without any effect. "
            "Give z = coefficient / standard error, or sign(coefficient) * "
            "scipy.stats.norm.isf(p_value / 2)."
        )


def _rounded(z, blocks):
    """Text about correlations that were rounded to one decimal, if they seem to be."""
    n, seen = 0, np.zeros(11, bool)
    # A row at a time: the first one ends it where R is not rounded, and R may fill the memory.
    for row in (block[k, k + 1 :] for _, block in blocks for k in range(len(block))):
        tenths = np.rint(10 * row)
        if abs(row - tenths / 10).max(initial=0) > 1e-6:
            return
        n += len(row)
        seen[abs(tenths).astype(int)] = True
    if n >= MIN_CORRELATIONS and seen.sum() >= MIN_MODULI:
        yield (
            "R seems to be rounded to one decimal: next to an effect, scores are wrong by up to "
            f"{0.05 * abs(z).max():.2g}, and probabilities of correlated features with them. Give "
            "four decimals or more."
        )


def _checked(z, n):
    z = doubles("z", z)
    if z.ndim != 1 or not len(z):
        raise ValueError(f"z must be a vector of z-scores, got shape {z.shape}.")
    if not np.isfinite(z).all():
        raise ValueError(f"z must be finite, got {z[~np.isfinite(z)][0]} for a feature.")
    n = np.asarray(n)
    if n.ndim or n.dtype.kind not in "iuf" or not 2 < n < np.inf:
        raise ValueError(f"n must be a number of rows above 2, got {n!s:.40}.")
    return z, float(n)


def _check_correlations(R):
    if R.ndim != 2 or R.shape[0] != R.shape[1]:
        raise ValueError(f"R must be a square matrix of correlations, got shape {R.shape}.")
    if not np.isfinite(R).all():
        raise ValueError("R must be finite, got NaN or infinity.")
    if abs(R.diagonal() - 1).max() > 1e-3:
        raise ValueError(
            "R must have ones on its diagonal, as correlations do: for covariances use fit_moments."
        )
    if abs(R - R.T).max() > 1e-5 or abs(R).max() > 1 + 1e-3:
        raise ValueError("R must be symmetric, of correlations between -1 and 1.")


def _rows(R, r):
    """Rows and target with these correlations, negative eigenvalues of which are cut."""
    try:
        return rows_of(R, r, MIN_ROUNDING)[:2]
    except ValueError:
        values, projected, vectors = _eigen(r, R)
        return np.sqrt(values)[:, None] * vectors, projected / np.sqrt(values)


def mismatch(z, R):
    """The share of z that is not of correlations R, and features of the wrong sign.

    Returns
    -------
    array of shape (n_features,)
        z, with what the others say in the place of scores of the wrong sign.
    float
    int array
    """
    z = z.copy()
    values, _, vectors = _eigen(z, R)
    # Precisions of z under noise of nearly this covariance, without effects.
    shrunk = (1 / (values + ROUNDING_SHARE) - 1 / ROUNDING_SHARE)[:, None] * vectors
    diagonal = 1 / ROUNDING_SHARE + (vectors * shrunk).sum(0)
    flipped = []
    while len(flipped) < MAX_FLIPS:
        solved = z / ROUNDING_SHARE + (vectors @ z) @ shrunk
        expected, distance = z - solved / diagonal, abs(solved) / np.sqrt(diagonal)
        large = np.minimum(abs(expected), abs(z)) > FLIP_SIZE
        wrong = np.where(large & (expected * z < 0), distance, 0)
        worst = int(np.argmax(wrong))
        if wrong[worst] <= FLIP_DEVIATIONS:
            break
        flipped.append(worst)
        z[worst] = expected[worst]
    return z, _share(z, values, vectors), np.array(sorted(set(flipped)), int)


def _share(z, values, vectors):
    """The share of z that is not of the correlations with these eigenvalues and vectors."""
    from scipy.optimize import minimize  # costs more than all else at import

    projected = vectors @ z
    rest, n_rest = max(float(z @ z - projected @ projected), 0.0), len(z) - len(values)

    def minus_likelihood(x):
        t, s = np.exp(x)
        s = min(s, 1.0)
        variance = t * values**2 + (1 - s) * values + s
        return (
            np.log(variance).sum() + (projected**2 / variance).sum() + n_rest * x[1] + rest / s
        ) / 2

    starts = [(a, b) for a in (-7.0, 0.0) for b in (-12.0, -5.0, -1.0)]
    bounds = [(-20.0, 20.0), (np.log(1e-9), 0.0)]
    found = min(
        (minimize(minus_likelihood, start, bounds=bounds, method="L-BFGS-B") for start in starts),
        key=lambda result: result.fun,
    )
    share = float(np.exp(found.x[1]))
    none = minus_likelihood([found.x[0], np.log(ROUNDING_SHARE)])
    return share if share > ROUNDING_SHARE and none - found.fun > MIN_GAIN else 0.0


def _eigen(z, R):
    """Positive eigenvalues of R, products of z with their vectors, and the vectors in rows."""
    try:
        X, _ = factor(R, MIN_ROUNDING)
        if len(X) < len(z):
            values, left = np.linalg.eigh(X @ X.T)
            kept = values > MIN_ROUNDING
            values = values[kept]
            vectors = (left[:, kept].T @ X) / np.sqrt(values)[:, None]
            return values, vectors @ z, vectors
    except ValueError:
        pass  # eigenvalues below 0 are cut
    values, vectors = np.linalg.eigh(R)
    kept = values > MIN_ROUNDING
    return values[kept], z @ vectors[:, kept], vectors[:, kept].T
