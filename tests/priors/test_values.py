"""Data where they meet their prior."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.priors._values import check_support

X = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])


def test_values_outside_the_support_are_named():
    binary = mf.Bernoulli(np.zeros(3))
    check_support(binary, X / 2)
    with pytest.raises(ValueError, match=r"got 0\.5 in row 0, column 1"):
        check_support(binary, X / 2, means=False)
    both = mf.Concatenated(mf.Gaussian(np.zeros(2), 1.0), mf.Ising(np.zeros(1)))
    check_support(both, np.array([[7.0, -3.0, 1.0]]))
    with pytest.raises(ValueError, match="got 3 in row 0, column 2"):
        check_support(both, np.array([[7.0, -3.0, 3.0]]))


def test_bounds_belong_to_the_support():
    prior = mf.TruncatedGaussian([0.0, 0.0], 1.0, 0.0, 1.0)
    check_support(prior, np.eye(2))
    for beyond in (-1e-9, 1 + 1e-9):
        with pytest.raises(ValueError, match="between the bounds"):
            check_support(prior, np.array([[0.5, beyond]]))


def test_zeros_that_are_not_stored_are_values():
    with pytest.raises(ValueError, match=r"got 0 \(a zero that is not stored\) in row 0, column 1"):
        check_support(mf.Ising(np.zeros(2)), csr_array([[1.0, 0.0], [-1.0, 1.0]]), means=False)
    check_support(mf.Bernoulli(np.zeros(2)), csr_array([[1.0, 0.0], [0.0, 1.0]]))


@pytest.mark.parametrize("solve", [mf.tap, mf.belief_propagation, mf.log_partition_bounds])
def test_values_that_clamped_units_cannot_take_are_named(solve):
    model = mf.BoltzmannMachine(np.zeros((3, 3)), mf.Ising(np.zeros(3)))
    for clamp in ([np.nan, 1, 0.5], [[1, np.nan, 1], [np.nan, -1, 0.5]]):
        with pytest.raises(ValueError, match=r"one of \(-1.0, 1.0\).* got 0.5 for unit 2"):
            solve(model, clamp=np.array(clamp))
