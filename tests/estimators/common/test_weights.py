"""Weights of rows are checked by one function, whatever takes them."""

import warnings
from functools import cache

import numpy as np
import pytest

import fastmf as mf
from fastmf.estimators.common.data import check_counts

RNG = np.random.default_rng(0)
X = (RNG.random((30, 4)) < 0.5).astype(float)
Y = (RNG.random((30, 3)) < 0.5).astype(int)
BAD = [np.nan, np.inf, -1.0, 0.0, np.ones(29), np.ones((30, 1)), np.full(30, np.nan), [None] * 30,
       "one", 1j, np.ma.masked_array(np.ones(30), np.arange(30) == 3)]  # fmt: skip
SMALL = {"n_epochs": 1, "random_state": 0}
FULLY_VISIBLE = mf.FullyVisibleBoltzmannMachine(l2=0.1)


@cache
def crbm():
    return mf.ConditionalRBM(2, **SMALL).fit(X, Y)


TAKERS = {
    "GeneralizedRBM": mf.GeneralizedRBM(2, **SMALL).fit,
    "DeepBoltzmannMachine": mf.DeepBoltzmannMachine((2,), **SMALL).fit,
    "FullyVisibleBoltzmannMachine": FULLY_VISIBLE.fit,
    "PottsMachine": mf.PottsMachine(l2=0.1).fit,
    "ConditionalRBM": lambda X, **w: mf.ConditionalRBM(2, **SMALL).fit(X, Y, **w),
    "ConditionalRBM.score": lambda X, **w: crbm().score(X, Y, **w),
    "SpikeSlabRegressor": lambda X, **w: mf.SpikeSlabRegressor().fit(X, X[:, 0], **w),
    "SpikeSlabClassifier": lambda X, **w: mf.SpikeSlabClassifier().fit(X, X[:, 0], **w),
    "effective_couplings": lambda X, **w: mf.evaluation.effective_couplings(SITES, X, **w),
}
SITES = mf.RBM(np.ones((8, 1)), mf.Categorical(np.zeros((4, 2))), mf.Bernoulli([0.0]))


@pytest.mark.parametrize("taker", TAKERS)
def test_bad_weights_are_refused(taker):
    for bad in BAD:
        with pytest.raises((ValueError, TypeError), match="sample_weight"):
            TAKERS[taker](X, sample_weight=bad)


def test_counts_of_next_to_no_rows_are_said():
    for total, n_rows in ((1.0, 1), (1.0, 2), (2.0, 80), (2.0**53, 3)):
        check_counts(total, n_rows)
    with pytest.warns(UserWarning, match="80 rows count as 1 together: multiply it by 80"):
        check_counts(1.0, 80)
    with pytest.raises(ValueError, match="sample_weight counts rows, and must add up to"):
        check_counts(1e16, 3)


@pytest.mark.parametrize("name", ["SpikeSlabRegressor", "SpikeSlabClassifier"])
def test_weights_that_add_up_to_one_are_noticed(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = X[:, 1] + 0.3 * rng.normal(size=40)
    y = y if name == "SpikeSlabRegressor" else y > 0
    model, weights = getattr(mf, name)(inclusion_probability=0.2), np.full(40, 1 / 40)
    expected = model.fit(X, y).inclusion_probability_
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, sample_weight=weights)
    assert "40 rows count as 1 together: multiply it by 40" in str(caught[0].message)
    found = model.fit(X, y, sample_weight=weights * 40 / weights.sum()).inclusion_probability_
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.raises(ValueError, match="must add up to"):
        model.fit(X, y, sample_weight=np.full(40, 1e300))


@pytest.mark.parametrize("name", ["FullyVisibleBoltzmannMachine", "OrdinalMachine"])
def test_errors_of_weights_that_add_up_to_one_are_noticed(name):
    X, weights = np.random.default_rng(0).integers(0, 2, (60, 3)), np.full(60, 1 / 60)
    machine = getattr(mf, name)().fit(X, sample_weight=weights)
    with pytest.warns(UserWarning, match="count as 1 together.*or fit with clusters=range"):
        machine.test_couplings()
    machine.fit(X, sample_weight=weights, clusters=range(60))
    errors = getattr(mf, name)().fit(X).standard_errors()[0]
    np.testing.assert_allclose(machine.standard_errors()[0], errors, rtol=0.02)


def test_weights_of_next_to_no_rows_are_refused():
    for weights in (np.full(30, 5e-324), np.full(30, 1e-200)):
        with pytest.raises(
            ValueError, match="sample_weight counts rows, and must add up to between 7e-139"
        ):
            mf.SpikeSlabRegressor().fit(X, X[:, 0], sample_weight=weights)
