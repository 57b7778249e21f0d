"""Covariances of the couplings of a fit, for reports on its network."""

import contextlib
from typing import NamedTuple

import numpy as np
from scipy import linalg

from fastmf._common.linalg import MIN_EIGENVALUE, LinAlgError
from fastmf._common.warning import warn_user
from fastmf.learning.pseudo_likelihood.fit import few_blas_threads
from fastmf.learning.pseudo_likelihood.godambe import Godambe
from fastmf.learning.pseudo_likelihood.newton import newton

# Couplings up to which the covariances of all of them are taken; beyond, feature by feature.
MAX_JOINT = 1000

# Share of a penalty in the curvature of a coupling beyond which its error says little.
MAX_PENALTY_SHARE = 0.3
# Median share of the prior from which rows are too few to take a penalty off: in simulated tables
# of 50 to 150 rows edges were better with a penalty of 0.02 to 0.1 than without.
MAX_PRIOR_SHARE = 0.1
# Prior precision of fields relative to couplings.
FIELD_SHARE = 0.01
# Smallest ratio of variances of the sandwich to naive ones where rows are few, whose sandwich is
# too small: the ratio of independent features. With 200 rows and more it makes no difference.
FEW_ROWS_RATIO = 2.0


class NodeCovariances(NamedTuple):
    """Covariances of the couplings of each feature, without pairs that share none.

    `features` have couplings, whose numbers are `edges`, and covariances `blocks`, feature by
    feature.
    """

    features: tuple
    edges: tuple
    blocks: tuple

    def __add__(self, other):
        """Covariances of sums of independent estimates."""
        blocks = tuple(a + b for a, b in zip(self.blocks, other.blocks, strict=True))
        return self._replace(blocks=blocks)

    def __mul__(self, factor):
        """Covariances of multiples."""
        return self._replace(blocks=tuple(factor * block for block in self.blocks))

    def diagonal(self):
        """Variances."""
        out = np.empty(max(members.max() for members in self.edges) + 1)
        for members, block in zip(self.edges, self.blocks, strict=True):
            out[members] = block.diagonal()
        return out


def shrunk(sandwich, naive, n_rows, sets):
    """Covariance with the covariances of the sandwich within sets, and correlations between both.

    The sandwich of p couplings is the covariance of scores of n rows, whose inverse is too large in
    the directions in which rows happen to vary little. Its correlations are therefore mixed with
    the naive correlations, with weight p / (p + n): probabilities of edges are then
    calibrated for few rows, too, and fewer rows than couplings do no harm. Whichever coordinates a
    set, an int array, has, the result is the same.
    """
    p = len(sandwich)
    weight = p / (p + n_rows)
    ratio = np.zeros((p, p))
    for members in sets:
        block = np.ix_(members, members)
        ratio[block] = _ratio(sandwich[block], naive[block])
    return (1 - weight) * sandwich + weight * ratio @ naive @ ratio


def _ratio(sandwich, naive):
    """The positive semidefinite matrix M with M naive M = sandwich."""
    values, vectors = linalg.eigh(naive)
    values = np.maximum(values, np.finfo(float).eps * values[-1])
    root = (vectors * np.sqrt(values)) @ vectors.T
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    values, vectors = linalg.eigh(root @ sandwich @ root)
    return inverse @ (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T @ inverse


def raised(sandwich, naive, least, sets):
    """Covariance with at least `least` times the naive variances in all directions of sets."""
    out = sandwich.copy()
    for members in sets:
        block = np.ix_(members, members)
        values, vectors = linalg.eigh(sandwich[block], naive[block])
        root = naive[block] @ vectors
        out[block] += (root * np.maximum(least - values, 0)) @ root.T
    return out


def singular(covariance):
    """Whether a covariance has directions, beside its variances, without any."""
    deviations = np.sqrt(np.maximum(covariance.diagonal(), 0))
    if not (np.isfinite(covariance).all() and (deviations > 0).all()):
        return True
    correlation = covariance / np.outer(deviations, deviations)
    return linalg.eigvalsh(correlation, subset_by_index=[0, 0])[0] < MIN_EIGENVALUE


def warn_of_penalty(shares, what="penalty"):
    """Warn if a penalty, beside the rows, determines some couplings."""
    n = int((shares > MAX_PENALTY_SHARE).sum())
    if n:
        warn_user(
            f"the {what} makes up {MAX_PENALTY_SHARE:.0%} or more of the information about {n} of "
            f"{len(shares)} couplings, which are pulled to zero with errors that are too small, so "
            "that probabilities are not calibrated: give a smaller l2, more rows, fewer features, "
            "or leave out those that hardly vary."
        )


def without_penalty(godambe, contrasts, scale, precision):
    """Estimates and information free of the penalty of the fit; None if rows are few.

    A posterior with its own prior needs the likelihood alone. About any point t, with the mean
    score g and the negative Hessian H without a penalty, it is as if t + H^-1 g were estimated with
    the covariance H^-1 J H^-1 / n. As the maximum may be far away, or not exist, t is the mode with
    the prior of the couplings, of this scale, whose precision along contrasts is given.

    Of few rows edges would then be too likely; the penalty of the fit counters that to some degree,
    and so do variances of `FEW_ROWS_RATIO`.
    """
    objective, n = godambe.objective, len(godambe.parameters)
    ridge = np.full(n, scale**2 / objective.total)
    # Weak for fields: it matters where the rows have a single value.
    ridge[: objective.n_fields] *= FIELD_SHARE
    with contextlib.suppress(LinAlgError), few_blas_threads(n):
        point = newton(objective.with_ridge(ridge), godambe.parameters).parameters
        free = objective.with_ridge(np.zeros(n))
        information = Godambe(free, point, godambe.sampling)
        inverse = information.naive_covariance() * objective.total
        covariance = contrasts @ inverse @ contrasts.T / objective.total
        shares = precision * covariance.diagonal()
        shares /= 1 + shares
        if not np.median(shares) < MAX_PRIOR_SHARE or (objective.singular and singular(covariance)):
            return None
        warn_of_penalty(shares, "prior")
        return point + inverse @ objective.mean_score(point), information
    return None


def contrast_covariance(godambe, contrasts, sets, errors, least=0.0):
    """Covariance along contrasts: of all, or (`NodeCovariances`) of each feature.

    Variances of the sandwich are at least `least` times the naive ones.
    """
    pairs, features, edges = godambe.objective.pairs, np.zeros(0, int), ()
    sets_of_blocks, subsets = [sets], [contrasts]
    if not godambe.objective.singular and len(sets) > MAX_JOINT:
        features = np.unique(np.concatenate(pairs))
        edges = tuple(np.flatnonzero((pairs[0] == k) | (pairs[1] == k)) for k in features)
        subsets = [contrasts[edge] for edge in edges]
        sets_of_blocks = [np.arange(len(edge))[:, None] for edge in edges]
    sandwich, naive = godambe.covariances_along(subsets)
    # Contrasts are multiples of orthonormal ones, of couplings with one penalty.
    ridge = np.broadcast_to(godambe.objective.ridge, len(godambe.parameters))[-1]
    ridge = ridge * godambe.objective.total / contrasts[[0]].power(2).sum()
    shares = np.zeros(contrasts.shape[0])
    for edge, block in zip(edges or [slice(None)], naive, strict=True):
        shares[edge] = ridge * block.diagonal()
    warn_of_penalty(shares)
    if errors == "sandwich":
        naive = [
            shrunk(raised(a, b, least, sets), b, godambe.effective_rows, sets)
            for a, b, sets in zip(sandwich, naive, sets_of_blocks, strict=True)
        ]
    return NodeCovariances(tuple(features.tolist()), edges, tuple(naive)) if edges else naive[0]
