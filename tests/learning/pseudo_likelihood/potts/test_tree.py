"""Orders of rows in which each follows a similar one."""

import numpy as np
from potts_data import random_rows

from fastmf.learning.pseudo_likelihood.potts import tree


def test_parents_come_first_in_the_same_group(monkeypatch):
    monkeypatch.setattr(tree, "FOREST_ROWS", 16)
    labels, _ = random_rows([4] * 12, 50, missing=0.1)
    order, parents, forests = tree.spanning_order(labels)
    assert sorted(order) == list(range(50))
    assert forests.tolist() == [0, 16, 32, 48, 50]
    forest = np.searchsorted(forests, np.arange(50), side="right")
    has_parent = parents >= 0
    assert (parents < np.arange(50)).all() and has_parent.any()
    np.testing.assert_array_equal(forest[parents[has_parent]], forest[has_parent])


def test_similar_rows_save_most_of_the_work():
    rng = np.random.default_rng(0)
    labels = np.repeat(rng.integers(0, 5, (5, 40)), 20, axis=0)
    changed = rng.random(labels.shape) < 0.05
    labels[changed] = 4 - labels[changed]
    order, parents, _ = tree.spanning_order(labels)
    rows = labels[order]
    cost = [
        40 if p < 0 else 2 * (rows[s] != rows[p]).sum() for s, p in enumerate(parents)
    ]  # additions of rows of couplings
    assert sum(cost) < 0.3 * labels.size
