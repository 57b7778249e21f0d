"""Permutations of the rows of two groups."""

import numpy as np
import pytest

import fastmf as mf
from tests.estimators.test_networks import table


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
