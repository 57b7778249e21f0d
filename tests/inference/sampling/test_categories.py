"""Samples and missing labels of categorical units."""

import numpy as np
import pytest
from potts_data import random_parameters, sites

import fastmf as mf
from fastmf.inference.sampling import categories

SIZES = np.array([3, 2, 4])


def machine():
    J, h = random_parameters(SIZES)
    return mf.BoltzmannMachine(J, mf.Categorical(np.split(h, [3, 5])))


def probabilities(model):
    labels = categories.all_labels(SIZES)
    x = np.eye(9)[np.array([0, 3, 5]) + labels].sum(1)
    weights = np.exp(((x @ model.couplings) * x).sum(1) / 2 + x @ model.prior.field)
    return labels, x, weights / weights.sum()


@pytest.mark.parametrize("limit", [1 << 16, 1])
def test_samples_have_the_right_frequencies(monkeypatch, limit):
    monkeypatch.setattr(categories, "MAX_ENUMERATED_STATES", limit)
    model = machine()
    labels, _, p = probabilities(model)
    found = categories.sample(model, 20_000, np.random.default_rng(0), n_sweeps=15)
    counts = np.zeros(24)
    np.add.at(counts, np.ravel_multi_index(found.T, SIZES), 1)
    z = (counts - 20_000 * p) / np.sqrt(20_000 * p * (1 - p))
    assert len(labels) == 24 and abs(z).max() < 4


def test_missing_labels_given_others():
    model = machine()
    labels, x, p = probabilities(model)
    rows = np.array([[0, -1, 2], [-1, 1, -1], [2, 0, 3], [-1, -1, -1]])
    found = categories.conditional_means(model, rows)
    for row, mean in zip(rows, found, strict=True):
        kept = ((labels == row) | (row < 0)).all(1)
        np.testing.assert_allclose(mean, p[kept] @ x[kept] / p[kept].sum(), atol=1e-12)


def test_rows_with_many_missing_labels_are_solved_by_tap():
    model = machine()
    rows = np.array([[0, -1, 2], [-1, 1, -1]])
    exact = categories.conditional_means(model, rows)
    near = categories.conditional_means(model, rows, max_exact=1)
    assert 0 < abs(near - exact).max() < 0.03
    assert np.allclose([near[0, sites(SIZES) == i].sum() for i in range(3)], 1)
