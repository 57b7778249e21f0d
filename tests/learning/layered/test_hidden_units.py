"""Real-valued hidden units on real data: the digits that come with scikit-learn."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.datasets import load_digits
from fastmf.evaluation import log_likelihood


@pytest.mark.parametrize(
    "hidden",
    [
        pytest.param("gaussian", id="hopfield"),
        pytest.param(mf.TruncatedGaussian(0.0, 1.0, 0.0, np.inf), id="rectified"),
        pytest.param("gauss_bernoulli", id="spike_and_slab", marks=pytest.mark.slow),
    ],
)
def test_learning_raises_the_likelihood(hidden):
    X = load_digits(binary=True, dtype=np.float64).X
    X, test = X[:1000], X[1000:]
    machine = mf.GeneralizedRBM(
        8, hidden=hidden, n_epochs=10, learning_rate=0.1, weight_scale=0.1, random_state=0
    ).fit(X)  # fmt: skip
    model, pixels = machine.model_, machine.pointwise_
    assert all(np.isfinite(field).all() for field in (*model.visible, model.weights))
    assert machine.history_["log_likelihood"][-1] > machine.history_["log_likelihood"][0] + 0.01
    # By annealed importance sampling, which knows nothing of mean fields, and from both sides.
    annealed = mf.evaluation.annealed_importance_sampling(model, n_steps=100, data=X[:100], rng=0)
    upper = max(annealed.log_partition, annealed.reverse)
    assert abs(annealed.log_partition - annealed.reverse) < 0.5
    independent = pixels.log_prob(test).sum(1).mean() - pixels.log_partition(0.0, 0.0).sum()
    assert log_likelihood(model, test, upper).mean() > independent + 1.5
