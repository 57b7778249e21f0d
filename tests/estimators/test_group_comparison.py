"""Differences between two groups, against enumeration and linear algebra."""

import numpy as np
import pytest
from scipy import linalg
from scipy.stats import chi2, norm

import fastmf as mf
from tests.estimators.test_edge_inclusion import all_graphs, mixed, naive_covariance
from tests.estimators.test_networks import table


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


def test_more_than_two_groups():
    groups = [mf.FullyVisibleBoltzmannMachine().fit(table(n, 3, n)) for n in (300, 400, 600)]
    found = mf.compare_groups(*groups)
    pairs = np.triu_indices(3, 1)
    values = [4 * machine.couplings_[pairs] for machine in groups]
    C = [
        16 * mixed(m.covariance()[3:, 3:], naive_covariance(m, n)[3:, 3:], n)
        for m, n in zip(groups, (300, 400, 600), strict=True)
    ]
    # All estimates are one vector whose mean is that of the common couplings.
    design, whole = np.tile(np.eye(3), (3, 1)), linalg.block_diag(*C)
    y = np.concatenate(values)
    W = np.linalg.inv(whole)
    common = np.linalg.solve(design.T @ W @ design, design.T @ W @ y)
    rest = y - design @ common
    np.testing.assert_allclose(found.common[pairs], common)
    assert found.omnibus.statistic == pytest.approx(rest @ W @ rest)
    assert found.omnibus.p_value == pytest.approx(chi2.sf(rest @ W @ rest, 6))
    assert set(found.pairwise) == {(0, 1), (0, 2), (1, 2)}
    two = mf.compare_groups(groups[0], groups[2])
    np.testing.assert_allclose(found.pairwise[0, 2].p_value, two.p_value)
    w = 1 / np.array([c[0, 0] for c in C])
    x = np.array([v[0] for v in values])
    statistic = w @ (x - w @ x / w.sum()) ** 2
    assert found.p_value[0, 1] == pytest.approx(chi2.sf(statistic, 2))


def test_nodes_of_many_couplings_have_no_omnibus(monkeypatch):
    monkeypatch.setattr("fastmf.estimators._networks.MAX_JOINT", 3)
    a, b = machines()
    found = mf.compare_groups(a, b)
    assert np.isnan(found.omnibus.statistic)
    assert ((found.probability > 0) == ~np.eye(4, dtype=bool)).all()
    with pytest.raises(ValueError, match="more than two groups"):
        mf.compare_groups(a, b, a)
