"""Models with categorical units, by plain sums over their states."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest

import fastmf as mf
from fastmf.special import exp, log, sigmoid

UNITS = mf.Categorical([[-0.3, 0.2, 0.9], [1.0, 0.0], [0.3, -2.0, 0.1, 0.4]])


def sums(model, layers):
    """Log-partition and means of the layers by summing over all rows of labels or values."""
    total, means = 0.0, [0.0] * len(layers)
    for states in itertools.product(*(all_rows(layer) for layer in layers)):
        weight = np.exp(-model.energy(*states))
        total += weight
        for k, (layer, x) in enumerate(zip(layers, states, strict=True)):
            flat = layer.one_hot(x) if isinstance(layer, mf.Categorical) else np.array(x)
            means[k] = means[k] + weight * flat
    return np.log(total), [mean / total for mean in means]


def all_rows(layer):
    sizes = layer.sizes if isinstance(layer, mf.Categorical) else [2] * len(layer.field)
    return itertools.product(*map(range, sizes))


@pytest.mark.parametrize("hidden", [mf.Bernoulli([0.1, 0.4, -1.0]), mf.Categorical(np.eye(3))])
def test_rbm(hidden):
    rng = np.random.default_rng(0)
    model = mf.RBM(rng.normal(size=(9, len(hidden.field))), UNITS, hidden)
    log_partition, means = sums(model, model.layers)
    found = mf.exact(model)
    assert found.log_partition == pytest.approx(log_partition, abs=1e-12)
    for mean, expected in zip(found.mean, means, strict=True):
        np.testing.assert_allclose(mean, expected, atol=1e-13)


def test_fully_visible_machine():
    rng = np.random.default_rng(1)
    couplings = rng.normal(size=(2, 3, 2, 3))
    couplings[0, :, 0] = couplings[1, :, 1] = 0
    couplings[1, :, 0] = couplings[0, :, 1].T
    model = mf.BoltzmannMachine(couplings, mf.Categorical(rng.normal(size=(2, 3))))
    weights = {
        (a, b): np.exp(couplings[0, a, 1, b] + model.prior.field[a] + model.prior.field[3 + b])
        for a in range(3)
        for b in range(3)
    }
    found = mf.exact(model)
    assert found.log_partition == pytest.approx(np.log(sum(weights.values())), abs=1e-13)
    total = sum(weights.values())
    assert found.pairwise[1, 5] == pytest.approx(weights[1, 2] / total, abs=1e-14)


def test_hidden_states_are_enumerated_beside_many_groups():
    rng = np.random.default_rng(2)
    visible = mf.Categorical(rng.normal(size=(53, 21)))
    model = mf.RBM(rng.normal(size=(53, 21, 3)) / 5, visible, mf.Bernoulli(np.zeros(3)))
    expected = np.logaddexp.reduce(
        [
            sum(
                np.logaddexp.reduce(t)
                for t in visible.by_group(visible.field + model.weights @ np.array(h))
            )
            for h in itertools.product((0, 1), repeat=3)
        ]
    )
    assert mf.exact(model).log_partition == pytest.approx(expected, abs=1e-10)


def test_couplings_within_a_group_are_refused():
    couplings = np.zeros((4, 4))
    couplings[0, 1] = couplings[1, 0] = 1
    with pytest.raises(ValueError, match="states of one group"):
        mf.BoltzmannMachine(couplings, mf.Categorical(np.zeros((2, 2))))


MIXED = mf.Concatenated(UNITS, mf.Ising([0.3]))
RNG = np.random.default_rng(4)
MACHINES = {
    "rbm": mf.RBM(RNG.normal(size=(9, 3)), UNITS, mf.Bernoulli([0.1, 0.4, -1.0])),
    "both": mf.RBM(RNG.normal(size=(10, 5)), MIXED, mf.Categorical([[0.1, 0.2], [1, 2, 3.0]])),
    "dbm": mf.DBM(
        (RNG.normal(size=(9, 2)), RNG.normal(size=(2, 4))),
        (UNITS, mf.Gaussian([0.1, 0.2], 20.0), mf.Categorical([[0.1, 0.2], [1.0, 2.0]])),
    ),
}


@pytest.mark.parametrize("gauge", ["zero-sum", "lattice"])
@pytest.mark.parametrize("name", MACHINES)
def test_a_gauge_keeps_the_distribution(name, gauge):
    machine = MACHINES[name]
    moved = machine.in_gauge(gauge, 1)
    n_rows, states = 40, []
    for layer, n in zip(machine.layers, machine.sizes, strict=True):
        states.append(layer.sample(np.zeros((n_rows, n)), np.zeros((n_rows, n)), RNG))
    difference = moved.energy(*states) - machine.energy(*states)
    np.testing.assert_allclose(difference, difference[0], atol=1e-12)
    for start, stop in ((0, 3), (3, 5), (5, 9)):
        rows = moved.couplings[0][start:stop]
        np.testing.assert_allclose(rows.mean(0) if gauge == "zero-sum" else rows[1], 0, atol=1e-15)
    again = moved.in_gauge(gauge, 1)
    np.testing.assert_allclose(again.couplings[0], moved.couplings[0], atol=1e-14)


@pytest.mark.parametrize("gauge", ["zero-sum", "lattice"])
def test_a_gauge_of_a_fully_visible_machine(gauge):
    couplings = np.triu(RNG.normal(size=(9, 9)), 1)
    for group in (slice(0, 3), slice(3, 5), slice(5, 9)):
        couplings[group, group] = 0
    machine = mf.BoltzmannMachine(couplings + couplings.T, UNITS)
    moved = machine.in_gauge(gauge, 1)
    labels = np.array([[a, b, c] for a in range(3) for b in range(2) for c in range(4)])
    difference = moved.energy(labels) - machine.energy(labels)
    np.testing.assert_allclose(difference, difference[0], atol=1e-12)
    block = moved.couplings[:3, 5:]
    np.testing.assert_allclose(block.mean(0) if gauge == "zero-sum" else block[1], 0, atol=1e-15)


class NoField(NamedTuple):
    """Units with values 0 and 1 whose weight is no tilt of a field."""

    logit: np.ndarray

    def log_partition(self, b, a):
        return log(1 + exp(self.logit + b - a / 2))

    def moments(self, b, a):
        mean = sigmoid(self.logit + b - a / 2)
        return mean, mean * (1 - mean)


@pytest.mark.parametrize("gauge", ["zero-sum", "lattice"])
def test_a_gauge_of_spiked_units_keeps_the_distribution(gauge):
    spiked = mf.RBM(RNG.normal(size=(9, 1)), UNITS, mf.GaussBernoulli([0.3], 1.2, -0.4))
    moved = spiked.in_gauge(gauge)
    assert abs(moved.weights - spiked.weights).max() > 0.1
    found, expected = mf.exact(moved), mf.exact(spiked)
    for mean, other in zip(found.mean, expected.mean, strict=True):
        np.testing.assert_allclose(mean, other, atol=1e-12)


def test_gauges_that_are_not_there_are_named():
    with pytest.raises(ValueError, match="gauge must be"):
        MACHINES["rbm"].in_gauge("ising")
    with pytest.raises(ValueError, match="reference must be"):
        MACHINES["rbm"].in_gauge("lattice", 2)
    plain = mf.RBM(RNG.normal(size=(9, 1)), UNITS, NoField(np.zeros(1)))
    with pytest.raises(ValueError, match="have no gauge"):
        plain.in_gauge()
    with pytest.raises(ValueError, match="categorical units alone"):
        mf.BoltzmannMachine(np.zeros((2, 2)), mf.Ising([0.0, 0.0])).in_gauge()
