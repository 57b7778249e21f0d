import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.sampling.annealing import Path, log_mean
from fastmf.inference.sampling.phases import Phases


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    fields = mf.Bernoulli(rng.normal(size=6)), mf.Ising(rng.normal(size=4))
    return mf.RBM(0.7 * rng.normal(size=(6, 4)), *fields)


def bases(n, rng):
    return [[rng.normal(size=6), rng.normal(size=4)] for _ in range(n)]


@pytest.mark.parametrize("n_phases", [1, 3])
def test_estimates_in_both_directions_are_those_of_enumeration(model, n_phases):
    """Three sets of units in few steps: a wrong weight of a phase would show at once."""
    truth, rng = mf.exact(model).log_partition, np.random.default_rng(1)
    path = Path.of(model, 0.0, 20000, rng, 1)
    phases = Phases(path, bases(n_phases, rng))
    betas = np.linspace(0, 1, 6)
    for _ in range(2):
        leg = phases.forward(betas)
        value, error = log_mean(leg.log_weights)
        assert error < 0.02 and abs(value - truth) < 4 * error + 0.01
        assert leg.ends.shape == (20000, 6) and len(leg.log_weights) == 20000
    assert phases.shares.sum() == pytest.approx(1)
    mean = mf.exact(model).mean[0]
    assert np.allclose(leg.ends.mean(0), mean, atol=0.05)
    samples = path.sample([np.zeros(6), np.zeros(4)], leg.ends, 50)
    value, error = log_mean(-phases.backward(betas, samples))
    assert error < 0.02 and abs(-value - truth) < 4 * error + 0.01
