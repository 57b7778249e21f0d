"""Credible sets of features: the smallest ones that hold an effect with a given probability.

Features that correlate, or share a block, are a component. Given all other features as
expectation propagation has them, it is a sparse linear model of its own, over whose
inclusion patterns there are sums or chains (`fastmf.inference.ep.inclusion_patterns`). Signals are
told apart pattern by pattern: the most probable feature leads, and each pattern's feature that
correlates most with it, by more than `MIN_LINK`, is where the signal is in that pattern; the
remaining features make the next signal.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fastmf.inference.ep.inclusion_patterns import inclusion_patterns
from fastmf.inference.gaussian.blocks import Blocks, inverse_with, members_of
from fastmf.models import SparseLinearModel
from fastmf.models.boltzmann import MAX_DENSE_UNITS
from fastmf.priors import GaussBernoulli

# Correlation from which on features may have the same effect, or depend on each other's.
MIN_LINK = 0.5
# Sum of the inclusion probabilities of features that are not linked and count as independent, if
# the correlations of all others are no more than a matrix may have.
MAX_UNLINKED_SUM = 1e-3


class CredibleSet(NamedTuple):
    """Features among which one has an effect: see `credible_sets` of an estimator."""

    features: np.ndarray
    probability: float
    coverage: float
    purity: float


class FittedPart(NamedTuple):
    """A part of a fitted model with independent features, at one value of the hyper-parameters."""

    units: np.ndarray  # int (n_features,)
    X: np.ndarray  # (n_rows, n_units): features, and columns without a spike last
    y: np.ndarray | None  # (n_rows,)
    noise_variance: float
    log_odds: np.ndarray  # (n_units,), of the prior
    precision: np.ndarray  # (n_units,), of the prior
    mean: np.ndarray  # (n_units,), of the posterior
    var: np.ndarray  # (n_units,): averages over all values of the hyper-parameters
    labels: np.ndarray  # int (n_units,): blocks
    sites: np.ndarray  # (2, n_units)
    matrices: np.ndarray  # elements of the matrices of sites, in the order of `Blocks`, and more
    # Rows (X, y) of noise variance 1 whose likelihood takes the place of latent variables.
    likelihood: tuple | None = None

    def model(self):
        """The sparse linear model of the part."""
        X, y = self.likelihood or (self.X, self.y)
        prior = GaussBernoulli(np.zeros(len(self.mean)), self.precision, self.log_odds)
        return SparseLinearModel(X, y, self.noise_variance, prior)

    def inverse(self):
        """The covariance of the units, which follows from the sites."""
        return inverse_with(self.model(), self.labels, self.sites, self.matrices)

    def components(self):
        """Return a function that makes the sparse linear model of a component of the units.

        It takes the units of the component's blocks and the active ones, without which they are
        zero; units of other blocks are Gaussian.
        """
        model, precision = self.model(), np.maximum(self.sites[1], self.precision)
        blocks = Blocks(members_of(self.labels), len(self.labels))
        elements = self.matrices[: blocks.squares[-1]].copy()
        # Sites of negative precision make cavities of other blocks improper: no site is wider than
        # the slab.
        for T, units in zip(blocks.matrices(elements), blocks.by_size, strict=True):
            values, vectors = np.linalg.eigh(T)
            values = np.maximum(values, self.precision[units])
            T[:] = vectors * values[:, None] @ np.swapaxes(vectors, 1, 2)
        inverse = inverse_with(model, self.labels, np.stack([self.sites[0], precision]), elements)
        # The linear term of the likelihood at the mean, not a difference of large sites.
        residual = (model.y - model.prediction(self.mean)) / self.noise_variance

        def component(units, active):
            sites = np.diag(precision[units])
            for M, members in zip(blocks.matrices(elements), blocks.by_size, strict=True):
                for T, block in zip(M, members, strict=True):
                    if np.isin(block[0], units):
                        place = np.searchsorted(units, block)
                        sites[np.ix_(place, place)] = T
            P = np.linalg.inv(inverse.covariance(units)) - sites
            linear = P @ self.mean[units]
            linear += np.asarray(model.X[:, units].T @ residual, np.float64)
            place = np.searchsorted(units, active)
            values, vectors = np.linalg.eigh(P[np.ix_(place, place)])
            proper = values > len(values) * np.finfo(float).eps * values[-1]
            roots, vectors = np.sqrt(values[proper]), vectors[:, proper]
            slabs = self.precision[active], self.log_odds[active]
            y = vectors.T @ linear[place] / roots
            prior = GaussBernoulli(np.zeros(len(active)), *slabs)
            return SparseLinearModel((vectors * roots).T, y, 1.0, prior)

        return component

    def correlations(self, units):
        """Correlations of the columns of some units."""
        columns = np.asarray(self.X[:, units], np.float64)
        length = np.sqrt(np.einsum("ij,ij->j", columns, columns))
        columns = columns / np.where(length > 0, length, 1.0)
        return columns.T @ columns


def linked(included):
    """The likeliest features, without the unlikeliest whose probabilities have a small sum."""
    order = np.argsort(-included, kind="stable")
    tail = np.cumsum(included[order][::-1])[::-1]
    return np.sort(order[tail > MAX_UNLINKED_SUM][:MAX_DENSE_UNITS])


def components_of(part, units):
    """Units, joined where they correlate or share a block: a list of int arrays."""
    if not len(units):
        return []
    labels, near = part.labels[units], abs(part.correlations(units)) > MIN_LINK
    first, second = np.nonzero(np.triu(near, 1))
    n = int(part.labels.max()) + 1
    links = coo_array((np.ones(len(first), bool), (labels[first], labels[second])), (n, n))
    _, component = connected_components(links, directed=False)
    of_units = component[labels]
    return [units[of_units == k] for k in np.unique(of_units)]


def joint_patterns(part, components, weights, included, units):
    """Patterns of a component at each value of the hyper-parameters, and their weights."""
    in_blocks = np.flatnonzero(np.isin(part.labels, part.labels[units]))
    return [
        (weight, inclusion_patterns(component(in_blocks, units), included[units], weight))
        for component, weight in zip(components, weights, strict=True)
    ]


def probability_of_any(members, chosen, included):
    """Probability that one of the chosen features is not zero, within its bounds by `included`."""
    probability = sum(weight * patterns.any_of(chosen) for weight, patterns in members)
    return float(np.clip(probability, included[chosen].max(), min(included[chosen].sum(), 1.0)))


def signals(part, units, members, least):
    """Yield where each effect among the units of a component is: a probability of every unit.

    Effects come in the order of their leads, as long as their probability is not below the least.
    """
    R = abs(part.correlations(units))
    remaining = [patterns.included.copy() for _, patterns in members]
    while True:
        marginal = sum(
            weight * (patterns.probability @ chosen)
            for (weight, patterns), chosen in zip(members, remaining, strict=True)
        )
        lead = int(np.argmax(marginal))
        likeness = np.where(R[lead] > MIN_LINK, R[lead], -1.0)
        likeness[lead] = 2.0
        at = sum(
            weight * patterns.places(chosen, likeness)
            for (weight, patterns), chosen in zip(members, remaining, strict=True)
        )
        if not at.sum() >= least:
            return
        yield at


def credible_sets(part, units, members, included, coverage):
    """The credible sets among the units of a component, by their number in the model."""
    R, sets, included = abs(part.correlations(units)), [], included[units]
    for at in signals(part, units, members, coverage):
        order = np.argsort(-np.round(at, 6), kind="stable")  # copies in their order
        held = np.minimum(np.cumsum(at[order]), np.cumsum(included[order]))
        size = int(np.searchsorted(held, coverage - 1e-9)) + 1
        if size > np.count_nonzero(at):
            continue
        chosen = order[:size]
        sets.append(
            CredibleSet(
                features=part.units[units[chosen]],
                probability=probability_of_any(members, chosen, included),
                coverage=min(float(at[chosen].sum() / at.sum()), 1.0),
                purity=float(R[np.ix_(chosen, chosen)].min()) if size > 1 else 1.0,
            )
        )
    return sets
