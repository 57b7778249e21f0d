"""Posterior of the edges of a network, as estimators report it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from fastmf._common.arguments import one_of, positive, proper_fraction
from fastmf._common.names import pandas
from fastmf._common.warning import warn_user
from fastmf.estimators.common.slabs import quantile, slab_moments
from fastmf.estimators.networks.covariances import NodeCovariances
from fastmf.learning.evidence.edges import SLABS, EffectSets, SingleEffects, Whitened
from fastmf.special import sigmoid


class ScaleSensitivity(NamedTuple):
    """Results with other scales of the slab.

    Parameters
    ----------
    scale : array of shape (3,)
    log_evidence : array of shape (3,)
    probability : array of shape (3, n_features, n_features)
    """

    scale: np.ndarray
    log_evidence: np.ndarray
    probability: np.ndarray


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
        moments = slab_moments(self.mean, self.std**2, self.probability)
        ends = [quantile(q, self.probability, *moments) for q in ((1 - level) / 2, (1 + level) / 2)]
        return np.stack(ends, axis=-1)

    def as_frame(self, level=0.95):
        """One line for each pair of features, as a pandas data frame."""
        frame = super().as_frame()
        if self.std is not None:
            pairs = np.triu_indices(len(self.names), 1)
            frame["lower"], frame["upper"] = self.interval(level)[pairs].T
        return frame


class Estimates(NamedTuple):
    """Couplings, as contrasts in sets of one for each pair of features, with their covariance.

    A coupling in {0, 1} coding is a set of one. Contrasts of the couplings of a pair of positions
    are directions that no change of gauge moves; `unpacked` makes couplings of them.
    """

    values: np.ndarray
    covariance: np.ndarray | NodeCovariances
    pairs: tuple
    names: np.ndarray
    sets: Sequence
    unpacked: Callable | None = None

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
            warn_user(
                "Expectation propagation has not converged: probabilities of inclusion are "
                "approximate. Give a smaller scale, or errors of more rows.",
                ConvergenceWarning,
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
