"""Posterior of the edges of a network, as estimators report it."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg

from fastmf._common.arguments import one_of, positive, proper_fraction
from fastmf._common.linalg import MIN_EIGENVALUE, LinAlgError
from fastmf._common.names import pandas
from fastmf._common.warning import warn_user
from fastmf.estimators.common.convergence import warn_of_convergence
from fastmf.estimators.common.slabs import slab_interval
from fastmf.learning.evidence.edges import SLABS, EffectSets, SingleEffects, Whitened
from fastmf.learning.pseudo_likelihood.fit import few_blas_threads, newton
from fastmf.learning.pseudo_likelihood.godambe import Godambe
from fastmf.special import sigmoid

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
    """Covariances of the couplings of each feature, without pairs that share none."""

    features: tuple  # numbers of the features that have couplings
    edges: tuple  # int arrays: numbers of the couplings of each feature
    blocks: tuple  # covariances of these

    def __add__(self, other):
        """Covariances of sums of independent estimates."""
        blocks = tuple(a + b for a, b in zip(self.blocks, other.blocks, strict=True))
        return self._replace(blocks=blocks)

    def diagonal(self):
        """Variances."""
        out = np.empty(max(members.max() for members in self.edges) + 1)
        for members, block in zip(self.edges, self.blocks, strict=True):
            out[members] = block.diagonal()
        return out


def shrunk(sandwich, naive, n_rows, sets):
    """Covariance with blocks of the sandwich within sets, and mixed correlations between sets."""
    # The sandwich of p couplings is the covariance of scores of n rows, whose inverse is too large
    # in the directions in which rows happen to vary little. Mixed with the naive correlations with
    # weight p / (p + n), probabilities of edges are calibrated for few rows, too. The result does
    # not depend on the coordinates of a set, an int array.
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
    """Estimates and information free of the penalty of the fit; None if rows are few."""
    # About any point t, with the mean score g and the negative Hessian H without a penalty, it is
    # as if t + H^-1 g were estimated with the covariance H^-1 J H^-1 / n. As the maximum may be far
    # away, or not exist, t is the mode with the prior of the couplings, of this scale. Of few rows
    # edges would then be too likely: the penalty counters that, and so does `FEW_ROWS_RATIO`.
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
    """Covariance along contrasts, of all or of each feature, not below `least` naive ones."""
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


class ScaleSensitivity(NamedTuple):
    """Results with other scales of the slab."""

    scale: np.ndarray  # (3,)
    log_evidence: np.ndarray  # (3,)
    probability: np.ndarray  # (3, n_features, n_features)


class PairsResult:
    """Matrices over pairs of features, which print as a line and convert to a data frame."""

    def __repr__(self):
        return f"{type(self).__name__}({len(self.names)} features)"

    def as_frame(self):
        """One line for each pair of features, as a pandas data frame."""
        pairs = np.triu_indices(len(self.names), 1)
        columns = {"first": self.names[pairs[0]], "second": self.names[pairs[1]]}
        for field in fields(self):
            value = getattr(self, field.name)
            if getattr(value, "shape", None) == 2 * self.names.shape:
                columns[field.name] = value[pairs]
        return pandas().DataFrame(columns)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class EdgeInclusion(PairsResult):
    """Posterior of couplings that are zero or not; see `edge_inclusion` of a machine.

    Parameters
    ----------
    probability : array of shape (n_features, n_features)
        Posterior probabilities that the couplings of a pair are not all zero, symmetric, with zero
        diagonal, like all matrices over pairs.
    log_bayes_factor : array of shape (n_features, n_features)
        Log of the evidence for couplings over that for their absence: negative where the data speak
        for absence.
    mean : array
        Posterior means with the weight at zero: of couplings in {0, 1} coding, (n_features,
        n_features), or as `couplings_` of a Potts machine, in the zero-sum gauge.
    std : array of shape (n_features, n_features), or None for Potts machines
        Posterior standard deviations, with the weight at zero.
    log_evidence : float
        Log-density of the estimates, in nats.
    inclusion_probability, scale : float
        Parameters of the prior, as given or learned.
    slab : str
    converged : bool
    sensitivity : ScaleSensitivity
        The same with half and twice the scale.
    names : array of str of shape (n_features,)
    """

    probability: np.ndarray
    log_bayes_factor: np.ndarray
    mean: np.ndarray
    std: np.ndarray | None
    log_evidence: float
    inclusion_probability: float
    scale: float
    slab: str
    converged: bool
    sensitivity: ScaleSensitivity | None
    names: np.ndarray

    def __repr__(self):
        p = self.probability[np.triu_indices(len(self.names), 1)]
        return (
            f"EdgeInclusion({(p > 0.9).sum()} of {len(p)} pairs with a probability above 0.9, "
            f"{(p < 0.1).sum()} below 0.1, log-evidence {self.log_evidence:.6g})"
        )

    def interval(self, level=0.95):
        """Equal-tailed credible intervals of single couplings, which may end at zero."""
        level = proper_fraction("level", level)
        if self.std is None:
            raise ValueError("intervals are of single couplings: those of Potts machines are sets.")
        ends = slab_interval(level, self.probability, self.mean, self.std**2)
        return np.stack(ends, axis=-1)

    def as_frame(self, level=0.95):
        """One line for each pair of features, as a pandas data frame."""
        frame = super().as_frame()
        if self.std is not None:
            pairs = np.triu_indices(len(self.names), 1)
            frame["lower"], frame["upper"] = self.interval(level)[pairs].T
        return frame


class Estimates(NamedTuple):
    """Contrasts of couplings that no change of gauge moves, with their covariance."""

    values: np.ndarray
    covariance: np.ndarray | NodeCovariances
    pairs: tuple
    names: np.ndarray
    sets: Sequence  # int arrays: the contrasts of each pair, one for a coupling in {0, 1} coding
    unpacked: Callable | None = None  # makes couplings of contrasts, unless these are couplings

    def matrix(self, values):
        """Values of pairs as a symmetric matrix with zero diagonal."""
        out = np.zeros((len(self.names), len(self.names)))
        out[tuple(self.pairs)] = values
        return out + out.T

    def couplings(self, values):
        """Contrasts as matrices of couplings."""
        return self.matrix(values) if self.unpacked is None else self.unpacked(values)

    def variances_of_sums(self, signs):
        """Variances of the sums of the couplings of each feature, each with its sign."""
        incidence = np.zeros((len(self.names), len(signs)))
        for ends in self.pairs:
            incidence[ends, np.arange(len(signs))] = signs
        if not isinstance(self.covariance, NodeCovariances):
            return ((incidence @ self.covariance) * incidence).sum(1)
        out = np.zeros(len(self.names))
        for k, edges, block in zip(*self.covariance, strict=True):
            out[k] = incidence[k, edges] @ block @ incidence[k, edges]
        return out

    def inclusion(self, inclusion_probability, scale, slab="gaussian", sensitivity=True):
        """Compute the `EdgeInclusion` of checked arguments, and with other scales."""
        log_odds = checked_prior(inclusion_probability, scale)
        one_of("slab", slab, SLABS)
        estimates, factor = self._effects()

        def with_prior(log_odds, scale):
            scale = None if scale is None else scale / factor
            return self._of(estimates.posterior(log_odds, scale, slab, 1 / factor), factor, slab)

        result = with_prior(log_odds, scale)
        if not sensitivity:
            return result
        log_odds = _log_odds(result.inclusion_probability)
        scales = result.scale * np.array([0.5, 1.0, 2.0])
        results = [with_prior(log_odds, scales[0]), result, with_prior(log_odds, scales[2])]
        evidence = np.array([each.log_evidence for each in results])
        probability = np.stack([each.probability for each in results])
        return replace(result, sensitivity=ScaleSensitivity(scales, evidence, probability))

    def _effects(self):
        """The effects whose posterior there is, and the factor of their scale."""
        if self.unpacked is not None:
            # The difference of two contrasts of states of a position has twice the deviation.
            return EffectSets(self.values, self.covariance, self.sets), 2.0
        if isinstance(self.covariance, NodeCovariances):
            nodes = self.covariance.blocks, self.covariance.edges
            return SingleEffects.of_nodes(self.values, *nodes), 1.0
        return SingleEffects.of(self.values, self.covariance), 1.0

    def _of(self, effects, factor, slab):
        """Results for the matrices of estimates; warns unless they have converged."""
        if not effects.converged:
            warn_of_convergence(
                "Expectation propagation has not converged: probabilities of inclusion are "
                "approximate. Give a smaller scale, or errors of more rows."
            )
        return EdgeInclusion(
            probability=self.matrix(effects.probability),
            log_bayes_factor=self.matrix(effects.log_odds - effects.prior_log_odds),
            mean=self.couplings(effects.mean),
            std=self.matrix(effects.std) if self.unpacked is None else None,
            log_evidence=effects.log_evidence,
            inclusion_probability=float(sigmoid(np.float64(effects.prior_log_odds))),
            scale=float(factor * effects.scale),
            slab=slab,
            converged=effects.converged,
            sensitivity=None,
            names=self.names,
        )

    def deviations(self):
        """Standard errors of the couplings."""
        if self.unpacked is None:
            return self.matrix(np.sqrt(self.covariance.diagonal()))
        factor = np.linalg.cholesky(self.covariance)
        return np.sqrt(sum(np.square(self.unpacked(column)) for column in factor.T))

    def chi_squares(self):
        """Squared contrasts of each pair in units of their covariance."""
        if self.unpacked is None:
            return self.values**2 / self.covariance.diagonal()
        return np.array([
            self.values[k] @ np.linalg.solve(self.covariance[np.ix_(k, k)], self.values[k])
            for k in self.sets
        ])  # fmt: skip

    def chi_square(self):
        """The same of all contrasts; NaN where only covariances of each feature are known."""
        if isinstance(self.covariance, NodeCovariances):
            return np.nan
        return Whitened.of(self.values, self.covariance).chi_square


def checked_prior(inclusion_probability, scale):
    """Log-odds of the prior, None if they are to be learned; both arguments are checked."""
    if inclusion_probability is not None:
        positive("inclusion_probability", inclusion_probability, 1.0)
    if scale is not None:
        positive("scale", scale)
    return None if inclusion_probability is None else _log_odds(inclusion_probability)


def _log_odds(probability):
    return np.log(probability) - np.log1p(-probability)
