import numpy as np
import pytest

from fastmf.models import BoltzmannMachine
from fastmf.priors import Ising


def random_couplings(rng, n=5):
    couplings = np.triu(rng.normal(size=(n, n)), 1)
    return couplings + couplings.T


def test_energy_counts_every_pair_once():
    rng = np.random.default_rng(0)
    machine = BoltzmannMachine(random_couplings(rng), Ising(rng.normal(size=5)))
    x = rng.choice([-1, 1], (3, 5))
    expected = [
        -sum(r[i] * machine.couplings[i, j] * r[j] for i in range(5) for j in range(i))
        - r @ machine.prior.field
        for r in x
    ]
    np.testing.assert_allclose(machine.energy(x), expected, rtol=1e-13)
    assert machine.energy(np.zeros(5)) == np.inf


def test_attributes_and_types():
    couplings = random_couplings(np.random.default_rng(0)).astype(np.float32)
    machine = BoltzmannMachine(couplings, Ising(np.zeros(5)))
    assert machine.dtype == machine.prior.field.dtype == np.float32
    assert machine.n_units == 5
    assert machine.layers == (machine.prior,)
    assert repr(machine) == "BoltzmannMachine(5 Ising, float32)"


def test_asymmetry_of_rounding_is_removed():
    couplings = random_couplings(np.random.default_rng(0))
    couplings[0, 1] *= 1 + 1e-16 + np.finfo(float).eps
    machine = BoltzmannMachine(couplings, Ising(np.zeros(5)))
    assert couplings[0, 1] != couplings[1, 0]
    np.testing.assert_array_equal(machine.couplings, machine.couplings.T)


@pytest.mark.parametrize(
    ("couplings", "message"),
    [
        (np.zeros((5, 4)), "square"),
        (np.triu(np.ones((5, 5)), 1), "symmetric"),
        (np.ones((5, 5)), "diagonal"),
        (np.full((5, 5), np.inf), "finite"),
        (np.zeros((4, 4)), "prior must have 4 units.*got 5"),
    ],
)
def test_bad_parameters(couplings, message):
    with pytest.raises(ValueError, match=message):
        BoltzmannMachine(couplings, Ising(np.zeros(5)))
