import numpy as np
import pytest

from fastmf.inference.sampling.spins import all_states, probabilities, sample
from fastmf.models import BoltzmannMachine, exact
from fastmf.priors import Ising


def machine(d, seed=0, scale=0.4):
    rng = np.random.default_rng(seed)
    J = np.triu(scale * rng.normal(size=(d, d)), 1)
    return BoltzmannMachine(J + J.T, Ising(scale * rng.normal(size=d)))


def test_probabilities():
    model = machine(5)
    p, states = probabilities(model), all_states(5)
    assert p.sum() == pytest.approx(1, rel=1e-14)
    np.testing.assert_allclose(p @ states, exact(model).mean, atol=1e-14)
    log_p = -model.energy(states) - exact(model).log_partition
    np.testing.assert_allclose(np.log(p), log_p, atol=1e-12)


def test_exact_samples_have_the_right_frequencies():
    model, n = machine(4), 200_000
    drawn = sample(model, n, np.random.default_rng(1))
    counts = np.bincount((drawn > 0) @ (1 << np.arange(4)), minlength=16)
    p = probabilities(model)
    # 25 is beyond the 1 - 5e-2 quantile of chi2_15; the seed is fixed.
    assert ((counts - n * p) ** 2 / (n * p)).sum() < 25


def test_gibbs_samples_have_the_right_moments():
    parts = machine(12, 0, 0.3), machine(12, 1, 0.3)
    J = np.zeros((24, 24))
    J[:12, :12], J[12:, 12:] = parts[0].couplings, parts[1].couplings
    model = BoltzmannMachine(J, Ising(np.concatenate([part.prior.field for part in parts])))
    drawn = sample(model, 20_000, np.random.default_rng(2), n_sweeps=30)
    assert set(np.unique(drawn)) == {-1, 1}
    mean = np.concatenate([exact(part).mean for part in parts])
    np.testing.assert_allclose(drawn.mean(0), mean, atol=5 / np.sqrt(20_000))
    pairs = drawn[:, :12].T @ drawn[:, :12] / 20_000
    np.testing.assert_allclose(pairs, exact(parts[0]).pairwise, atol=5 / np.sqrt(20_000))


def test_gibbs_samples_of_strongly_coupled_chains():
    n, J = 40, np.arctanh(0.98)  # three steps agree by 0.94: from independent units 0.87
    model = BoltzmannMachine(J * (np.eye(n, k=1) + np.eye(n, k=-1)), Ising(np.zeros(n)))
    drawn = sample(model, 8000, np.random.default_rng(1), n_sweeps=20)
    found = drawn[:, 0] @ drawn / len(drawn)
    np.testing.assert_allclose(found, 0.98 ** np.arange(n), atol=4 / np.sqrt(8000))
