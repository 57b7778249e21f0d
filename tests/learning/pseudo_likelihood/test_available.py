"""Which terms of incomplete rows need nothing that is missing."""

import numpy as np

from fastmf.learning.pseudo_likelihood.available import available, target_labels


def test_available_terms_are_those_whose_neighbours_were_seen():
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((50, 5)) < 0.3, -1, rng.integers(0, 3, (50, 5)))
    edges = np.array([[0, 1], [1, 2], [2, 4]])
    neighbours = [{0, 1}, {0, 1, 2}, {1, 2, 4}, {3}, {2, 4}]
    found = available(labels, edges)
    for row, own in zip(labels, found, strict=True):
        assert own.tolist() == [all(row[j] >= 0 for j in needed) for needed in neighbours]
    targets = target_labels(labels, edges)
    assert np.array_equal(targets[found], labels[found])
    assert (targets[~found] == -1).all()


def test_without_a_graph_they_are_complete_rows():
    labels = np.array([[0, 1, 1], [0, -1, 1], [-1, -1, -1]])
    assert available(labels).tolist() == [[True] * 3, [False] * 3, [False] * 3]


def test_units_without_neighbours_need_themselves_alone():
    labels = np.array([[0, -1], [-1, 1]])
    assert np.array_equal(available(labels, np.zeros((0, 2), int)), labels >= 0)
