import numpy as np
import pytest

from fastmf.learning.layered.choice import MAX_EXACT_PRODUCTS, gradient_for
from fastmf.models import DBM, RBM
from fastmf.priors import Bernoulli, GaussBernoulli, Gaussian, TruncatedGaussian


def machine(visible, hidden):
    return RBM(np.zeros((len(visible.field), len(hidden.field))), visible, hidden)


@pytest.mark.parametrize(
    ("visible", "hidden", "expected"),
    [
        (Bernoulli(np.zeros(5)), Bernoulli(np.zeros(3)), "tap"),
        (TruncatedGaussian(np.zeros(5), 1.0, 0.0, 1.0), Bernoulli(np.zeros(3)), "exact"),
        (TruncatedGaussian(np.zeros(5), 1.0, 0.0, 1.0), Bernoulli(np.zeros(11)), "tap"),
        (Gaussian(np.zeros(5), 1.0), Bernoulli(np.zeros(10)), "exact"),
        (Gaussian(np.zeros(5), 1.0), Bernoulli(np.zeros(11)), "pcd"),
        (Gaussian(np.zeros(50), 1.0), Gaussian(np.zeros(40), 1.0), "exact"),
        (Bernoulli(np.zeros(50)), Gaussian(np.zeros(40), 1.0), "pcd"),
        (GaussBernoulli(np.zeros(5), 1.0, 0.0), Bernoulli(np.zeros(3)), "exact"),
    ],
)
def test_small_machines_with_real_units_are_exact(visible, hidden, expected):
    assert gradient_for(machine(visible, hidden), 100) == expected


def test_many_rows_and_deep_machines_are_learned_by_chains():
    real, binary = Gaussian(np.zeros(50), 1.0), Bernoulli(np.zeros(3))
    assert gradient_for(machine(real, binary), MAX_EXACT_PRODUCTS) == "pcd"
    deep = DBM((np.zeros((50, 3)), np.zeros((3, 3))), (real, binary, binary))
    assert gradient_for(deep, 100) == "pcd"
    deep = DBM((np.zeros((3, 3)), np.zeros((3, 3))), (binary, binary, binary))
    assert gradient_for(deep, 100) == "tap"
