"""Blocks of correlated features in tasks."""

import numpy as np
import pytest

from fastmf.learning.evidence import Classification, Loci, Regression
from fastmf.learning.evidence.blocks import labels_of_task, with_blocks


def columns(seed=0):
    X = np.random.default_rng(seed).normal(size=(60, 5))
    X[:, 4] = -2 * X[:, 1]
    return X


def test_blocks_of_each_part():
    parts = [Regression(columns(k), np.ones(60), np.zeros(5, int)) for k in range(2)]
    units = np.array([0, 2, 4, 6, 8]), np.array([1, 3, 5, 7, 9])
    task = with_blocks(Loci(tuple(parts), units, np.zeros(10, int)), "auto")
    assert labels_of_task(task).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 2, 3]
    labels = np.array([0, 0, 0, 1, 2, 2, 3, 4, 5, 6])
    task = with_blocks(task, labels)  # features of different parts have no common site
    assert labels_of_task(task).tolist() == [0, 1, 0, 2, 3, 4, 5, 6, 7, 8]
    assert with_blocks(task, None).parts[0].blocks is None


def test_columns_without_a_spike_are_in_no_block():
    X = np.append(columns(), columns()[:, :1], axis=1)
    task = Classification.of(X, np.ones(60), np.zeros(5, int), [0.01])
    task = with_blocks(task, "auto")
    assert task.blocks.labels.tolist() == [0, 1, 2, 3, 1, 4]
    assert labels_of_task(task).tolist() == [0, 1, 2, 3, 1]


def test_labels_of_the_wrong_shape_are_named():
    task = Regression(columns(), np.ones(60), np.zeros(5, int))
    with pytest.raises(ValueError, match="blocks must have a label for each feature"):
        with_blocks(task, [0, 1])
