"""Machines of ordinal items: maxima and errors by their definitions, inference by enumeration."""

from itertools import pairwise

import numpy as np
import ordinal_data as oracle
import pandas as pd
import pytest
from differences import differences
from potts_data import all_labels
from scipy.stats import chi2
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf

SIZES = [3, 2, 4]


@pytest.fixture(scope="module")
def data():
    return oracle.random_rows(SIZES, 400)[0]


@pytest.fixture(scope="module")
def machine(data):
    return mf.OrdinalMachine(tol=1e-8).fit(data)


def unpacked(theta, sizes=SIZES):
    """Couplings and thresholds of a vector, thresholds first."""
    first = np.cumsum([0, *(q - 1 for q in sizes)])
    mu = [theta[i:j] for i, j in pairwise(first)]
    sigma = np.zeros((len(sizes), len(sizes)))
    sigma[np.triu_indices(len(sizes), 1)] = theta[first[-1] :]
    return sigma + sigma.T, mu


def packed(machine):
    pairs = np.triu_indices(len(machine.couplings_), 1)
    return np.concatenate([*machine.thresholds_, machine.couplings_[pairs]])


def test_errors_are_the_sandwich_of_numerical_derivatives(data, machine):
    theta, n = packed(machine), len(data)

    def mean_scores(at):
        return oracle.scores(*unpacked(at), data).mean(0)

    hessian = -differences(mean_scores, theta)
    scores = oracle.scores(*unpacked(theta), data)
    inverse = np.linalg.inv(hessian)
    sandwich = inverse @ (scores.T @ scores / n) @ inverse / n
    np.testing.assert_allclose(machine.covariance(), sandwich, rtol=1e-5, atol=1e-8)
    couplings, thresholds = machine.standard_errors()
    errors = np.sqrt(sandwich.diagonal())
    np.testing.assert_allclose(np.concatenate(thresholds), errors[:6], rtol=1e-5)
    np.testing.assert_allclose(couplings[np.triu_indices(3, 1)], errors[6:], rtol=1e-5)
    tests = machine.test_couplings("bonferroni")
    np.testing.assert_allclose(tests.z, theta[6:] / errors[6:], rtol=1e-5)
    np.testing.assert_allclose(tests.p_value, chi2.sf(tests.z**2, 1), rtol=1e-9)
    np.testing.assert_allclose(tests.adjusted, np.minimum(3 * tests.p_value, 1))
    low_high, of_thresholds = machine.confint(0.95)
    np.testing.assert_allclose(np.ptp(low_high[0, 1]), 2 * 1.959964 * errors[6], rtol=1e-5)
    assert of_thresholds[2].shape == (3, 2)


def test_blume_capel_thresholds(data):
    machine = mf.OrdinalMachine(thresholds="blume_capel").fit(data)
    first, second, third = machine.thresholds_[2]  # alpha c + beta c^2 at 1, 2 and 3
    assert third == pytest.approx(3 * (second - first), rel=1e-12)
    # Two parameters are as good as two thresholds.
    free = mf.OrdinalMachine().fit(data[:, :2])
    same = mf.OrdinalMachine(thresholds="blume_capel").fit(data[:, :2])
    np.testing.assert_allclose(same.couplings_, free.couplings_, atol=1e-7)
    np.testing.assert_allclose(same.thresholds_[0], free.thresholds_[0], atol=1e-7)
    errors = [m.standard_errors()[1][0] for m in (same, free)]
    np.testing.assert_allclose(*errors, rtol=1e-5)


def test_penalties(data):
    ridge = mf.OrdinalMachine(l2=100.0).fit(data)
    assert abs(ridge.couplings_).max() < 0.01
    lasso = mf.OrdinalMachine(l1=10.0).fit(data)
    assert not lasso.couplings_.any()
    with pytest.warns(UserWarning, match="without l1 of the 0 couplings"):
        lasso.standard_errors()
    with pytest.raises(ValueError, match="l2"):
        ridge.likelihood_ratio_test()


# --- inference by enumeration ---------------------------------------------------------------------


def probabilities(machine):
    """All states of the machine and their probabilities."""
    states = all_labels(SIZES)
    logs = oracle.log_weights(machine.couplings_, machine.thresholds_, states)
    return states, np.exp(logs - np.logaddexp.reduce(logs))


@pytest.mark.parametrize("options", [{}, {"l1": "ebic"}, {"l1": "or"}, {"l1": 0.2}])
def test_conditionals(data, options):
    if options:  # some items are uncoupled
        data = np.column_stack([data[:, :2], np.random.default_rng(0).permutation(data[:, 2])])
    machine = mf.OrdinalMachine(**options, tol=1e-8).fit(data)
    assert (machine.couplings_[np.triu_indices(3, 1)] == 0).any() == bool(options)
    states, p = probabilities(machine)
    found = machine.conditional_proba(states)
    first = np.cumsum([0, *SIZES])
    for i in range(3):
        others = [j for j in range(3) if j != i]
        for row, x in enumerate(states):
            alike = (states[:, others] == x[others]).all(1)
            expected = p[alike][np.argsort(states[alike, i])] / p[alike].sum()
            np.testing.assert_allclose(found[row, first[i] : first[i + 1]], expected, rtol=1e-9)
    values = oracle.log_pseudo_likelihoods(machine.couplings_, machine.thresholds_, data)
    np.testing.assert_allclose(machine.score_samples(data), values, rtol=1e-9)


def test_model_has_the_same_probabilities(machine):
    states, p = probabilities(machine)
    exact = mf.exact(machine.model_)
    np.testing.assert_allclose(exact.mean, p @ states, rtol=1e-10)
    energy = machine.model_.energy(states.astype(float))
    np.testing.assert_allclose(-energy - exact.log_partition, np.log(p), rtol=1e-9)


def test_samples_have_the_probabilities(machine):
    states, p = probabilities(machine)
    drawn = machine.sample(20_000, random_state=0)
    counts = np.array([(drawn == x).all(1).sum() for x in states])
    assert counts.sum() == 20_000
    assert abs((counts - 20_000 * p) / np.sqrt(20_000 * p)).max() < 4.5


def test_imputed_values_are_the_most_probable(machine):
    states, p = probabilities(machine)
    rows = np.array([[np.nan, 1, 2], [2, np.nan, np.nan], [0, 1, 3]])
    filled = machine.impute(rows)
    for row, found in zip(rows, filled, strict=True):
        seen = ~np.isnan(row)
        alike = (states[:, seen] == row[seen]).all(1)
        for i in np.flatnonzero(~seen):
            marginal = np.bincount(states[alike, i], p[alike])
            assert found[i] == marginal.argmax()
        np.testing.assert_array_equal(found[seen], row[seen])


# --- tables, files, refusals ----------------------------------------------------------------------


def test_codes_and_names_come_as_they_are(data, machine):
    shifted = mf.OrdinalMachine(tol=1e-8).fit(data + [1, -2, 5])
    np.testing.assert_allclose(shifted.couplings_, machine.couplings_, atol=1e-9)
    assert shifted.sample(50, random_state=0).min(0).tolist() == [1, -2, 5]
    order = ["never", "now and then", "often"]
    frame = pd.DataFrame(data, columns=["sleep", "mood", "pain"])
    frame["sleep"] = pd.Categorical.from_codes(data[:, 0], order, ordered=True)
    named = mf.OrdinalMachine(tol=1e-8).fit(frame)
    np.testing.assert_allclose(named.couplings_, machine.couplings_, atol=1e-9)
    assert named.categories_[0].tolist() == order
    frame = frame.astype({"sleep": object})
    frame.loc[0, "sleep"] = None
    filled = named.impute(frame)
    assert filled.columns.tolist() == ["sleep", "mood", "pain"]
    assert filled.loc[0, "sleep"] in order
    assert named.test_couplings(as_frame=True)["first"].tolist() == ["sleep", "sleep", "mood"]


@pytest.mark.parametrize("options", [{}, {"l1": 0.01}])
def test_empty_categories_are_named(data, options):
    frame = pd.DataFrame(np.where(data == 1, 0, data)[:, [0, 2]], columns=["sleep", "pain"])
    with pytest.warns(ConvergenceWarning, match="nobody is in category 1 of item sleep"):
        machine = mf.OrdinalMachine(**options).fit(frame)
    assert machine.existence_.exists is False
    assert not machine.converged_
    with pytest.raises(ValueError, match="standard errors"):
        machine.standard_errors()
    assert mf.OrdinalMachine(l2=0.1, l2_field=0.1).fit(frame).converged_


def test_missing_values(data):
    rows = data.astype(float)
    rows[:30, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        mf.OrdinalMachine().fit(rows)
    machine = mf.OrdinalMachine(missing="drop").fit(rows)
    assert machine.n_dropped_ == 30
    expected = mf.OrdinalMachine().fit(data[30:])
    np.testing.assert_allclose(machine.couplings_, expected.couplings_, atol=1e-9)
    with pytest.raises(ValueError, match="without missing values"):
        mf.OrdinalMachine(missing="drop").fit(np.where(rows == rows, np.nan, rows)[:5] * np.nan)
