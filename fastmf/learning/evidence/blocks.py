"""Blocks of correlated features in the tasks of spike-and-slab models."""

import numpy as np

from fastmf._common.linalg import Gram
from fastmf._common.stored_columns import StoredColumns
from fastmf.inference.ep.block_partition import FoundBlocks, blocks_of, checked_labels
from fastmf.inference.ep.expectation_propagation import Leads
from fastmf.inference.gaussian.blocks import labels_of
from fastmf.learning.evidence import Regression


def _with_parts(task, change):
    """The task with a function of each part in its place."""
    return task._replace(parts=tuple(map(change, task.parts)))


def with_grams(task):
    """The task whose models share the products of the features, as long as it is in use."""

    def with_gram(part):
        dense = isinstance(part, Regression) and not isinstance(part.X, StoredColumns)
        return part._replace(gram=Gram(part.X)) if dense else part

    return _with_parts(task, with_gram)


def with_blocks(task, blocks, start=None, n_threads=None):
    """The task with blocks in all of its parts."""
    if isinstance(blocks, str) and blocks == "auto":
        return _with_parts(
            task, lambda part: _with_found_blocks(part, task.total_rows, start, n_threads)
        )
    parts = []
    labels = None if blocks is None else checked_labels(blocks, len(task.groups))
    for part, units in zip(task.parts, task.units, strict=True):
        members = blocks_of(_features_of(part), None if labels is None else labels[units])
        labels_of_part = labels_of(members, part.X.shape[1]) if members else None
        parts.append(part._replace(blocks=labels_of_part))
    return task._replace(parts=tuple(parts))


def _features_of(part):
    """The columns of a part without those behind them, which are always in, and in no block."""
    n = len(part.groups)
    return part.X if n == part.X.shape[1] else part.X[:, :n]


def _with_found_blocks(part, n_rows, start, n_threads):
    """A part with blocks of correlated features, about features that seem to have effects."""
    X, leads, scores = _features_of(part), None, None
    if start is not None:
        leads = Leads(part.model(start), n_threads)
        scores = lambda: leads()[: X.shape[1]]  # noqa: E731
    gaussian = isinstance(part, Regression)
    members = blocks_of(X, "auto", n_rows, scores, few_are_one=gaussian)
    if not members:
        return part._replace(blocks=None)
    lead = None if leads is None else leads.result
    labels = labels_of(members, part.X.shape[1])
    return part._replace(blocks=FoundBlocks(labels, lead=lead))


def with_blocks_of(task, results):
    """The task with the blocks of results of its parts, which may have been joined."""
    parts = []
    for part, result in zip(task.parts, results, strict=True):
        if isinstance(part.blocks, FoundBlocks):
            members = [units for units, _ in result.block_sites or ()]
            labels = labels_of(members, part.X.shape[1])
            part = part._replace(blocks=part.blocks._replace(labels=labels))
        parts.append(part)
    return task._replace(parts=tuple(parts))


def same_blocks(first, second):
    """Whether two results of each part have the same blocks, with patterns of the same sizes."""
    return all(
        np.array_equal(a.most_included, b.most_included) for a, b in zip(first, second, strict=True)
    )


def with_found_blocks(task, change):
    """The task with a function of the blocks that were found in the data in their place."""

    def changed(part):
        is_found = isinstance(part.blocks, FoundBlocks)
        return part._replace(blocks=change(part.blocks)) if is_found else part

    return _with_parts(task, changed)


def labels_of_task(task):
    """The number of the block of every feature, in the order of the features."""
    members = []
    for part, units in zip(task.parts, task.units, strict=True):
        if part.blocks is not None:
            features = np.arange(len(task.groups))[units]
            members += [features[block] for block in blocks_of(part.X, part.blocks)]
    return labels_of(members, len(task.groups))
