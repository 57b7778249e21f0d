import numpy as np
import pytest
from own_priors import ThreeLevels
from stripes import quick

import fastmf as mf
from fastmf.evaluation import log_likelihood
from fastmf.learning.layered.step import LayeredSteps
from fastmf.learning.training.ascent import initial_state


def reported(model, X, validation=None):
    metrics = LayeredSteps(quick(), n_threads=1).metrics(initial_state(model), X, validation)
    return {name: value * sum(model.sizes) for name, value in metrics.items()}


@pytest.mark.parametrize("coupling", [0.01, 0.15, 0.3])
@pytest.mark.parametrize("n_layers", [2, 3])
def test_log_likelihoods_of_epochs_are_exact_ones_within_annealing_errors(n_layers, coupling):
    weights, layers = (np.full((13, 13), coupling),) * (n_layers - 1), (mf.Ising(np.zeros(13)),)
    model = mf.DBM(weights, layers * n_layers) if n_layers > 2 else mf.RBM(*weights, *layers * 2)
    X = np.vstack([np.ones((3, 13)), -np.ones((3, 13))])  # rows of both phases
    expected = log_likelihood(model, X, mf.exact(model).log_partition, tol=1e-8).mean()
    values = reported(model, X, X)
    assert values["log_likelihood"] == pytest.approx(expected, abs=0.2)
    assert values["validation_log_likelihood"] == values["log_likelihood"]
    X[0, 0] = np.nan
    assert reported(model, X)["log_likelihood"] == pytest.approx(expected, abs=0.5)


def test_of_units_that_cannot_be_sampled_the_log_partition_is_by_tap():
    X = np.random.default_rng(0).integers(-1, 2, (5, 4)).astype(float)
    model = mf.RBM(np.full((4, 14), 0.1), ThreeLevels(np.zeros(4)), mf.Bernoulli(np.zeros(14)))
    expected = log_likelihood(model, X, mf.tap(model).log_partition).mean()
    assert reported(model, X)["log_likelihood"] == pytest.approx(expected, abs=1e-5)
