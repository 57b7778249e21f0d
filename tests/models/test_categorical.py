"""Models with categorical units, by plain sums over their states."""

import itertools

import numpy as np
import pytest

import fastmf as mf

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
