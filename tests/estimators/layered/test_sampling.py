"""Samples of layered machines from each kind of start: their phases and their weights."""

import numpy as np
import pytest

import fastmf as mf

N, M = 8, 4
STARTS = ("independent", "data", "solutions", "annealed")
X = np.repeat(np.random.default_rng(0).random((200, 1)) < 0.5, N, axis=1).astype(float)


def two_phases(field=0.0):
    """A machine whose chains stay all 0 or all 1; `field` favours the second."""
    weights = np.full((N, M), 2.5)
    visible = mf.Bernoulli(np.full(N, -2.5 * M / 2 + field))
    return mf.RBM(weights, visible, mf.Bernoulli(np.full(M, -2.5 * N / 2)))


@pytest.fixture(scope="module")
def machine():
    fitted = mf.GeneralizedRBM(M, n_epochs=2, random_state=0).fit(X)
    fitted.model_ = two_phases(0.15)
    return fitted


@pytest.mark.parametrize("start", STARTS)
def test_means_are_those_of_enumeration_in_one_phase(start):
    rng = np.random.default_rng(0)
    model = mf.RBM(
        rng.normal(size=(N, M)) / 2, mf.Bernoulli(rng.normal(size=N)), mf.Bernoulli(np.zeros(M))
    )
    fitted = mf.GeneralizedRBM(M, n_epochs=1, random_state=0).fit(X)
    fitted.model_ = model
    found = fitted.sample(4000, n_sweeps=30, start=start, random_state=0)
    assert set(np.unique(found)) == {0, 1}
    np.testing.assert_allclose(found.mean(0), mf.exact(model).mean[0], atol=0.04)


@pytest.mark.parametrize("options", [{"start": "solutions"}, {"start": "annealed"}, {}])
def test_phases_have_the_weights_of_the_model(machine, options):
    right = mf.exact(machine.model_).mean[0].mean()
    assert 0.65 < right < 0.95
    found = machine.sample(2000, n_sweeps=100, random_state=0, **options)
    assert found.mean() == pytest.approx(right, abs=0.1)


def test_chains_from_data_keep_the_weights_of_data(machine):
    rows = machine.starts_
    found = machine.sample(len(rows), n_sweeps=0, start="data", random_state=0)
    np.testing.assert_array_equal(np.sort(found.sum(1)), np.sort(rows.sum(1)))
    found = machine.sample(300, n_sweeps=5, start="data", random_state=0)
    assert found.mean() == pytest.approx(rows.mean(), abs=0.1)


KINDS = ["ising", "gaussian", "truncated_gaussian", "gauss_bernoulli", "categorical", "binomial"]


@pytest.mark.parametrize(
    ("visible", "start"),
    [*((kind, STARTS[k % len(STARTS)]) for k, kind in enumerate(KINDS)),
     *(("gaussian", start) for start in STARTS if start != STARTS[1])],
)  # fmt: skip
def test_units_of_every_kind_are_sampled(visible, start):
    Y = np.random.default_rng(1).normal(5, 2, (60, 3))
    if visible == "ising":
        Y = np.sign(Y - 5)
    elif visible in ("categorical", "binomial"):
        Y = np.clip(Y.round(), 0, 9)
    fitted = mf.GeneralizedRBM(3, visible=visible, n_epochs=3, random_state=0).fit(Y)
    found = fitted.sample(150, n_sweeps=20, start=start, random_state=0)
    again = fitted.sample(150, n_sweeps=20, start=start, random_state=0)
    np.testing.assert_array_equal(found, again)
    assert found.shape == (150, 3)
    spread = Y.std(0) + 0.1
    np.testing.assert_allclose((found.mean(0) - Y.mean(0)) / spread, 0, atol=0.4)


@pytest.mark.parametrize("start", STARTS)
def test_deep_machines_are_sampled(start):
    dbm = mf.DeepBoltzmannMachine((4, 3), n_epochs=2, random_state=0).fit(X)
    found = dbm.sample(7, n_sweeps=5, start=start, random_state=0)
    assert found.shape == (7, N) and set(np.unique(found)) <= {0, 1}
