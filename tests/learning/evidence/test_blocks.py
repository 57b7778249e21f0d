"""Blocks of correlated features in tasks."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.learning.evidence import Classification, Hyperparameters, Regression, Task
from fastmf.learning.evidence.blocks import (
    labels_of_task,
    same_blocks,
    with_blocks,
)


def columns(seed=0):
    X = np.random.default_rng(seed).normal(size=(60, 5))
    X[:, 4] = -2 * X[:, 1]
    return X


def test_blocks_of_each_part(monkeypatch):
    monkeypatch.setattr("fastmf.inference.ep.correlated.FEATURES_OF_ONE_BLOCK", 0)
    parts = [Regression(columns(k), np.ones(60), np.zeros(5, int)) for k in range(2)]
    units = np.array([0, 2, 4, 6, 8]), np.array([1, 3, 5, 7, 9])
    task = with_blocks(Task(tuple(parts), units, np.zeros(10, int)), "auto")
    assert labels_of_task(task).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 2, 3]
    labels = np.array([0, 0, 0, 1, 2, 2, 3, 4, 5, 6])
    task = with_blocks(task, labels)  # features of different parts have no common site
    assert labels_of_task(task).tolist() == [0, 1, 0, 2, 3, 4, 5, 6, 7, 8]
    assert with_blocks(task, None).parts[0].blocks is None


def test_columns_without_a_spike_are_in_no_block():
    X = np.append(columns(), columns()[:, :1], axis=1)
    task = Task.of(Classification.of(X, np.ones(60), np.zeros(5, int), [0.01]))
    task = with_blocks(task, "auto")
    assert task.parts[0].blocks.labels.tolist() == [0, 1, 2, 3, 1, 4]
    assert labels_of_task(task).tolist() == [0, 1, 2, 3, 1]


def test_labels_of_the_wrong_shape_are_named():
    task = Task.of(Regression(columns(), np.ones(60), np.zeros(5, int)))
    with pytest.raises(ValueError, match="blocks must have a label for each feature"):
        with_blocks(task, [0, 1])


def test_blocks_have_effects_in_their_middle():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 40))
    for j in range(1, 40):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    y = X[:, 23] + rng.normal(size=2000)
    start = Hyperparameters(1.0, 1.0, np.array([-3.0]))
    task = with_blocks(Task.of(Regression(X, y, np.zeros(40, int))), "auto", start)
    # 0.8^4 = 0.41
    assert np.flatnonzero(labels_of_task(task) == labels_of_task(task)[23]).tolist() == [
        *range(19, 28)
    ]


def test_blocks_differ_if_they_are_joined_or_have_larger_patterns():
    rng = np.random.default_rng(0)
    prior = mf.GaussBernoulli(np.zeros(5), np.ones(5), np.zeros(5))
    model = mf.SparseLinearModel(columns(), rng.normal(size=60), 1.0, prior)
    one, other, none = (
        mf.expectation_propagation(model, blocks=blocks)
        for blocks in ([0, 0, 1, 1, 2], [0, 0, 0, 0, 2], None)
    )
    assert same_blocks([one, none], [one, none])
    assert not same_blocks([one], [other])
