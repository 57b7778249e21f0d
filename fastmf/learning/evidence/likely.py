"""Initial search for hyper-parameters with the likely features only.

Most features are less probable given the data than a priori, and nearly certain to be zero for any
hyper-parameters. Without blocks of such features only, fixed points are cheap; they are close to
fixed points with all features, so that the subsequent search takes few steps.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logit

from fastmf.inference.ep.partition import correlated_blocks, unit_columns
from fastmf.inference.fixed_point import with_changes
from fastmf.inference.gaussian.blocks import labels_of
from fastmf.learning.evidence import gaussian_statistics
from fastmf.learning.evidence.blocks import with_grams
from fastmf.learning.evidence.search import bounds_of, maximise_evidence, n_included


class _Likely(NamedTuple):
    """A part of a task, and its likely features."""

    part: object  # Regression or Classification
    lead: object  # ExpectationPropagation of all units
    units: np.ndarray  # int: likely features, and all units that are not features

    @classmethod
    def of(cls, part, lead, hyperparameters):
        """Choose likely features, given a fixed point with these hyper-parameters."""
        n, prior = len(part.groups), hyperparameters.prior(part.groups)
        gain = prior.tilted_log_odds(lead.b[:n], lead.a[:n]) - prior.log_odds
        likelier = gain > 0
        likelier[gain.argmax()] = True  # a part needs at least one feature
        labels = part.blocks.labels[:n]
        chosen = np.append(np.isin(labels, labels[likelier]), np.ones(len(lead.b) - n, bool))
        return cls(part, lead, np.flatnonzero(chosen))

    def reduced(self):
        """Return the part with its likely features, and initial sites."""
        part, units = self.part, self.units
        columns, features = (units[units < n] for n in (part.X.shape[1], len(part.groups)))
        blocks = part.blocks._replace(labels=part.blocks.labels[columns])
        X, groups = part.X.take(columns, axis=1), part.groups[features]
        lead = with_changes(self.lead, sites=self.lead.sites[:, units])
        return part._replace(X=X, groups=groups, blocks=blocks), lead

    def extended(self, result, model, n_rows):
        """Return the part with blocks and sites from a fixed point of the reduced part.

        Blocks of the other features are recomputed, because weak effects had no blocks before.
        """
        part, sites = self.part, self.lead.sites.copy()
        sites[:, self.units] = result.sites
        blocks = tuple((self.units[block], T) for block, T in result.block_sites or ())
        free = np.ones(part.X.shape[1], bool)
        free[self.units[self.units < len(free)]] = False
        residual = model.y - model.prediction(gaussian_statistics(result)[0])
        scores = abs(unit_columns(part.X).T @ residual)
        joined = [units for units, _ in blocks] + correlated_blocks(part.X, scores, n_rows, free)
        labels = labels_of(joined, len(free))
        part = part._replace(blocks=part.blocks._replace(labels=labels))
        return part, with_changes(self.lead, sites=sites, block_sites=blocks)


def likely_start(task, start, fixed, leads, **options):
    """Return task, hyper-parameters and sites for the start of a search with all features.

    `leads` are fixed points of all parts at the hyper-parameters `start`, or None. Without single
    sites in all of them, the arguments are returned.
    """
    have_single_sites = (lead is not None and lead.block_sites is None for lead in leads)
    if not all(have_single_sites) or any(part.blocks is None for part in task.parts):
        return task, start, leads
    pairs = [_Likely.of(*of, start) for of in zip(task.parts, leads, strict=True)]
    parts, results = zip(*(pair.reduced() for pair in pairs), strict=True)
    groups = np.concatenate([part.groups for part in parts])
    small = with_grams(task._replace(parts=parts, groups=groups))
    point = maximise_evidence(small, start, fixed, results=results, **options)
    if not point.converged:
        return task, start, leads
    values, n_of_groups = point.hyperparameters, np.bincount(task.groups)
    if not fixed.log_odds:  # features that are not likely count as zero
        n = n_included(point, np.bincount(groups, minlength=len(n_of_groups)))
        odds = logit(np.clip(n / n_of_groups, 0, 1))
        values = values._replace(log_odds=np.clip(odds, *bounds_of(task, len(odds))[-1]))
    models = [part.model(point.hyperparameters) for part in parts]
    triples, n_rows = zip(pairs, point.results, models, strict=True), task.total_rows
    extended = (pair.extended(of, model, n_rows) for pair, of, model in triples)
    parts, results = zip(*extended, strict=True)
    return task._replace(parts=parts), values, results
