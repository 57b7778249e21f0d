import numpy as np

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
