"""Covariances of couplings: mixed ones, those of each feature, and shares of penalties."""

import numpy as np
import pytest
from network_data import table
from scipy import linalg

import fastmf as mf
from fastmf.estimators.networks.covariances import (
    NodeCovariances,
    contrast_covariance,
    few_rows,
    raised,
    shrunk,
    singular,
    warn_of_penalty,
)


def test_mixed_covariances_have_the_variances_of_the_sandwich():
    rng = np.random.default_rng(0)
    A, B = (np.cov(rng.normal(size=(3, 20))) for _ in range(2))
    found, weight = shrunk(A, B, 9), 3 / 12
    np.testing.assert_allclose(found.diagonal(), A.diagonal())
    ratio = np.sqrt(A[0, 0] * A[1, 1] / (B[0, 0] * B[1, 1]))
    assert found[0, 1] == pytest.approx((1 - weight) * A[0, 1] + weight * ratio * B[0, 1])
    np.testing.assert_allclose(shrunk(A, B, 1e12), A)
    alone = [np.array([k]) for k in range(3)]
    np.testing.assert_allclose(shrunk(A, B, 9, alone), found, rtol=1e-12)


def test_mixed_covariances_of_sets_do_not_depend_on_their_coordinates():
    rng = np.random.default_rng(0)
    A, B = (np.cov(rng.normal(size=(5, 40))) for _ in range(2))
    sets = [np.arange(2), np.arange(2, 5)]
    found = shrunk(A, B, 9, sets)
    for own in sets:
        np.testing.assert_allclose(found[np.ix_(own, own)], A[np.ix_(own, own)], rtol=1e-10)
    turn = np.zeros((5, 5))
    for own in sets:
        turn[np.ix_(own, own)] = np.linalg.qr(rng.normal(size=(len(own), len(own))))[0]
    turned = shrunk(turn @ A @ turn.T, turn @ B @ turn.T, 9, sets)
    np.testing.assert_allclose(turned, turn @ found @ turn.T, atol=1e-12)


def test_raised_covariances_have_at_least_a_multiple_of_the_naive_variances():
    rng = np.random.default_rng(1)
    A, B = (np.cov(rng.normal(size=(4, 20))) for _ in range(2))
    A[0] *= 0.1
    A[:, 0] *= 0.1
    each = raised(A, B, 1.0)
    np.testing.assert_allclose(each.diagonal(), np.maximum(A.diagonal(), B.diagonal()))
    sets = [np.array([0, 2]), np.array([1, 3])]
    found = raised(A, B, 1.0, sets)
    for own in sets:
        block = np.ix_(own, own)
        ratios = linalg.eigvals(np.linalg.solve(B[block], A[block])).real
        after = linalg.eigvals(np.linalg.solve(B[block], found[block])).real
        np.testing.assert_allclose(np.sort(after), np.sort(np.maximum(ratios, 1)))
    assert found[0, 1] == A[0, 1] and (linalg.eigvalsh(found - A) > -1e-12).all()
    np.testing.assert_allclose(raised(A, B, 0.0, sets), A)


def test_covariances_of_each_feature_are_blocks(monkeypatch):
    godambe = mf.FullyVisibleBoltzmannMachine().fit(table(300, 4))._godambe()
    directions, sets, _ = godambe.objective.contrasts()
    whole = contrast_covariance(godambe, directions, sets, "naive")
    monkeypatch.setattr("fastmf.estimators.networks.covariances.MAX_JOINT", 5)
    blocks = contrast_covariance(godambe, directions, sets, "naive")
    assert isinstance(blocks, NodeCovariances) and blocks.features == (0, 1, 2, 3)
    for own, block in zip(blocks.edges, blocks.blocks, strict=True):
        np.testing.assert_allclose(block, whole[np.ix_(own, own)])
    np.testing.assert_allclose((blocks + blocks).diagonal(), (blocks * 2).diagonal())
    np.testing.assert_allclose(blocks.diagonal(), whole.diagonal())


def test_shares_of_penalties():
    warn_of_penalty(np.array([0.0, 0.29]))
    with pytest.warns(UserWarning, match="1 of 2 couplings"):
        warn_of_penalty(np.array([0.31, 0.1]))
    with pytest.warns(UserWarning, match="the prior makes up"):
        warn_of_penalty(np.array([0.31, 0.1]), "prior")
    assert few_rows(np.array([0.05, 0.2, 0.3])) and not few_rows(np.array([0.05, 0.06, 0.3]))


def test_singular_covariances():
    assert not singular(np.diag([1.0, 1e-20]))
    assert singular(np.diag([1.0, 0.0])) and singular(np.ones((2, 2)))
    assert singular(np.full((2, 2), np.nan))


@pytest.mark.parametrize(
    "kind", [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine, mf.PottsMachine]
)
def test_couplings_that_the_penalty_determines_are_said(kind):
    options = {"l2": 0.01} if kind is mf.FullyVisibleBoltzmannMachine else {
        "l2": 0.01, "l2_field": 0.01
    }  # fmt: skip
    X = (table(200, 4) > 0).astype(int)
    assert kind(**options).fit(X).edge_inclusion().probability.shape == (4, 4)
    if kind is not mf.FullyVisibleBoltzmannMachine:
        X[1:, 2], X[0, 2] = 1, 0  # all but one row
        with pytest.warns(UserWarning, match="makes up 30%"):
            kind(**options).fit(X).edge_inclusion()
    with pytest.warns(UserWarning, match="the penalty makes up 30%"):
        kind(**options).fit(table(4, 4, 3) > 0).edge_inclusion()
