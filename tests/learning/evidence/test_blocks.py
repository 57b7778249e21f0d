"""Blocks of correlated features in tasks."""

import numpy as np

from fastmf.learning.evidence import Classification, Hyperparameters, Regression, Task
from fastmf.learning.evidence.blocks import (
    labels_of_task,
    with_blocks,
)


def columns(seed=0):
    X = np.random.default_rng(seed).normal(size=(600, 15))
    X[:, 4] = -2 * X[:, 1]
    return X


def test_columns_without_a_spike_are_in_no_block():
    X = np.append(columns(), columns()[:, :1], axis=1)
    task = Task.of(Classification.of(X, np.ones(600), np.zeros(15, int), [0.01]))
    task, _ = with_blocks(task, "auto", Hyperparameters(1.0, 1.0, np.array([-3.0])))
    assert task.parts[0].blocks.labels.tolist() == [0, 1, 2, 3, 1, *range(4, 15)]
    assert labels_of_task(task).tolist() == [0, 1, 2, 3, 1, *range(4, 14)]


def test_blocks_have_effects_in_their_middle():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 40))
    for j in range(1, 40):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    y = X[:, 23] + rng.normal(size=2000)
    start = Hyperparameters(1.0, 1.0, np.array([-3.0]))
    task, _ = with_blocks(Task.of(Regression(X, y, np.zeros(40, int))), "auto", start)
    # 0.8^4 = 0.41
    assert np.flatnonzero(labels_of_task(task) == labels_of_task(task)[23]).tolist() == [
        *range(19, 28)
    ]
