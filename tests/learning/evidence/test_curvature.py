import numpy as np
import pytest
from kernel_cases.regression import exact
from scipy.special import expit

import fastmf as mf
from fastmf.learning.evidence import Hyperparameters, Regression
from fastmf.learning.evidence.curvature import evidence_curvature

GROUPS = np.array([0, 1, 0, 1, 0])


def regression(correlation):
    """Five features, some of which are in pairs, and too little data to be sure."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 5))
    X[:, 1] = correlation * X[:, 0] + np.sqrt(1 - correlation**2) * X[:, 1]
    X = np.linalg.qr(X)[0] * np.sqrt(40) if correlation == 0 else X
    return Regression(X, 0.5 * X[:, 0] + rng.normal(size=40), GROUPS)


def log_evidence(task, x):
    """Of ln slab and log-odds, with noise 1, by enumeration."""
    prior = mf.GaussBernoulli(np.zeros(5), np.exp(-x[0]), x[1:][GROUPS])
    return exact(mf.SparseLinearModel(task.X, task.y, 1.0, prior))[0]


def curvatures(function, x, h=1e-3):
    """Minus second derivatives, by finite differences."""
    steps = h * np.eye(len(x))
    return -np.array(
        [
            [
                (function(x + a + b) - function(x + a - b) - function(x - a + b)
                 + function(x - a - b)) / (4 * h * h)
                for a in steps
            ]
            for b in steps
        ]
    )  # fmt: skip


@pytest.mark.parametrize("correlation, blocks", [(0.0, None), (0.9, [0, 0, 1, 2, 3])])
def test_curvature_against_enumeration(correlation, blocks):
    """Where features are orthogonal or in blocks, posteriors are those that it is made for."""
    task, x = regression(correlation), np.array([-1.0, -1.5, -2.0])
    values = Hyperparameters(1.0, np.exp(x[0]), x[1:])
    result = mf.expectation_propagation(task.model(values), tol=1e-10, blocks=blocks)
    found = evidence_curvature(values, result, GROUPS, 2)
    expected = curvatures(lambda x: log_evidence(task, x), x)
    # That of complete data, which counts all features, is larger.
    p = expit(x[1:])[GROUPS]
    assert (np.bincount(GROUPS, p * (1 - p)) > 1.3 * expected.diagonal()[1:]).all()
    atol = 1e-4 if blocks is None else 0.1 * abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=atol)
    alone = evidence_curvature(values, result, GROUPS, 0)
    np.testing.assert_allclose(alone, found[:1, :1], rtol=1e-12)


def test_features_of_which_the_data_say_nothing_have_no_curvature():
    task = Regression(np.zeros((9, 4)), np.ones(9), np.zeros(4, int))
    values = Hyperparameters(1.0, 2.0, np.array([-1.0]))
    result = mf.expectation_propagation(task.model(values), tol=1e-12)
    np.testing.assert_allclose(evidence_curvature(values, result, task.groups, 1), 0, atol=1e-9)
