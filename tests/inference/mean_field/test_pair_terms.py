"""Terms of pairs of discrete units, against loops over their values and exact log-partitions."""

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.inference.mean_field import pair_terms
from fastmf.inference.mean_field.naive_bound import sides_of
from fastmf.inference.mean_field.pair_terms import PairTerms, has_pair_terms


def ordinal_machine(n, strength, seed):
    rng = np.random.default_rng(seed)
    couplings = np.triu(rng.normal(size=(n, n)), 1) * strength
    weights = rng.normal(size=(n, 4)) / 2
    weights[0, 3] = -np.inf
    return mf.BoltzmannMachine(couplings + couplings.T, mf.Ordinal(weights))


def state_of(model, found):
    parts = [found.mean, found.b, found.a]
    return [np.concatenate(part) if isinstance(part, tuple) else part for part in parts]


def by_loops(model, found):
    """All orders but the second of an ordinal machine, value by value."""
    n, total = model.n_units, 0.0
    scores = np.arange(4.0)
    logs = model.prior.log_weights + np.outer(found.b, scores) - np.outer(found.a, scores**2) / 2
    q = np.exp(logs - logs.max(1, keepdims=True))
    q /= q.sum(1, keepdims=True)
    for i, j in product(range(n), repeat=2):
        if i < j:
            mean_i, mean_j = q[i] @ scores, q[j] @ scores
            whole = second = 0.0
            for s, t in product(range(4), repeat=2):
                c = model.couplings[i, j] * (s - mean_i) * (t - mean_j)
                whole += q[i, s] * q[j, t] * np.exp(c)
                second += q[i, s] * q[j, t] * c * c / 2
            total += np.log(whole) - second
    return total


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_ordinal_units_against_loops(block, monkeypatch):
    monkeypatch.setattr(pair_terms, "_PAIR_NUMBERS", block)
    model = ordinal_machine(5, 0.3, 0)
    found = mf.tap(model)
    expected = by_loops(model, found)
    free = np.zeros(5, bool)
    assert np.isclose(PairTerms(sides_of(model)).excess(*state_of(model, found), free), expected)
    sparse = mf.BoltzmannMachine(csr_array(model.couplings), model.prior)
    assert np.isclose(PairTerms(sides_of(sparse)).excess(*state_of(model, found), free), expected)


def test_clamped_units_add_nothing():
    model, clamp = ordinal_machine(5, 0.3, 1), np.array([1.0, np.nan, np.nan, 2.0, np.nan])
    found, free = mf.tap(model, clamp=clamp), np.isnan(clamp)
    small = mf.BoltzmannMachine(
        model.couplings[np.ix_(free, free)], mf.Ordinal(model.prior.log_weights[free])
    )
    terms = PairTerms(sides_of(model)).excess(*state_of(model, found), ~free)
    own = [part[free] for part in state_of(model, found)]
    assert np.isclose(terms, PairTerms(sides_of(small)).excess(*own, np.zeros(3, bool)))


def test_scores_are_groups_with_their_products_as_couplings():
    ordinal = ordinal_machine(4, 0.3, 2)
    weights = np.where(np.isfinite(ordinal.prior.log_weights), ordinal.prior.log_weights, -1e3)
    scores = np.arange(4.0)
    couplings = np.kron(ordinal.couplings, np.outer(scores, scores))
    groups = mf.BoltzmannMachine(couplings, mf.Categorical(weights))
    found = mf.tap(ordinal)
    logs = weights + np.outer(found.b, scores) - np.outer(found.a, scores**2) / 2
    q = np.exp(logs - logs.max(1, keepdims=True))
    q = (q / q.sum(1, keepdims=True)).ravel()
    a = PairTerms(sides_of(ordinal)).excess(*state_of(ordinal, found), np.zeros(4, bool))
    b = PairTerms(sides_of(groups)).excess(q, 0 * q, 0 * q, np.zeros(16, bool))
    assert np.isclose(a, b, rtol=1e-6)


def test_pair_of_a_group_and_a_score_against_loops():
    rng, scores = np.random.default_rng(3), np.arange(3.0)
    for _ in range(5):
        visible, weights = mf.Categorical(rng.normal(size=(1, 3))), rng.normal(size=(1, 3))
        pair = mf.RBM(rng.normal(size=(3, 1)), visible, mf.Ordinal(weights))
        found, sides = mf.tap(pair), sides_of(pair)
        assert has_pair_terms(sides)
        q = found.mean[0]
        r = np.exp(weights[0] + found.b[1] * scores - found.a[1] * scores**2 / 2)
        r /= r.sum()
        whole = second = 0.0
        for s, t in product(range(3), repeat=2):
            c = (pair.weights[s, 0] - q @ pair.weights[:, 0]) * (scores[t] - r @ scores)
            whole += q[s] * r[t] * np.exp(c)
            second += q[s] * r[t] * c * c / 2
        terms = PairTerms(sides).excess(*state_of(pair, found), np.zeros(4, bool))
        assert np.isclose(terms, np.log(whole) - second, rtol=1e-6, atol=1e-9)


def test_small_terms_are_skipped():
    model = ordinal_machine(4, 0.01, 4)
    found = mf.tap(model)
    pairs, state = PairTerms(sides_of(model)), (*state_of(model, found), np.zeros(4, bool))
    assert pairs.excess(*state, negligible=0.5) == 0
    assert 0 < abs(pairs.excess(*state)) < 0.01


@pytest.mark.parametrize("coupling, strong", [(0.3, False), (-0.8, True), (0.8, True)])
def test_chains_of_strong_pairs_are_flagged(coupling, strong):
    couplings = coupling * (np.eye(8, k=1) + np.eye(8, k=-1))
    weights = -1.5 * np.outer(couplings.sum(1), np.arange(4))
    chain = mf.BoltzmannMachine(couplings, mf.Ordinal(weights))
    found = mf.tap(chain, np.full(8, 1.4))
    assert found.converged
    assert (abs(found.log_partition - mf.exact(chain).log_partition) > 1) == strong
    assert ("coupled too strongly" in found.message) == strong and found.reliable != strong


def test_real_units_have_no_terms():
    rbm = mf.RBM(np.ones((2, 2)), mf.Ordinal(np.zeros((2, 3))), mf.Gaussian([0, 0], [1, 1]))
    assert not has_pair_terms(sides_of(rbm))
