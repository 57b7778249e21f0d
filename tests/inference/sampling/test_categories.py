"""Samples of categorical units."""

import numpy as np
import pytest
from potts_data import random_parameters

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
