"""Naive mean-field inversion."""

import numpy as np
import pytest
from potts_data import all_labels, one_hot, positions, random_parameters, random_rows
from scipy.special import softmax

import fastmf as mf
from fastmf.learning.pseudo_likelihood.potts.couplings import naive_mean_field, pair_frequencies
from fastmf.models._gauge import in_gauge

SIZES = np.array([3, 4, 2])


def test_frequencies_of_pairs_that_are_present():
    labels, weights = random_rows(SIZES, missing=0.2)
    x, position = one_hot(labels, SIZES), positions(SIZES)
    f, pairs = pair_frequencies(labels, weights, SIZES, 0.3)
    q = SIZES[position]
    for a in range(9):
        here = weights * (labels[:, position[a]] >= 0)
        expected = 0.7 * (here @ x[:, a]) / here.sum() + 0.3 / q[a]
        np.testing.assert_allclose(f[a], expected)
        for b in range(9):
            if position[a] != position[b]:
                both = here * (labels[:, position[b]] >= 0)
                expected = 0.7 * (both @ (x[:, a] * x[:, b])) / both.sum() + 0.3 / (q[a] * q[b])
            else:
                expected = f[a] if a == b else 0.0
            np.testing.assert_allclose(pairs[a, b], expected)


def test_means_are_a_fixed_point_of_naive_mean_field():
    labels, weights = random_rows(SIZES, 300)
    J, h = naive_mean_field(labels, weights, SIZES, 0.2)
    f, _ = pair_frequencies(labels, weights, SIZES, 0.2)
    fields = J @ f + h
    found = np.concatenate([softmax(fields[positions(SIZES) == i], axis=-1) for i in range(3)])
    np.testing.assert_allclose(found, f, atol=1e-14)
    machine = mf.BoltzmannMachine(J, mf.Categorical([h[:3], h[3:7], h[7:]]))
    solved = mf.tap(machine, f, order=1)
    np.testing.assert_allclose(solved.mean, f, atol=1e-7)


def test_error_falls_with_the_square_of_couplings():
    labels, errors = all_labels(SIZES), []
    for strength in (0.2, 0.1):
        J, h = random_parameters(SIZES, strength=strength)
        J, h = in_gauge(J, h, SIZES, "zero-sum")
        x = one_hot(labels, SIZES)
        p = softmax(((x @ J) * x).sum(1) / 2 + x @ h)
        found = in_gauge(*naive_mean_field(labels, p, SIZES, 0.0), SIZES, "zero-sum")[0]
        errors.append(abs(found - J).max())
    assert 3 < errors[0] / errors[1] < 5.5


def test_singular_covariances_are_refused():
    labels = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 0]])
    with pytest.raises(ValueError, match="never seen"):
        naive_mean_field(labels, np.ones(3), SIZES, 0.0)
    with pytest.raises(ValueError, match="singular"):
        naive_mean_field(np.minimum(labels, 1), np.ones(3), np.array([2, 2, 2]), 0.0)
    assert np.isfinite(naive_mean_field(labels, np.ones(3), SIZES, 0.5)[0]).all()
