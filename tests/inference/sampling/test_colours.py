"""Gibbs sweeps by colours: their stationary distribution is the machine's."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.sampling.colours import ColouredUnits
from tests.inference.mean_field.test_sparse_sweeps import MACHINES


@pytest.mark.parametrize("kind", ["spins", "groups"])
@pytest.mark.parametrize("which", [0, 1])
def test_moments_are_those_of_enumeration(kind, which):
    machines = MACHINES[kind](**({"n": 10, "scale": 0.8} if kind == "spins" else {}))
    model = machines[which]
    units, rng = ColouredUnits(model), np.random.default_rng(0)
    x = np.ascontiguousarray(model.prior.sample(np.zeros((4000, model.n_units)), 0.0, rng).T)
    for _ in range(40):
        units.sweep(x, rng)
    exact = mf.exact(machines[0])  # of the dense machine, which has averages of all pairs
    np.testing.assert_allclose(x.mean(1), exact.mean, atol=0.08)
    np.testing.assert_allclose(x @ x.T / 4000, exact.pairwise, atol=0.08)


def test_blocks_are_uncoupled_and_hold_all_units():
    dense, model = MACHINES["mixed"]()
    units = ColouredUnits(model)
    for _, here, prior, _ in units.blocks:
        assert not dense.couplings[np.ix_(here, here)].any()
        assert prior.moments(0.0, 0.0)[0].shape == here.shape
    found = np.sort(np.concatenate([block[1] for block in units.blocks]))
    np.testing.assert_array_equal(found, np.arange(model.n_units))


def test_chains_of_sparse_machines():
    _, model = MACHINES["groups"]()
    draws = mf.evaluation.gibbs_chains(model, 200, 20, n_warmup=20, rng=0)["visible"]
    assert draws.shape == (200, 20, 6) and draws.dtype.kind == "i"
    frequencies = model.prior.one_hot(draws).mean((0, 1))
    np.testing.assert_allclose(frequencies, mf.exact(model).mean, atol=0.06)
