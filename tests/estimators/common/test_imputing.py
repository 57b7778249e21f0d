"""Missing values of fully visible machines, as estimators fill them in."""

from functools import cache

import numpy as np
import pytest
from populations import all_states
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.inference.sampling import discrete


def chain(p, n, n_rows=4000):
    steps = np.random.default_rng(0).random((n_rows, n)) < p
    return np.cumprod(np.where(steps, 1.0, -1.0), axis=1)


@pytest.fixture(scope="module", params=[0.75, 0.95])
def fitted(request):
    return mf.FullyVisibleBoltzmannMachine().fit(chain(request.param, 18))


@pytest.mark.parametrize("method, tol", [("auto", 1e-10), ("annealing", 0.02)])
def test_fifteen_missing_units_of_a_strongly_coupled_chain(fitted, method, tol):
    row, states = np.full((1, 18), np.nan), all_states(18)
    row[0, :3] = 1
    p = fitted.pmf() * (states[:, :3] == 1).all(1)
    filled = fitted.impute(row, method=method)
    np.testing.assert_allclose(filled[0], p @ states / p.sum(), atol=tol)
    np.testing.assert_array_equal(filled, fitted.impute(row, method=method))


def test_rows_beyond_enumeration(monkeypatch):
    machine = mf.FullyVisibleBoltzmannMachine().fit((chain(0.9, 18)[:500] + 1) / 2)
    X = np.where(np.random.default_rng(1).random((5, 18)) < 0.7, np.nan, 1.0)
    exact = machine.impute(X)
    monkeypatch.setattr(discrete, "MAX_ENUMERATED_STATES", 1 << 8)
    filled = machine.impute(X)
    np.testing.assert_allclose(filled, exact, atol=0.01)
    assert (filled != exact).any()
    with pytest.raises(ValueError, match="'exact' takes rows"):
        machine.impute(X, method="exact")
    with pytest.raises(ValueError, match="method must be one of"):
        machine.impute(X, method="gibbs")


def test_uncertain_means_are_told(monkeypatch):
    X = np.repeat(np.where(np.arange(200)[:, None] % 2, 1.0, -1.0), 16, axis=1)
    X *= np.where(np.random.default_rng(0).random(X.shape) < 0.1, -1, 1)
    machine, gaps = mf.FullyVisibleBoltzmannMachine(l2=0.1).fit(X), np.full((3, 16), np.nan)
    gaps[0] = 1
    means = machine.impute(gaps)
    assert abs(means[1:]).max() < 0.3  # two phases
    monkeypatch.setattr(discrete, "WORST_ERROR", 1e-5)
    with pytest.warns(ConvergenceWarning, match="2 of 3 rows are uncertain: .* standard errors"):
        near = machine.impute(gaps, method="annealing")
    np.testing.assert_allclose(near, means, atol=0.02)


def test_missing_positions_of_potts_machines(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.random((1000, 9)) < 0.15, axis=1) % 3
    machine = mf.PottsMachine(n_states=3, l2=0.01, l2_field=0.01).fit(X)
    holes = np.where(rng.random((20, 9)) < 0.7, -1, X[:20])
    exact = machine.impute(holes)
    monkeypatch.setattr(discrete, "MAX_ENUMERATED_STATES", 1 << 6)
    assert (machine.impute(holes) == exact).mean() > 0.99
    with pytest.raises(ValueError, match="method must be one of"):
        machine.impute(holes, method="mean")


@cache
def two_phases(n_hidden):
    """An RBM of rows of six 1s or six 0s, one unit in twenty flipped."""
    rng = np.random.default_rng(0)
    X = (rng.random(400) < 0.65)[:, None] ^ (rng.random((400, 6)) < 0.05)
    options = {"n_epochs": 50, "learning_rate": 0.2, "random_state": 0}
    return mf.GeneralizedRBM(n_hidden, **options).fit(X.astype(float))


@pytest.mark.parametrize("n_hidden", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_rows_of_which_nothing_was_seen_have_the_means_of_the_model(n_hidden):
    rbm, gaps = two_phases(n_hidden), np.full((2, 6), np.nan)
    expected = mf.exact(rbm.model_).mean[0]
    assert expected.min() > 0.2 and expected.max() < 0.8  # not those of a phase
    np.testing.assert_allclose(rbm.impute(gaps), [expected, expected], atol=1e-10)
    np.testing.assert_allclose(rbm.impute(gaps, method="exact")[0], expected, atol=1e-10)
    # Both phases by mean field, but only one from a single start.
    np.testing.assert_allclose(rbm.impute(gaps, method="tap")[0], expected, atol=0.05)
    assert abs(rbm.impute(gaps, method="tap", n_starts=1)[0] - expected).min() > 0.1


def test_layers_with_too_many_states(monkeypatch):
    rbm, gaps = two_phases(4), np.full((2, 6), np.nan)
    gaps[0, :5] = 1
    exact = rbm.impute(gaps)
    monkeypatch.setattr("fastmf.inference.missing.layered.MAX_WORK_OF_ROW", 70)
    near = rbm.impute(gaps)
    np.testing.assert_allclose(near, exact, atol=0.05)
    assert near[0, 5] == exact[0, 5] and (near[1] != exact[1]).all()
    with pytest.raises(ValueError, match="1 of 2 rows, among them row 1"):
        rbm.impute(gaps, method="exact")
    with pytest.raises(ValueError, match="method must be one of"):
        rbm.impute(gaps, method="annealing")
