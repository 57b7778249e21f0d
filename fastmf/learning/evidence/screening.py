"""Searches with the features that the data do not speak against, and what the others add.

Most features of many are nearly surely zero whatever the hyper-parameters are, and cost most of the
time of a fixed point. A search without them, in which each is a unit under the cavity exp(b w - a
w^2 / 2) that the others leave it,

    b = x'(y - X m) / s2,  a = x'x / s2 less what other features explain of it

adds their parts of the log-evidence and of its derivatives. What is left out is the little that
they take from each other: the search with all features goes on from where that one ends, most often
without a step (Alexandrov et al. 1998: a model of the objective, made to agree with it in the
gradient at the last point of both). As in the lasso, features are active or
screened, and screened ones that fit ill enter again (Tibshirani et al. 2012).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastmf._common.linalg import Gram
from fastmf._common.stored_columns import column_squares
from fastmf.inference.ep.block_partition import OPEN, FoundBlocks
from fastmf.inference.ep.result import ExpectationPropagation
from fastmf.inference.gaussian.blocks import labels_of, members_of
from fastmf.learning.evidence import Regression, gaussian_statistics
from fastmf.learning.evidence.blocks import with_parts
from fastmf.learning.evidence.curvature import evidence_curvature
from fastmf.special import sigmoid

# A block is active if one of its features is at least so many times as probable as under its
# prior. Without at most this part of the features a search takes about as long.
MIN_ACTIVE_RATIO, MAX_ACTIVE = 1.0, 0.7
# The ratio for blocks that are taken in later: with that above, some would come and go.
ENTERING_RATIO = 3.0
# Features that correlate by more than this with one whose effect is open may share it.
NEIGHBOUR_CORRELATION = 0.5
# Rows times features from which on searches without some of them take less time.
MIN_SIZE = 1 << 16
# Largest number of entries of the active columns, which are copied.
MAX_COPIED = 1 << 24
# Largest variance of the data that features which are left out explain, in units of the noise.
MAX_EXPLAINED = 0.2
# Smallest precision of a site of theirs to start from, in units of that of the slab.
MIN_SCREENED_PRECISION = 1e-3


class Cavities(NamedTuple):
    """Features under their cavities: what `evidence_curvature` needs of a result.

    Parameters
    ----------
    b, a, mean, var, inclusion_probability : array of shape (n_features,)
    """

    b: np.ndarray
    a: np.ndarray
    mean: np.ndarray
    var: np.ndarray
    inclusion_probability: np.ndarray
    block_sites: tuple = ()


class ActivePart(NamedTuple):
    """A part of a task without some of its features.

    Parameters
    ----------
    whole, part : Regression or Classification
        With and without them.
    units : int array
        The units of the whole that are left, latent variables included.
    screened : int array
        The features that are left out.
    information : array of shape (n_screened,)
        Precisions a of their cavities with noise of variance 1.
    """

    whole: object
    part: object
    units: np.ndarray
    screened: np.ndarray
    information: np.ndarray

    @classmethod
    def of(cls, whole, result, here):
        """The part of a task, by a result of it with these hyper-parameters; None if of no use."""
        n = len(whole.groups)
        if not isinstance(whole.blocks, FoundBlocks):
            return None
        prior = here.prior(whole.groups)
        included = result.inclusion_probability
        if included is None:
            included = sigmoid(prior.tilted_log_odds(result.b[:n], result.a[:n]))
        active = included[:n] > MIN_ACTIVE_RATIO * sigmoid(prior.log_odds)
        active = np.isin(whole.blocks.labels[:n], whole.blocks.labels[:n][active])
        squares = column_squares(whole.X)[:n]
        second = result.mean[:n] ** 2 + result.var[:n]
        explained = (second * squares)[~active].sum() / whole.total_rows
        if result.block_sites and explained > MAX_EXPLAINED * here.noise_variance:
            return None
        information = np.clip(result.a[:n] * here.noise_variance, 0, squares)
        return cls.with_features(whole, active, information[~active], len(result.mean))

    @classmethod
    def with_features(cls, whole, active, information, n_units):
        """The part with the features of a mask; None if that is of no use."""
        n = len(active)
        n_active = active.sum()
        few = n_active * len(whole.X) <= MAX_COPIED
        if not (few and 0 < n_active <= MAX_ACTIVE * n):
            return None
        units = np.append(np.flatnonzero(active), np.arange(n, n_units))
        columns = units[units < whole.X.shape[1]]
        X, blocks, lead = whole.X[:, columns], whole.blocks, whole.blocks.lead
        lead = lead and start_from(lead, lead.sites[:, units])
        blocks = blocks._replace(labels=blocks.labels[columns], lead=lead)
        part = whole._replace(X=X, groups=whole.groups[active], blocks=blocks)
        part = part._replace(gram=Gram(X)) if isinstance(part, Regression) else part
        return cls(whole, part, units, np.flatnonzero(~active), information)

    @classmethod
    def of_all(cls, whole):
        """A part with all of its features."""
        n = whole.X.shape[1]
        return cls(whole, whole, np.arange(n), np.empty(0, int), np.empty(0))

    def cavities(self, here, result):
        """The features that are left out, with these hyper-parameters and a result of the rest."""
        mean, _ = gaussian_statistics(result)
        X = self.part.X
        latent = mean[X.shape[1] :]
        # X has, of rows that stand for several, the multiples by the roots of their numbers.
        latent = latent * np.sqrt(self.part.weights) if latent.size else self.part.y
        residual = latent - X @ mean[: X.shape[1]]
        prior = here.prior(self.whole.groups[self.screened])
        b = (self.whole.X.T @ residual)[self.screened] / here.noise_variance
        a = self.information / here.noise_variance
        included = sigmoid(prior.tilted_log_odds(b, a))
        return Cavities(b, a, *prior.moments(b, a), included)

    def evidence(self, here, own, n_groups):
        """Their parts of the log-evidence and of its gradient."""
        groups = self.whole.groups[self.screened]
        prior, zero = here.prior(groups), np.zeros(len(groups))
        value = (prior.log_partition(own.b, own.a) - prior.log_partition(zero, zero)).sum()
        second = own.mean**2 + own.var
        by_noise = (own.a * second / 2 - own.b * own.mean).sum()
        by_slab = (second * prior.precision - own.inclusion_probability).sum() / 2
        by_odds = own.inclusion_probability - sigmoid(prior.log_odds)
        by_odds = np.bincount(groups, by_odds, n_groups)
        return value, np.concatenate([[by_noise, by_slab], by_odds])

    def curvature(self, here, own, n_groups):
        """Their part of `evidence_curvature`."""
        groups = self.whole.groups[self.screened]
        return evidence_curvature(here.prior(groups), own, groups, n_groups)

    def sites_of_screened(self, here, result):
        """Sites that give the features that are left out their moments under their cavities."""
        own, prior = self.cavities(here, result), here.prior(self.whole.groups[self.screened])
        precision = np.maximum(1 / own.var - own.a, MIN_SCREENED_PRECISION * prior.precision)
        return np.stack([own.mean * (precision + own.a) - own.b, precision])

    def extended(self, here, result):
        """The start of a solve with all features from a result without some."""
        sites = np.empty((2, len(self.units) + len(self.screened)))
        sites[:, self.units] = result.sites
        sites[:, self.screened] = self.sites_of_screened(here, result)
        return start_from(result, sites, [self.units[own] for own, _ in result.block_sites or ()])

    def restricted(self, result):
        """The start of a solve without some features from a result with all."""
        place = np.full(len(self.units) + len(self.screened), -1)
        place[self.units] = np.arange(len(self.units))
        members = [place[own] for own, _ in result.block_sites or ()]
        start = start_from(result, result.sites[:, self.units], members)
        return replace(start, full_probability=np.zeros(len(start.block_sites or ())))

    def widened(self, result, entering):
        """The part with some of the features left out, and their blocks; itself without any.

        None if that is of no use.
        """
        if not entering.any():
            return self
        whole = self.with_blocks(result)
        labels = whole.blocks.labels[: len(whole.groups)]
        active = np.ones(len(labels), bool)
        active[self.screened] = entering
        active = np.isin(labels, labels[active])
        n_units = len(self.units) + len(self.screened)
        information = self.information[~active[self.screened]]
        return ActivePart.with_features(whole, active, information, n_units)

    def with_entering(self, here, result, own):
        """The part with the features that have become active, by their cavities."""
        prior = sigmoid(here.log_odds[self.whole.groups[self.screened]])
        return self.widened(result, own.inclusion_probability > ENTERING_RATIO * prior)

    def with_neighbours(self, result):
        """The part with the features that correlate with one whose effect is open."""
        entering, n = np.zeros(len(self.screened), bool), len(self.part.groups)
        included = result.inclusion_probability
        if included is not None and entering.size:
            is_open = (included[:n] > OPEN) & (included[:n] < 1 - OPEN)
            columns, others = self.part.X[:, :n][:, is_open], self.whole.X
            norms = np.sqrt(column_squares(others))[self.screened, None]
            limits = NEIGHBOUR_CORRELATION * norms * np.sqrt(column_squares(columns))
            entering = (abs((others.T @ columns)[self.screened]) > limits).any(1)
        return self.widened(result, entering)

    def with_blocks(self, result):
        """The part with all features, with the blocks of a result without some."""
        if not isinstance(self.whole.blocks, FoundBlocks):
            return self.whole
        labels = self.whole.blocks.labels
        screened = np.isin(labels, labels[self.screened])
        members = [units for units in members_of(labels) if screened[units[0]]]
        members += [self.units[units] for units, _ in result.block_sites or ()]
        blocks = self.whole.blocks._replace(labels=labels_of(members, len(labels)))
        return self.whole._replace(blocks=blocks)


def start_from(result, sites, members=(), matrices=None):
    """Start of a solve from a result, with these sites and features of its blocks.

    Blocks with features of negative numbers are left out.
    """
    if matrices is None:
        matrices = [T for _, T in result.block_sites or ()]
    kept = [k for k, units in enumerate(members) if min(units) >= 0]
    blocks = tuple((members[k], matrices[k]) for k in kept)
    full, most = (
        None if values is None else values[kept]
        for values in (result.full_probability, result.most_included)
    )
    return ExpectationPropagation(
        mean=result.mean,
        var=result.var,
        b=result.b,
        a=result.a,
        log_partition=result.log_partition,
        converged=result.converged,
        n_iter=result.n_iter,
        residual=result.residual,
        message="",
        sites=sites,
        log_evidence=result.log_evidence,
        schedule=result.schedule,
        block_sites=blocks or None,
        full_probability=full,
        most_included=most,
    )


def moved(start, last, first, ratio=1.0):
    """A start, moved as the sites of two others differ; None if these are not of the same units.

    Parameters
    ----------
    start, last, first : ExpectationPropagation
    ratio : float, default 1.0
        How far, in units of their difference.
    """
    if last.sites.shape != first.sites.shape:
        return None
    sites = start.sites + ratio * (last.sites - first.sites)
    new, old = ({units.tobytes(): T for units, T in r.block_sites or ()} for r in (last, first))
    matrices = []
    for units, T in start.block_sites or ():
        key = units.tobytes()
        if (key in new) != (key in old):
            return None
        matrices.append(T + ratio * (new[key] - old[key]) if key in new else T)
    if new.keys() != old.keys():
        return None
    return start_from(start, sites, [units for units, _ in start.block_sites or ()], matrices)


def active_parts(task, results, here):
    """The parts of a task without features that the data speak against; None if of no use.

    Parameters
    ----------
    task : Regression, Loci or Classification
    results : sequence of ExpectationPropagation, or None
        Results of its parts with these hyper-parameters; None where there is none.
    here : Hyperparameters

    Returns
    -------
    list of ActivePart, or None
    """
    pairs = zip(task.parts, results, strict=True)
    parts = [result and ActivePart.of(part, result, here) for part, result in pairs]
    return _or_all(task.parts, parts)


def active_at_first(task, here, fixed):
    """`active_parts` by the results that blocks were found with; None if that saves no time."""
    learned = not all(np.all(known) for known in fixed)
    if not learned or sum(np.prod(part.X.shape) for part in task.parts) < MIN_SIZE:
        return None
    blocks = (part.blocks for part in task.parts)
    leads = [own.lead if isinstance(own, FoundBlocks) else None for own in blocks]
    return active_parts(task, leads, here)


def cavities_of(parts, here, results):
    """The features that are left out of each part."""
    return [part.cavities(here, result) for part, result in zip(parts, results, strict=True)]


def _or_all(wholes, parts):
    """These parts, or with all features where there are none; None if there are none at all."""
    if not any(parts):
        return None
    return [own or ActivePart.of_all(whole) for own, whole in zip(parts, wholes, strict=True)]


def active_task(task, parts):
    """The task of these parts alone."""
    return with_parts(task, [own.part for own in parts])


def whole_task(task, parts, results):
    """The task with all features, and the blocks of results without some."""
    blocks = [own.with_blocks(result) for own, result in zip(parts, results, strict=True)]
    return with_parts(task, blocks)
