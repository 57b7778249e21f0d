"""Blocks of correlated features in the tasks of spike-and-slab models."""

import numpy as np

from fastmf._common.linalg import Gram
from fastmf._common.stored_columns import StoredColumns
from fastmf.inference.ep.block_partition import FoundBlocks, blocks_of, checked_labels
from fastmf.inference.ep.expectation_propagation import Leads
from fastmf.inference.gaussian.blocks import labels_of
from fastmf.learning.evidence import Loci, Regression

# How often blocks are joined for one value of the parameters, during the search.
SEARCH_JOINS = 2
# Noise from which the search starts if there are blocks, in variances of y: with less of it, many
# effects have a place in several blocks, and fixed points are hard to find.
FIRST_NOISE = 0.6


def quiet_parameters(task, start, fixed):
    """Hyper-parameters with much noise, unless it is fixed, with which blocks are found."""
    if fixed.noise_variance:
        return start
    noise_variance = max(start.noise_variance, FIRST_NOISE * task.scale)
    return start._replace(noise_variance=noise_variance)


def with_grams(task):
    """The task whose models share the products of the features, as long as it is in use."""
    parts = [
        part._replace(gram=Gram(part.X))
        if isinstance(part, Regression) and not isinstance(part.X, StoredColumns)
        else part
        for part in task.parts
    ]
    return with_parts(task, parts)


def has_blocks(task):
    """Whether features have sites together in any part."""
    return any(part.blocks is not None for part in task.parts)


def with_blocks(task, blocks, start=None, n_threads=None):
    """The task with blocks in all of its parts."""
    parts, n_features = [], len(task.groups)
    auto = isinstance(blocks, str) and blocks == "auto"
    if not (blocks is None or auto):
        blocks = checked_labels(blocks, n_features)
    for part, units in zip(task.parts, task.units, strict=True):
        own = blocks if blocks is None or auto else blocks[units]
        X = _features_of(part)
        if auto:
            part = part._replace(blocks=_found_blocks(part, X, task.total_rows, start, n_threads))
        else:
            members = blocks_of(X, own)
            part = part._replace(blocks=labels_of(members, part.X.shape[1]) if members else None)
        parts.append(part)
    return with_parts(task, parts)


def _features_of(part):
    """The columns of a part without those behind them, which are always in, and in no block."""
    n = len(part.groups)
    return part.X if n == part.X.shape[1] else part.X[:, :n]


def _found_blocks(part, X, n_rows, start, n_threads):
    """Blocks of correlated features of a part, about those that seem to have effects, or None."""
    leads, n = None, X.shape[1]
    if start is not None:
        leads = Leads(part.model(start), n_threads)
    scores = None if leads is None else lambda: leads()[:n]
    gaussian = isinstance(part, Regression)
    members = blocks_of(X, "auto", n_rows, scores, few_are_one=gaussian)
    if not members:
        return None
    lead = None if leads is None else leads.result
    return FoundBlocks(labels_of(members, part.X.shape[1]), SEARCH_JOINS, lead=lead)


def with_blocks_of(task, results):
    """The task with the blocks of these results of its parts, which may have been joined."""
    parts = []
    for part, result in zip(task.parts, results, strict=True):
        if isinstance(part.blocks, FoundBlocks):
            members = [units for units, _ in result.block_sites or ()]
            labels = labels_of(members, part.X.shape[1])
            part = part._replace(blocks=part.blocks._replace(labels=labels))
        parts.append(part)
    return with_parts(task, parts)


def same_blocks(results, others):
    """Whether two results of each part have the same blocks, with patterns of the same sizes."""
    return all(
        np.array_equal(one.most_included, other.most_included)
        for one, other in zip(results, others, strict=True)
    )


def with_found_blocks(task, change):
    """The task whose blocks that were found in the data are changed by a function."""
    parts = [
        part._replace(blocks=change(part.blocks)) if isinstance(part.blocks, FoundBlocks) else part
        for part in task.parts
    ]
    return with_parts(task, parts)


def labels_of_task(task):
    """The number of the block of every feature, in the order of the features."""
    members = []
    for part, units in zip(task.parts, task.units, strict=True):
        if part.blocks is not None:
            features = np.arange(len(task.groups))[units]
            members += [features[own] for own in blocks_of(part.X, part.blocks)]
    return labels_of(members, len(task.groups))


def with_parts(task, parts):
    """The task with other parts."""
    return task._replace(parts=tuple(parts)) if isinstance(task, Loci) else parts[0]
