"""Couplings as a matrix, and of few rows."""

import numpy as np
import pytest
from potts_data import one_hot, positions, random_parameters, random_rows

from fastmf.learning.pseudo_likelihood.potts.couplings import DenseCouplings, OfFewRows

SIZES = np.array([3, 4, 2])


def dense():
    return DenseCouplings(random_parameters(SIZES)[0], SIZES)


def of_few_rows():
    A = np.random.default_rng(0).normal(size=(6, SIZES.sum()))
    return OfFewRows(A, random_rows(SIZES, 6, missing=0.2)[0], SIZES)


def test_few_rows_are_a_sum_of_products():
    few = of_few_rows()
    X = one_hot(few.labels, SIZES)
    expected = few.coefficients.T @ X
    expected += expected.T
    expected[positions(SIZES)[:, None] == positions(SIZES)] = 0
    np.testing.assert_allclose(few.dense(), expected, atol=1e-14)


@pytest.mark.parametrize("make", [dense, of_few_rows])
def test_parts_and_fields_are_those_of_the_matrix(make):
    couplings = make()
    J, labels = couplings.dense(), random_rows(SIZES, 20, missing=0.3, seed=5)[0]
    np.testing.assert_array_equal(J, J.T)
    np.testing.assert_allclose(couplings.of_position(1), J[3:7], atol=1e-14)
    np.testing.assert_allclose(couplings.fields(labels), one_hot(labels, SIZES) @ J, atol=1e-13)
