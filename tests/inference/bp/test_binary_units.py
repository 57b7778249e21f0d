"""Binary units of any values as {0, 1} units: energies by enumeration, and bad input."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from bp_models import loopy

import fastmf as mf
from fastmf.inference.bp._binary_units import BinaryUnits
from fastmf.special import exp, log

KINDS = list(itertools.product([mf.Bernoulli, mf.Ising], repeat=2))


class Switch(NamedTuple):
    """Units with the values 1 and 3, the second of weight exp(field)."""

    field: np.ndarray

    support = (1.0, 3.0)

    def log_partition(self, b, a):
        return log(exp(b - a / 2) + exp(self.field + 3 * b - 9 * a / 2))

    def moments(self, b, a):
        p = 1 / (1 + exp(-(self.field + 2 * b - 4 * a)))
        return 1 + 2 * p, 4 * p * (1 - p)

    def log_prob(self, x):
        return np.where(x == 3, self.field, np.where(x == 1, 0 * self.field, -np.inf))


def units_of(kinds, fields=(None, None)):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, 2))
    priors = (kind(rng.normal(size=n)) for kind, n in zip(kinds, weights.shape, strict=True))
    return BinaryUnits(mf.RBM(weights, *priors), fields)


@pytest.mark.parametrize("kinds", KINDS)
def test_energies_are_those_of_the_model(kinds):
    units = units_of(kinds, (np.array([0.3, -2.0, 0.5]), None))
    for v in itertools.product((0.0, 1.0), repeat=3):
        for h in itertools.product((0.0, 1.0), repeat=2):
            v, h = np.array(v), np.array(h)
            value = v @ units.weights() @ h + units.fields[0][0] @ v + units.fields[1][0] @ h
            x, y = units.values(0, v), units.values(1, h)
            expected = np.array([0.3, -2.0, 0.5]) @ x - units.model.energy(x, y)
            assert value + units.constant[0] == pytest.approx(expected, abs=1e-12)
            np.testing.assert_array_equal(units.is_one(x), v == 1)


def test_models_that_are_not_binary():
    with pytest.raises(TypeError, match="discrete units"):
        mf.belief_propagation(
            mf.RBM(np.ones((2, 2)), mf.Gaussian(np.zeros(2), np.ones(2)), mf.Ising(np.zeros(2)))
        )
    spins = mf.Ising(np.zeros(2))
    with pytest.raises(TypeError, match="RBM or a BoltzmannMachine"):
        mf.belief_propagation(mf.DBM((np.ones((2, 2)), np.ones((2, 2))), (spins, spins, spins)))
    with pytest.raises(ValueError, match="weights"):
        mf.belief_propagation(loopy(scale=1e4))
    with pytest.raises(ValueError, match="field"):
        mf.most_probable(loopy(dtype="float32"), field=np.full(9, 1e32))


def test_units_of_a_users_own_two_values():
    # On a tree belief propagation is exact.
    rng = np.random.default_rng(0)
    visible, hidden = Switch(rng.normal(size=4)), mf.Ising(rng.normal(size=1))
    model = mf.RBM(rng.normal(size=(4, 1)), visible, hidden)
    truth, found = mf.exact(model), mf.belief_propagation(model)
    assert found.log_partition == pytest.approx(truth.log_partition, rel=1e-10)
    for got, mean in zip(found.mean, truth.mean, strict=True):
        np.testing.assert_allclose(got, mean, rtol=1e-8)
    for got, var in zip(found.var, truth.var, strict=True):
        np.testing.assert_allclose(got, var, rtol=1e-7)
    for layer, b, a, mean in zip(model.layers, found.b, found.a, truth.mean, strict=True):
        np.testing.assert_allclose(layer.moments(b, a)[0], mean, rtol=1e-8)


def test_units_of_more_values_make_a_graph():
    model = mf.RBM(np.ones((2, 1)) / 3, mf.Bernoulli(np.zeros(2)), mf.Binomial(np.zeros(1), 3))
    with pytest.raises(TypeError, match=r"two-valued units.*the hidden ones are Binomial"):
        BinaryUnits(model, (None, None))
    found, exact = mf.belief_propagation(model), mf.exact(model)  # as a graph
    assert found.log_partition == pytest.approx(exact.log_partition, rel=1e-12)
