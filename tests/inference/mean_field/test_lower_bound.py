"""Lower bounds of log-partitions against enumeration."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.mean_field import lower_bound as module
from fastmf.inference.mean_field.lower_bound import (
    log_overlaps,
    log_sum_of_weights,
    lower_bound,
    mixture_bound,
)
from fastmf.inference.mean_field.naive_bound import naive_bound, sides_of
from fastmf.kernels.mean_field.arguments import Tilt


@pytest.fixture
def without_sums_over_all_states(monkeypatch):
    monkeypatch.setattr(module, "MAX_SUMMED_NUMBERS", 0)


def machines(scale, rng):
    def normal(*shape):
        return scale * rng.normal(size=shape)

    couplings = np.triu(normal(9, 9), 1)
    couplings = couplings + couplings.T
    yield mf.RBM(normal(20, 8), mf.Bernoulli(normal(20)), mf.Ising(normal(8)))
    yield mf.RBM(normal(6, 8), mf.Gaussian(normal(6), np.full(6, 9.0)), mf.Bernoulli(normal(8)))
    yield mf.RBM(normal(9, 6), mf.Categorical(normal(3, 3)), mf.Bernoulli(normal(6)))
    yield mf.BoltzmannMachine(couplings, mf.Ising(normal(9)))
    for group in range(3):
        couplings[3 * group : 3 * group + 3, 3 * group : 3 * group + 3] = 0
    yield mf.BoltzmannMachine(couplings, mf.Categorical(normal(3, 3)))


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 30.0])
def test_bounds_are_never_higher_than_enumeration(scale, without_sums_over_all_states):
    for seed in range(3):
        for model in machines(scale, np.random.default_rng(seed)):
            exact = mf.exact(model, averages=False).log_partition
            found = lower_bound(model)
            rounding = 1e-12 * abs(exact)
            assert found.bounds.max() - rounding <= found.value <= exact + rounding
            # Products are far from Gaussian units with strong couplings.
            gaussian = any(isinstance(prior, mf.Gaussian) for prior in model.layers)
            assert gaussian or exact - found.value < 1.5


def test_few_states_are_all_summed():
    for model in machines(3.0, np.random.default_rng(0)):
        exact = mf.exact(model, averages=False).log_partition
        assert lower_bound(model).value == pytest.approx(exact, rel=1e-9)


def two_phases(n=30, w=0.4):
    """All units on or all off, with equal weights."""
    field = np.full(n, -w * n / 2)
    return mf.RBM(np.full((n, n), w), mf.Bernoulli(field), mf.Bernoulli(field))


def test_phases_add_up(without_sums_over_all_states):
    found = lower_bound(two_phases())
    assert found.value == pytest.approx(found.bounds[0] + np.log(2), abs=1e-3)
    assert len(found.phases) == 2


def test_a_mixture_is_bounded_below_its_own_average_over_states():
    rng = np.random.default_rng(1)
    model = mf.RBM(rng.normal(size=(5, 4)), mf.Bernoulli(np.zeros(5)), mf.Bernoulli(np.zeros(4)))
    sides, zeros = sides_of(model), np.zeros((1, 9))
    b = 3 * rng.normal(size=(3, 9))
    bounds = naive_bound(sides, b, Tilt(zeros, zeros, zeros.astype(bool)))[0]
    order = np.argsort(-bounds)
    b, bounds = b[order], bounds[order]
    x = np.array(np.meshgrid(*[[0.0, 1.0]] * 9)).reshape(9, -1).T
    q = np.exp(x @ b.T - np.logaddexp(0, b).sum(1))
    assert np.allclose(np.exp(log_overlaps(sides, b)), np.sqrt(q).T @ np.sqrt(q), rtol=1e-9)
    value, chosen = mixture_bound(sides, b, bounds)
    shares = np.exp(bounds[chosen] - np.logaddexp.reduce(bounds[chosen]))
    mixed = q[:, chosen] @ shares
    log_weights = ((x[:, :5] @ model.weights) * x[:, 5:]).sum(1)
    assert bounds[0] <= value <= mixed @ (log_weights - np.log(mixed)) + 1e-9


def test_sums_over_states_are_of_distinct_rows():
    rng = np.random.default_rng(2)
    model = mf.RBM(rng.normal(size=(4, 3)), mf.Ising(rng.normal(size=4)), mf.Ising(np.zeros(3)))
    v = np.array([[1.0, 1, -1, 1], [-1, 1, 1, 1]])
    right = mf.tap(model, clamp=v).log_partition
    assert log_sum_of_weights(sides_of(model), 0, v) == pytest.approx(np.logaddexp(*right))


def test_a_machine_that_cannot_be_normalised_has_a_bound_or_none():
    wild = mf.RBM([[3.0]], mf.Gaussian([0.0], 1.0), mf.Gaussian([0.0], 1.0))
    assert lower_bound(wild).value < np.inf
