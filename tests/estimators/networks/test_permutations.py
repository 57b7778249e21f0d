"""Permutations of the rows of two groups."""

from functools import partial
from itertools import combinations

import numpy as np
import pytest
from network_data import labels, table
from scipy.stats import kstest

import fastmf as mf


def test_permutations_need_rows_that_are_counted():
    X = table(200, 3)
    clustered = mf.FullyVisibleBoltzmannMachine().fit(X, clusters=np.arange(200) // 2)
    with pytest.raises(ValueError, match="clusters"):
        mf.compare_groups(clustered, clustered, n_permutations=2)
    whole = mf.FullyVisibleBoltzmannMachine().fit(X)
    with pytest.raises(ValueError, match="n_permutations"):
        mf.compare_groups(whole, whole, n_permutations=-1)
    same = mf.compare_groups(whole, whole, n_permutations=19)
    assert repr(same.permutation).startswith("PermutationTest(n=19, largest=0, largest_p_value=1, ")


potts_table = partial(labels, (3, 2, 2))


def statistics(fits):
    """Norms of differences by pair, and the difference of the sums of norms."""
    pairs, first = ([0, 0, 1], [1, 2, 2]), np.array([0, 3, 5, 7])

    def norms(couplings):
        if couplings.shape == (3, 3):
            return abs(couplings[pairs])
        return np.array([
            np.linalg.norm(couplings[first[i] : first[i + 1], first[j] : first[j + 1]])
            for i, j in zip(*pairs, strict=True)
        ])  # fmt: skip

    if isinstance(fits[0], mf.PottsMachine):
        a, b = (fit.in_gauge("zero-sum")[0] for fit in fits)
    else:
        factor = 1 if isinstance(fits[0], mf.OrdinalMachine) else 4
        a, b = (factor * fit.couplings_ for fit in fits)
    return norms(a - b), norms(a).sum() - norms(b).sum()


@pytest.mark.parametrize("kind, weighted, n_drawn, tolerance", [
    pytest.param(mf.FullyVisibleBoltzmannMachine, False, 100, 0.17, marks=pytest.mark.slow),
    pytest.param(mf.OrdinalMachine, False, 100, 0.17, marks=pytest.mark.slow),
    (mf.PottsMachine, True, 25, 0.25),
])  # fmt: skip
def test_permutations_are_of_rows_with_their_weights(kind, weighted, n_drawn, tolerance):
    """Against rows that are permuted and fitted here."""
    if kind is mf.PottsMachine:
        options = {"n_states": [3, 2, 2], "l2": 0.01, "l2_field": 0.01, "tol": 1e-8}
        tables = [potts_table(90, 1), potts_table(110, 2, 0.0)]
    else:
        options, tables = {}, [table(120, 3, 1), table(150, 3, 2)]
        tables[1][:, 2] = np.random.default_rng(5).integers(0, 2, 150)
    X, rng, n_first = np.concatenate(tables), np.random.default_rng(0), len(tables[0])
    weights = rng.choice([0.5, 1.0, 2.0], len(X)) if weighted else np.ones(len(X))
    weights[[3, -50]] = 0  # are no rows

    def fits(first):
        groups = first, np.setdiff1d(np.arange(len(X)), first)
        return [kind(**options).fit(X[k], sample_weight=weights[k]) for k in groups]

    machines = fits(np.arange(n_first))
    delta, strength = statistics(machines)
    found = mf.compare_groups(*machines, n_permutations=60, rng=1).permutation
    assert found.largest == pytest.approx(delta.max(), abs=1e-5)
    assert found.strength == pytest.approx(strength, abs=1e-5)
    rows = np.flatnonzero(weights)
    drawn = [statistics(fits(rng.permutation(rows)[: n_first - 1])) for _ in range(n_drawn)]
    single = np.mean([one[0] >= delta for one in drawn], axis=0)
    np.testing.assert_allclose(found.p_value[np.triu_indices(3, 1)], single, atol=tolerance)
    largest = np.mean([one[0].max() >= delta.max() for one in drawn])
    assert found.largest_p_value == pytest.approx(largest, abs=0.15)
    total = np.mean([abs(one[1]) >= abs(strength) for one in drawn])
    assert found.strength_p_value == pytest.approx(total, abs=0.17)
    assert (found.p_value == found.p_value.T).all() and (found.p_value.diagonal() == 1).all()
    assert found.n == 60 and found.converged == 1


def test_permutations_of_few_rows_are_all_of_them():
    """Each of the 20 ways to deal six rows to two groups of three, by hand."""
    X = potts_table(6, 3)
    options = {"n_states": [3, 2, 2], "l2": 0.1, "l2_field": 0.1, "tol": 1e-8}
    threes = list(combinations(range(6), 3))
    fitted = {rows: mf.PottsMachine(**options).fit(X[list(rows)]) for rows in threes}
    found = {}
    for first, rest in zip(threes, reversed(threes), strict=True):
        fits = [fitted[first], fitted[rest]]
        found[first] = statistics(fits)[0].max(), fits
    largest, machines = found[1, 2, 4]
    exact = np.mean([one[0] >= largest - 1e-7 for one in found.values()])
    tested = mf.compare_groups(*machines, n_permutations=40).permutation
    assert tested.largest == pytest.approx(largest, abs=1e-5)
    assert tested.largest_p_value == pytest.approx(exact, abs=0.15)


@pytest.mark.slow
def test_permutations_of_equal_groups_have_uniform_p_values():
    p_values = []
    for seed in range(25):
        X = potts_table(160, seed)
        a, b = (mf.PottsMachine(n_states=[3, 2, 2]).fit(half) for half in (X[:80], X[80:]))
        found = mf.compare_groups(a, b, n_permutations=19, rng=seed).permutation
        p_values.append(found.largest_p_value)
        assert found.converged > 0.9
    assert kstest(p_values, "uniform").pvalue > 0.01


def test_permutations_of_graphs_with_missing_labels():
    tables = [potts_table(150, seed).astype(float) for seed in (1, 2)]
    for k, X in enumerate(tables):
        X[np.random.default_rng(k).random(X.shape) < 0.1] = np.nan
    options = {"n_states": [3, 2, 2], "graph": [[0, 1], [1, 2]], "missing": "available"}
    machines = [mf.PottsMachine(**options, tol=1e-8).fit(X) for X in tables]
    tested = mf.compare_groups(*machines, n_permutations=9).permutation
    delta, strength = statistics(machines)
    assert tested.largest == pytest.approx(delta.max(), abs=1e-5)
    assert tested.strength == pytest.approx(strength, abs=1e-5)
    assert tested.p_value[0, 2] == 1
    completed = [mf.PottsMachine(n_states=[3, 2, 2], missing="em").fit(X) for X in tables]
    with pytest.raises(ValueError, match="missing='absent'"):
        mf.compare_groups(*completed, n_permutations=2)
