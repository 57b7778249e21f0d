"""Sums of scores over what was sampled: rows, weighted rows and clusters."""

import numpy as np
import pytest
from scipy import sparse

from fastmf.learning.pseudo_likelihood import fit
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood


def problem(n=60, d=4):
    """An objective, parameters, and the scores of its rows from objectives of single rows."""
    rng = np.random.default_rng(3)
    states = np.where(rng.random((n, d)) < 0.4, -1.0, 1.0)
    objective = PseudoLikelihood(states, rng.random(n) + 0.1, l2=0.2)
    parameters = rng.normal(size=objective.n_parameters) / 2
    one_by_one = [PseudoLikelihood(x[None], np.ones(1)) for x in states]
    scores = np.array([alone.value_and_gradient(parameters)[1] for alone in one_by_one])
    return objective, parameters, scores


def samplings(objective):
    """Names of designs, the argument, and the matrix that sums rows."""
    weights, n = objective.weights, len(objective.weights)
    clusters = np.arange(n) % 7
    members = sparse.csr_array((weights, (clusters, np.arange(n))), shape=(7, n))
    return {
        "counts": (None, np.diag(np.sqrt(weights))),
        "weights": (weights**2, np.diag(weights)),
        "clusters": (members, members.toarray()),
    }


@pytest.mark.parametrize("block", [1, 1 << 20])
@pytest.mark.parametrize("design", ["counts", "weights", "clusters"])
def test_score_covariances_against_sums_of_outer_products(design, block, monkeypatch):
    objective, parameters, scores = problem(n=600)
    monkeypatch.setattr(fit, "SCORE_NUMBERS", block)
    sampling, matrix = samplings(objective)[design]
    sums = matrix @ (scores - objective.weights @ scores)
    expected = sums.T @ sums
    found = objective.score_covariance(parameters, sampling)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(found, found.T)
    vectors = np.random.default_rng(1).normal(size=(3, objective.n_parameters))
    along = objective.score_variances(parameters, vectors, sampling)
    np.testing.assert_allclose(along, ((vectors @ expected) * vectors).sum(1), rtol=1e-11)
