"""Differences between two groups, against enumeration and linear algebra."""

import numpy as np
import pytest
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
