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


@pytest.mark.parametrize("kind", [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine])
def test_permutations_are_of_rows(kind):
    """Against rows that are permuted and fitted here."""
    X = [table(120, 3, 1), table(150, 3, 2)]
    X[1][:, 2] = np.random.default_rng(5).integers(0, 2, 150)
    a, b = (kind().fit(own) for own in X)
    found = mf.compare_groups(a, b, n_permutations=200, rng=1).permutation
    both, rng, pairs = np.concatenate(X), np.random.default_rng(0), np.triu_indices(3, 1)
    factor = 1 if kind is mf.OrdinalMachine else 4

    def statistics(first, second):
        own = [factor * kind().fit(rows).couplings_[pairs] for rows in (first, second)]
        return abs(own[0] - own[1]), abs(own[0]).sum() - abs(own[1]).sum()

    delta, strength = statistics(*X)
    by_hand = []
    for _ in range(100):
        order = rng.permutation(270)
        by_hand.append(statistics(both[order[:120]], both[order[120:]]))
    assert found.largest == pytest.approx(delta.max(), abs=1e-5)
    assert found.strength == pytest.approx(strength, abs=1e-5)
    largest = np.mean([one[0].max() >= delta.max() for one in by_hand])
    assert found.largest_p_value == pytest.approx(largest, abs=0.15)
    single = np.mean([one[0] >= delta for one in by_hand], axis=0)
    np.testing.assert_allclose(found.p_value[pairs], single, atol=0.17)
    total = np.mean([abs(one[1]) >= abs(strength) for one in by_hand])
    assert found.strength_p_value == pytest.approx(total, abs=0.17)
    assert found.n == 200 and found.converged == 1


def test_permutations_need_rows_that_are_counted():
    X = table(200, 3)
    clustered = mf.FullyVisibleBoltzmannMachine().fit(X, clusters=np.arange(200) // 2)
    with pytest.raises(ValueError, match="clusters"):
        mf.compare_groups(clustered, clustered, n_permutations=2)
    whole = mf.FullyVisibleBoltzmannMachine().fit(X)
    with pytest.raises(ValueError, match="n_permutations"):
        mf.compare_groups(whole, whole, n_permutations=-1)
    same = mf.compare_groups(whole, whole, n_permutations=19)
    assert same.permutation.largest_p_value == 1.0


def test_nodes_of_many_couplings_have_no_omnibus(monkeypatch):
    monkeypatch.setattr("fastmf.estimators._networks.MAX_JOINT", 3)
    a, b = machines()
    found = mf.compare_groups(a, b)
    assert np.isnan(found.omnibus.statistic)
    assert ((found.probability > 0) == ~np.eye(4, dtype=bool)).all()
    with pytest.raises(ValueError, match="more than two groups"):
        mf.compare_groups(a, b, a)
