"""Covariances of couplings that are raised, and shares of penalties."""

import numpy as np
import pytest
from network_data import table
from scipy import linalg

import fastmf as mf
from fastmf.estimators.networks.edges import shrunk


def test_raised_covariances_have_at_least_a_multiple_of_the_naive_variances():
    rng = np.random.default_rng(1)
    A, B = (np.cov(rng.normal(size=(4, 20))) for _ in range(2))
    A[0] *= 0.1
    A[:, 0] *= 0.1
    sets = [np.array([0, 2]), np.array([1, 3])]
    found = shrunk(A, B, 1e300, sets, 1.0)  # not shrunk, as of very many rows
    for own in sets:
        block = np.ix_(own, own)
        ratios = linalg.eigvals(np.linalg.solve(B[block], A[block])).real
        after = linalg.eigvals(np.linalg.solve(B[block], found[block])).real
        np.testing.assert_allclose(np.sort(after), np.sort(np.maximum(ratios, 1)))
    assert found[0, 1] == A[0, 1] and (linalg.eigvalsh(found - A) > -1e-12).all()
    np.testing.assert_allclose(shrunk(A, B, 1e300, sets, 0.0), A)


@pytest.mark.parametrize(
    "kind", [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine, mf.PottsMachine]
)
def test_couplings_of_which_rows_say_nothing_have_the_prior_probability(kind):
    both = {} if kind is mf.FullyVisibleBoltzmannMachine else {"l2_field": 0.01}
    options = {"l2": 0.01} | both
    X = (table(200, 4) > 0).astype(int)
    if kind is not mf.FullyVisibleBoltzmannMachine:
        X[1:, 2], X[0, 2] = 1, 0  # all but one row
        found = kind(**options).fit(X).edge_inclusion().probability
        np.testing.assert_allclose(found[2, [0, 1, 3]], 0.5, atol=0.1)
    machine = kind(missing="em", **options).fit(np.where(np.eye(4), np.nan, table(4, 4, 3) > 0))
    found = machine.edge_inclusion().probability[np.triu_indices(4, 1)]
    np.testing.assert_allclose(found, 0.5, atol=0.1)
