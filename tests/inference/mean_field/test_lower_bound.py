"""Lower bounds of log-partitions against enumeration."""

import numpy as np
import pytest
from own_priors import Levels

import fastmf as mf
from fastmf.inference.mean_field import lower_bound as module
from fastmf.inference.mean_field.lower_bound import lower_bound
from fastmf.priors._protocol import as_dtype, n_units
from fastmf.priors.concatenated import concatenate


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
    yield mf.RBM(normal(6, 8), mf.Gaussian(normal(6), np.full(6, 9.0)), mf.Ising(normal(8)))
    yield mf.RBM(normal(9, 6), mf.Categorical(normal(3, 3)), mf.Bernoulli(normal(6)))
    yield mf.BoltzmannMachine(couplings, mf.Ising(normal(9)))
    for group in range(3):
        couplings[3 * group : 3 * group + 3, 3 * group : 3 * group + 3] = 0
    yield mf.BoltzmannMachine(couplings, mf.Categorical(normal(3, 3)))


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 30.0])
def test_bounds_are_never_higher_than_enumeration(scale, without_sums_over_all_states):
    for seed in range(2):
        for model in machines(scale, np.random.default_rng(seed)):
            exact = mf.exact(model, averages=False).log_partition
            found = lower_bound(model)
            rounding = 1e-12 * abs(exact)
            assert found.bounds.max() - rounding <= found.value <= exact + rounding
            assert exact - found.value < 1.5


def in_double_precision(model):
    layers = (as_dtype(prior, np.float64) for prior in model.layers)
    return mf.RBM(model.weights.astype(float), *layers)


def machines_of_mixed_units(rng, dtype):
    """Units with fields that decide them, units without couplings, and deep machines."""

    def normal(*shape):
        return (rng.choice([0.5, 2.0, 10.0]) * rng.normal(size=shape)).astype(dtype)

    def field(n):
        values = normal(n)
        values[[0, -1]] = 1e6, -1e6
        return values

    few = mf.Bernoulli(field(6))
    precision, low, high = (np.full(6, value, dtype) for value in (9.0, -1.0, 1.5))
    rho = np.full(6, 0.3, dtype)
    mixed = concatenate(
        [mf.Ising(field(4)), mf.Ordinal(normal(4, 3)), mf.Categorical(normal(2, 3))]
    )
    for visible in (
        mixed,
        mf.TruncatedGaussian(normal(6), precision, low, high),
        mf.TruncatedGaussBernoulli(rho, normal(6), precision, low, high),
        mf.GaussBernoulli(precision, rho, normal(6) / 10),
    ):
        weights = normal(n_units(visible), 6) / 4
        weights[2], weights[:, 3] = 0, 0
        yield mf.RBM(weights, visible, few)
    layers = mf.Bernoulli(field(7)), mf.Ising(normal(5)), mf.Bernoulli(normal(6)), few
    weights = [normal(n, m) for n, m in ((7, 5), (5, 6), (6, 6))]
    yield mf.DBM(weights[:2], layers[:3]).bipartite()
    yield mf.DBM(weights, layers).bipartite()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sums", [True, False])
def test_bounds_of_mixed_units_hold_in_both_precisions(dtype, sums, monkeypatch):
    monkeypatch.setattr(module, "MAX_SUMMED_NUMBERS", 0)
    if not sums:
        monkeypatch.setattr(module, "_sums_over_states", lambda *_: [])
    for seed in range(2):
        for model in machines_of_mixed_units(np.random.default_rng(seed), dtype):
            exact = mf.exact(in_double_precision(model), averages=False).log_partition
            found = lower_bound(model).value
            assert exact - (0.1 if sums else 40) < found <= exact + 1e-12 * abs(exact)


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


def test_units_that_cannot_be_sampled_have_bounds():
    rng = np.random.default_rng(3)
    states = np.array(np.meshgrid(*[[0.0, 1.0]] * 4)).reshape(4, -1).T
    mixed = mf.Concatenated(Levels(np.zeros(2)), mf.Ising(np.zeros(3)))
    for levels in Levels(np.zeros(5)), mixed:
        weights = rng.normal(size=(5, 4))
        exact = np.logaddexp.reduce(levels.log_partition(states @ weights.T, np.zeros(5)).sum(1))
        binary = mf.Bernoulli(np.zeros(4))
        for model in mf.RBM(weights, levels, binary), mf.RBM(weights.T, binary, levels):
            assert exact - 0.5 < lower_bound(model, [_zeros(model)]).value <= exact


def _zeros(model):
    return np.zeros((1, n_units(model.visible)))
