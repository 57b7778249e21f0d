"""Blocks of correlated features in tasks of spike-and-slab models."""

import numpy as np

from fastmf._common.linalg import Gram
from fastmf._common.stored_columns import StoredColumns
from fastmf.inference.ep.expectation_propagation import found_blocks
from fastmf.inference.ep.partition import FoundBlocks, checked_labels, members_with
from fastmf.inference.gaussian.blocks import labels_of
from fastmf.learning.evidence import Regression


def _with_parts(task, change):
    """Apply a function to each part of a task."""
    return task._replace(parts=tuple(map(change, task.parts)))


def with_grams(task):
    """Return the task with Gram matrices of the features, which all its models share."""

    def with_gram(part):
        dense = isinstance(part, Regression) and not isinstance(part.X, StoredColumns)
        return part._replace(gram=Gram(part.X)) if dense else part

    return _with_parts(task, with_gram)


def with_blocks(task, blocks, start, n_threads=None):
    """Return the task with blocks in all parts, and fixed points to start from."""
    parts, results = [], []
    is_auto = isinstance(blocks, str) and blocks == "auto"
    labels = None if blocks is None or is_auto else checked_labels(blocks, len(task.groups))
    for part, units in zip(task.parts, task.units, strict=True):
        # The columns after the features have no spike, and are in no block.
        (n, n_units), lead = (len(part.groups), part.X.shape[1]), None
        if is_auto:
            members, lead = found_blocks(part.model(start), n, task.total_rows, n_threads)
        else:
            members = members_with(None if labels is None else labels[units], n)
        labels_of_part = labels_of(members, n_units) if members else None
        if is_auto and members:
            labels_of_part = FoundBlocks(labels_of_part)
        parts.append(part._replace(blocks=labels_of_part))
        results.append(lead)
    return task._replace(parts=tuple(parts)), tuple(results)


def with_blocks_of(task, results):
    """Return the task with the blocks of results, in which blocks may have been joined."""
    parts = []
    for part, result in zip(task.parts, results, strict=True):
        if isinstance(part.blocks, FoundBlocks):
            members = [units for units, _ in result.block_sites or ()]
            labels = labels_of(members, part.X.shape[1])
            part = part._replace(blocks=part.blocks._replace(labels=labels))
        parts.append(part)
    return task._replace(parts=tuple(parts))


def same_blocks(first, second):
    """Whether two results of each part have the same blocks, with equally large patterns."""
    return all(
        np.array_equal(a.most_included, b.most_included) for a, b in zip(first, second, strict=True)
    )


def with_found_blocks(task, change):
    """Apply a function to the blocks that were found in the data, in all parts of a task."""

    def changed(part):
        is_found = isinstance(part.blocks, FoundBlocks)
        return part._replace(blocks=change(part.blocks)) if is_found else part

    return _with_parts(task, changed)


def labels_of_task(task):
    """Return the block label of each feature."""
    members = []
    for part, units in zip(task.parts, task.units, strict=True):
        if part.blocks is not None:
            features = np.arange(len(task.groups))[units]
            members += [features[block] for block in members_with(part.blocks, part.X.shape[1])]
    return labels_of(members, len(task.groups))
