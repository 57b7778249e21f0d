"""Samples of fully visible machines of discrete units: enumeration, trees, annealing."""

import numpy as np
import pytest
from populations import all_states
from potts_data import random_parameters
from scipy.special import comb, gammaln

import fastmf as mf
from fastmf.inference.sampling import discrete
from fastmf.inference.sampling.discrete import annealed_probabilities, probabilities, sample
from fastmf.inference.sampling.states import flat_states


def spins(d, seed=0, scale=0.4):
    rng = np.random.default_rng(seed)
    J = np.triu(scale * rng.normal(size=(d, d)), 1)
    return mf.BoltzmannMachine(J + J.T, mf.Ising(scale * rng.normal(size=d)))


def test_probabilities():
    model = spins(5)
    p, states = probabilities(model), all_states(5)
    assert p.sum() == pytest.approx(1, rel=1e-14)
    np.testing.assert_allclose(p @ states, mf.exact(model).mean, atol=1e-14)
    log_p = -model.energy(states) - mf.exact(model).log_partition
    np.testing.assert_allclose(np.log(p), log_p, atol=1e-12)


@pytest.mark.parametrize("limit", [1 << 20, 1])
@pytest.mark.parametrize("kind", ["spins", "groups"])
def test_samples_have_the_right_frequencies(monkeypatch, limit, kind):
    J, h = random_parameters([3, 2, 4])
    groups = mf.BoltzmannMachine(J, mf.Categorical(np.split(h, [3, 5])))
    model = spins(4) if kind == "spins" else groups
    monkeypatch.setattr(discrete, "MAX_ENUMERATED_STATES", limit)
    drawn, n = sample(model, 8_000, np.random.default_rng(1), n_sweeps=15), 8_000
    rows, counts = np.unique(drawn, axis=0, return_counts=True)
    p = np.exp(-model.energy(rows) - mf.exact(model).log_partition)
    z = (counts - n * p) / np.sqrt(n * p * (1 - p))
    assert abs(z).max() < 4 and p.sum() == pytest.approx(1, abs=1e-3)


def test_gibbs_samples_have_the_right_moments():
    parts = spins(12, 0, 0.3), spins(12, 1, 0.3)
    J = np.zeros((24, 24))
    J[:12, :12], J[12:, 12:] = parts[0].couplings, parts[1].couplings
    model = mf.BoltzmannMachine(J, mf.Ising(np.concatenate([part.prior.field for part in parts])))
    drawn = sample(model, 8_000, np.random.default_rng(2), n_sweeps=30)
    assert set(np.unique(drawn)) == {-1, 1}
    mean = np.concatenate([mf.exact(part).mean for part in parts])
    np.testing.assert_allclose(drawn.mean(0), mean, atol=5 / np.sqrt(8_000))
    pairs = drawn[:, :12].T @ drawn[:, :12] / 8_000
    np.testing.assert_allclose(pairs, mf.exact(parts[0]).pairwise, atol=5 / np.sqrt(8_000))


def test_draws_of_a_tree_have_its_distribution(monkeypatch):
    monkeypatch.setattr(discrete, "MAX_ENUMERATED_STATES", 1)
    sizes = np.array([3, 2, 4])
    J, h = random_parameters(sizes, strength=1.0)
    J[:3, 3:5] = J[3:5, :3] = 0  # column 2 is coupled to both others
    model = mf.BoltzmannMachine(J, mf.Categorical(np.split(h, [3, 5])))
    x, exact = sample(model, 40_000, np.random.default_rng(0), n_sweeps=1), mf.exact(model)
    np.testing.assert_allclose(x.mean(0), exact.mean, atol=0.01)
    np.testing.assert_allclose(x.T @ x / len(x), exact.pairwise, atol=0.01)


def test_a_long_chain_of_strong_couplings():
    n, t = 200, np.tanh(2.5)
    model = mf.BoltzmannMachine(2.5 * (np.eye(n, k=1) + np.eye(n, k=-1)), mf.Ising(np.zeros(n)))
    drawn = sample(model, 8_000, np.random.default_rng(1), n_sweeps=1)
    correlations = drawn[:, 0] @ drawn / len(drawn)
    np.testing.assert_allclose(correlations, t ** np.arange(n), atol=4 / np.sqrt(8_000))


def test_phases_of_unequal_couplings(monkeypatch):
    """Three states, one of them coupled more strongly, summed over the numbers of units in each."""
    monkeypatch.setattr(discrete, "MAX_ENUMERATED_STATES", 1)
    n, w, field = 12, np.array([1, 1, 1.6]) / 3, np.array([0.3, 0, -0.75])
    counts = np.array([(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)])
    logs = (counts * (counts - 1)) @ w / 2 + counts @ field - gammaln(counts + 1).sum(1)
    right = np.exp(logs - np.logaddexp.reduce(logs)) @ (counts[:, 2] > n / 2)
    model = mf.BoltzmannMachine(np.kron(1 - np.eye(n), np.diag(w)), mf.Categorical(n * [field]))
    drawn = model.prior.labels(sample(model, 20_000, np.random.default_rng(0), n_sweeps=60))
    assert ((drawn == 2).sum(1) > n / 2).mean() == pytest.approx(right, abs=0.02)


@pytest.mark.parametrize("kind", ["ising", "bernoulli"])
def test_phases_have_the_shares_of_the_machine(kind):
    """Complete graphs of spins in a weak field, summed over the number of spins that are up."""
    n, J, field, up = 30, 2.4 / 30, 0.02, np.arange(31)
    logs = np.log(comb(n, up)) + J * (2 * up - n) ** 2 / 2 + field * (2 * up - n)
    right = np.exp(logs - np.logaddexp.reduce(logs)) @ (up > n / 2)
    couplings, units = J * (1 - np.eye(n)), mf.Ising(np.full(n, field))
    if kind == "bernoulli":
        couplings, units = 4 * couplings, mf.Bernoulli(np.full(n, 2 * (field - J * (n - 1))))
    model = mf.BoltzmannMachine(couplings, units)
    drawn = sample(model, 3000, np.random.default_rng(0))
    assert ((drawn > 0).sum(1) > n / 2).mean() == pytest.approx(right, abs=0.06)
    assert right > 0.7  # chains from the tree stay where they are: 0.55
    columns = discrete.Columns.of(flat_states(units), couplings)
    p, error = annealed_probabilities(columns, np.random.default_rng(0), 0.03, n_sweeps=2)
    mean = np.exp(logs - np.logaddexp.reduce(logs)) @ up / n
    assert p[1::2].mean() == pytest.approx(mean, abs=3 * error) and error < 0.03
