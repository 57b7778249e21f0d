"""Scores of pairs of positions."""

import numpy as np
from potts_data import positions, random_parameters

from fastmf.learning.pseudo_likelihood.potts.couplings import average_product_corrected, norms
from fastmf.models._gauge import in_gauge

SIZES = np.array([3, 4, 2, 3])


def by_definition(J, left_out=()):
    position, kept = positions(SIZES), np.ones(len(J), bool)
    kept[list(left_out)] = False
    return np.array(
        [
            [
                np.linalg.norm(J[np.ix_(kept & (position == i), kept & (position == j))])
                for j in range(4)
            ]
            for i in range(4)
        ]
    )


def test_norms():
    J, h = random_parameters(SIZES)
    zero_sum = in_gauge(J, h, SIZES, "zero-sum")[0]
    np.testing.assert_allclose(norms(J, SIZES, None), by_definition(J), atol=1e-14)
    np.testing.assert_allclose(norms(J, SIZES), by_definition(zero_sum), atol=1e-14)
    # State 2 of all positions but the third, which has two states.
    found = norms(J, SIZES, ignore=2)
    np.testing.assert_allclose(found, by_definition(zero_sum, [2, 5, 11]), atol=1e-14)


def test_correction_by_the_formula():
    F = norms(random_parameters(SIZES)[0], SIZES)
    n = len(F)
    for i in range(n):
        for j in range(i):
            mean_i = sum(F[i, k] for k in range(n) if k != i) / (n - 1)
            mean_j = sum(F[j, k] for k in range(n) if k != j) / (n - 1)
            mean = F[~np.eye(n, dtype=bool)].mean()
            found = average_product_corrected(F)[i, j]
            np.testing.assert_allclose(found, F[i, j] - mean_i * mean_j / mean)


def test_corrected_scores_of_products_and_of_nothing():
    a = np.array([1.0, 2, 3, 4])
    assert not average_product_corrected(np.zeros((3, 3))).any()
    assert not average_product_corrected(np.zeros((1, 1))).any()
    assert not np.diag(average_product_corrected(np.outer(a, a))).any()
