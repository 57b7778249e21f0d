"""Exact gradients: finite differences of the log-likelihood by enumeration, for all units."""

from importlib import import_module

import numpy as np
import pytest
from differences import assert_gradient
from units_to_learn import HIDDEN, VISIBLE, gradient

import fastmf as mf
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.learning.layered.exact_averages import exact_averages, is_exact

RNG = np.random.default_rng(2)
MORE = {
    "binomial": (mf.Binomial(RNG.normal(size=5), 3.0), RNG.integers(0, 4, (6, 5)).astype(float)),
    "categorical": (
        mf.Categorical([RNG.normal(size=2), RNG.normal(size=3)]),
        np.array([[1.0, 0, 0, 1, 0], [0, 1, 1, 0, 0], [0, 1, 0, 0, 1]]),
    ),
    "ordinal": (mf.Ordinal(RNG.normal(size=(5, 4))), RNG.integers(0, 4, (6, 5)).astype(float)),
}
CASES = [(visible, "bernoulli") for visible in (*VISIBLE, *MORE)]
CASES += [("bernoulli", "gaussian"), ("ising", "rectified"), ("gaussian", "ising")]
CASES += [("gaussian", "gaussian")]


def log_partition(model):
    """By enumeration; of Gaussian units alone by the determinant."""
    if isinstance(model.visible, mf.Gaussian) and isinstance(model.hidden, mf.Gaussian):
        blocks = [
            [np.diag(model.visible.precision), -model.weights],
            [-model.weights.T, np.diag(model.hidden.precision)],
        ]
        matrix, field = np.block(blocks), np.concatenate([layer.field for layer in model.layers])
        value = field @ np.linalg.solve(matrix, field) / 2
        return value - np.linalg.slogdet(matrix / (2 * np.pi))[1] / 2
    return mf.exact(model, averages=False).log_partition


@pytest.mark.parametrize(("visible", "hidden"), CASES)
def test_gradients_are_finite_differences(visible, hidden):
    prior, X = (VISIBLE | MORE)[visible]
    weights = 0.4 * np.random.default_rng(1).normal(size=(X.shape[1], 3))
    model = mf.RBM(weights, prior, HIDDEN[hidden])
    assert is_exact(model)
    averages = exact_averages(model)
    assert averages.log_partition == pytest.approx(log_partition(model), abs=1e-10)

    def average_log_likelihood(model):
        return log_likelihood(model, X, log_partition(model)).mean()

    derivatives = gradient(model, X, averages)[0]
    assert_gradient(derivatives, model, average_log_likelihood, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("chunk", [1, 100])
def test_chunks_of_states_make_no_difference(chunk, monkeypatch):
    model = mf.RBM(9 * RNG.normal(size=(5, 4)), VISIBLE["gaussian"][0], mf.Bernoulli(np.zeros(4)))
    whole = exact_averages(model)
    # `fastmf.models.exact` is a function, too.
    monkeypatch.setattr(import_module("fastmf.models.exact"), "BLOCK_ENTRIES", 4 * chunk)
    parts = exact_averages(model)
    assert parts.log_partition == pytest.approx(whole.log_partition, abs=1e-10)
    np.testing.assert_allclose(parts.pairwise[0], whole.pairwise[0], rtol=1e-10)
    np.testing.assert_allclose(parts.layers[0].precision, whole.layers[0].precision, rtol=1e-10)
