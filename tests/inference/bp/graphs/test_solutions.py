"""Sum-product on graphs from several starts, against enumeration."""

import numpy as np
import pytest
from scipy import sparse

import fastmf as mf
from fastmf.inference.bp.graphs import starts
from fastmf.inference.bp.graphs.units import GraphUnits


def curie_weiss(coupling=0.3, field=0.0, n=10):
    couplings = sparse.csr_array(coupling * (np.ones((n, n)) - np.eye(n)))
    return mf.BoltzmannMachine(couplings, mf.Ising(np.full(n, field)))


def test_two_phases_of_spins_are_both_counted():
    model = curie_weiss()
    found = mf.mixture(mf.belief_propagation, model, 10, pairwise=True)
    exact = mf.exact(model)
    assert len(found.solutions.weights) == 2
    one = found.solutions.log_partition[0]
    assert found.log_partition == pytest.approx(one + np.log(2), abs=1e-6)
    assert found.log_partition == pytest.approx(exact.log_partition, abs=0.02)
    np.testing.assert_allclose(found.mean, 0, atol=1e-6)
    np.testing.assert_allclose(found.var, 1, atol=1e-6)
    assert found.reliable


def test_three_phases_of_potts_units_have_equal_weights():
    n, q = 8, 3
    couplings = 0.8 * np.kron(np.ones((n, n)) - np.eye(n), np.eye(q))
    model = mf.BoltzmannMachine(sparse.csr_array(couplings), mf.Categorical(np.zeros((n, q))))
    found = mf.mixture(mf.belief_propagation, model, 20, pairwise=True)
    np.testing.assert_allclose(found.solutions.weights, 1 / 3, atol=1e-6)
    np.testing.assert_allclose(found.mean, 1 / 3, atol=1e-6)
    assert found.log_partition == pytest.approx(mf.exact(model).log_partition, abs=0.02)
    assert found.table(0, 1).sum() == pytest.approx(1)


def test_rows_of_clamps_have_solutions_of_their_own():
    clamp = np.full((2, 10), np.nan)
    clamp[1, 0] = 1
    found = mf.mixture(mf.belief_propagation, curie_weiss(0.5), 10, clamp=clamp)
    assert [len(x.weights) for x in found.solutions] == [2, 2]
    np.testing.assert_allclose(found.mean[0], 0, atol=1e-6)
    assert found.mean[1, 0] == 1
    assert (found.mean[1] > 0.9).all()


def test_layers_with_clamps_and_categorical_units():
    weights = np.full((10, 10), 0.2)
    model = mf.RBM(weights, mf.Ising(np.zeros(10)), mf.Ising(np.zeros(10)))
    clamp = np.full(10, np.nan), None
    found = mf.mixture(mf.belief_propagation, model, 8, clamp=clamp)
    again = mf.mixture(mf.belief_propagation, model, 8)
    assert found.log_partition == pytest.approx(again.log_partition, abs=1e-5)
    assert found.solutions.visible.shape == found.solutions.hidden.shape == (2, 10)
    np.testing.assert_allclose(found.mean[1], 0, atol=1e-5)


def test_messages_to_start_from_have_the_order_of_the_kernels():
    units = GraphUnits(curie_weiss())
    init = np.asfortranarray(np.random.default_rng(0).normal(size=(3, 90)))
    assert starts.first_messages(init, units, None, init.shape).flags.c_contiguous


def test_one_start_is_the_one_without_preference():
    rng = np.random.default_rng(0)
    couplings = np.triu(rng.normal(size=(6, 6)), 1)
    model = mf.BoltzmannMachine(couplings + couplings.T, mf.Ising(rng.normal(size=6)))
    found, single = mf.mixture(mf.belief_propagation, model, 1), mf.belief_propagation(model)
    np.testing.assert_allclose(found.mean, single.mean, atol=1e-7)
    assert len(found.solutions.members) == 1
