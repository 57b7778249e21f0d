"""Differences between two groups, against enumeration and linear algebra."""

import numpy as np
import pytest
from network_data import labels, table
from scipy.stats import chi2, norm

import fastmf as mf
from tests.estimators.networks.test_edge_inclusion import all_graphs, mixed, naive_covariance


def machines():
    return [mf.FullyVisibleBoltzmannMachine().fit(table(n, 4, k)) for k, n in ((0, 300), (1, 500))]


def test_differences_have_the_sum_of_the_covariances():
    a, b = machines()
    found, pairs = mf.compare_groups(a, b), np.triu_indices(4, 1)
    delta = 4 * (a.couplings_ - b.couplings_)[pairs]
    C = sum(
        16 * mixed(machine.covariance()[4:, 4:], naive_covariance(machine, n)[4:, 4:], n)
        for machine, n in ((a, 300), (b, 500))
    )
    np.testing.assert_allclose(found.difference[pairs], delta)
    np.testing.assert_allclose(found.std[pairs], np.sqrt(np.diag(C)))
    z = delta / np.sqrt(np.diag(C))
    np.testing.assert_allclose(found.p_value[pairs], 2 * norm.sf(abs(z)))
    statistic = delta @ np.linalg.solve(C, delta)
    assert np.isclose(found.omnibus.statistic, statistic)
    assert np.isclose(found.omnibus.p_value, chi2.sf(statistic, 6))
    np.testing.assert_allclose(found.probability[pairs], all_graphs(delta, C), atol=0.02)


def test_groups_must_have_the_same_features():
    a, b = machines()
    with pytest.raises(TypeError, match="one class"):
        mf.compare_groups(a, b.model_)
    with pytest.raises(ValueError, match="same features"):
        mf.compare_groups(a, mf.FullyVisibleBoltzmannMachine().fit(table(300, 5)))
    with pytest.raises(ValueError, match="values"):
        mf.compare_groups(a, mf.FullyVisibleBoltzmannMachine().fit(2 * table(300, 4)))


def test_nodes_of_many_couplings_have_no_omnibus(monkeypatch):
    monkeypatch.setattr("fastmf.estimators.networks.edges.MAX_JOINT", 3)
    a, b = machines()
    found = mf.compare_groups(a, b)
    assert np.isnan(found.omnibus.statistic)
    assert ((found.probability > 0) == ~np.eye(4, dtype=bool)).all()


def test_groups_of_potts_machines():
    groups = [
        labels((3, 3, 2), n, n, strength) for n, strength in ((400, 0.5), (500, 0.0), (450, 0.0))
    ]
    a, b, c = (mf.PottsMachine(n_states=[3, 3, 2], tol=1e-8).fit(X) for X in groups)
    found = mf.compare_groups(a, b, errors="naive")
    both = [machine._edge_estimates("naive") for machine in (a, b)]
    delta, C = both[0].values - both[1].values, both[0].covariance + both[1].covariance
    assert found.omnibus.statistic == pytest.approx(delta @ np.linalg.solve(C, delta))
    assert found.omnibus.n_degrees == len(delta) == 4 + 2 + 2
    statistic = delta[:4] @ np.linalg.solve(C[:4, :4], delta[:4])
    assert found.p_value[0, 1] == pytest.approx(chi2.sf(statistic, 4)) and found.p_value[0, 0] == 1
    gauge = a.in_gauge("zero-sum")[0] - b.in_gauge("zero-sum")[0]
    np.testing.assert_allclose(found.difference, gauge, atol=1e-6)
    errors = [machine._godambe().naive_covariance() for machine in (a, b)]
    objective = a._godambe().objective
    L = objective.contrasts()[0].toarray()
    variances = np.diag(L.T @ L @ (errors[0] + errors[1]) @ L.T @ L)
    np.testing.assert_allclose(found.std[objective.pairs] ** 2, variances[8:], rtol=1e-6)
    assert found.probability[0, 1] > 0.9 and found.probability[1, 2] < 0.5
    assert mf.compare_groups(b, c).probability.max() < 0.5
    with pytest.raises(ValueError, match="values"):
        mf.compare_groups(a, mf.PottsMachine(n_states=3, l2=0.001, l2_field=0.1).fit(groups[1]))


def test_groups_of_two_states_are_those_of_binary_units_with_missing_values():
    tables = [table(n, 3, k).astype(float) for k, n in ((0, 250), (1, 300))]
    for X in tables:
        X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    binary = [mf.FullyVisibleBoltzmannMachine(missing="em", tol=1e-9).fit(X) for X in tables]
    labels = [np.where(np.isnan(X), np.nan, X > 0) for X in tables]
    potts = [mf.PottsMachine(missing="em", n_states=2, tol=1e-9).fit(X) for X in labels]
    expected, found = (mf.compare_groups(*machines) for machines in (binary, potts))
    np.testing.assert_allclose(found.p_value, expected.p_value, atol=1e-4)
    np.testing.assert_allclose(found.probability, expected.probability, atol=0.02)
    assert found.omnibus.statistic == pytest.approx(expected.omnibus.statistic, rel=1e-4)


def test_what_differs_is_said():
    a, b = (mf.FullyVisibleBoltzmannMachine(graph=g).fit(table(200, 4))
            for g in ([[0, 1]], [[1, 2]]))  # fmt: skip
    with pytest.raises(ValueError, match="same pairs of features"):
        mf.compare_groups(a, b)
    with pytest.warns(UserWarning, match="no maximum exists"):
        separated = mf.FullyVisibleBoltzmannMachine().fit(np.eye(4))
    with pytest.raises(ValueError, match=r"^machine_b: .* no maximum exists"):
        mf.compare_groups(a, separated)
    scores = np.random.default_rng(0).integers(0, 3, (200, 3))
    few = mf.OrdinalMachine().fit(np.minimum(scores, [1, 2, 2]))
    with pytest.raises(ValueError, match=r"got \[0, 1, 2\] and \[0, 1\] of x0"):
        mf.compare_groups(mf.OrdinalMachine().fit(scores), few)
