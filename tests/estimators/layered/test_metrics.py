from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.estimators.layered._metrics import Metrics


@pytest.mark.parametrize("lacking", [0.0, 0.2])
def test_likelihoods_are_those_of_the_data_in_their_own_units(lacking):
    rng = np.random.default_rng(0)
    X = rng.normal([0, 5, -3e3], [1, 100, 0.01], size=(400, 3))
    X[rng.random(X.shape) < lacking] = np.nan
    begin = mf.GeneralizedRBM(2, visible="gaussian")._begin(X, 0)
    metrics = Metrics(lambda *arguments: {"log_likelihood": 0.0}, begin)
    found = metrics(SimpleNamespace(model=begin.model), begin.scaled, None, None, None)
    alone = begin.independent
    densities = norm.logpdf(X, alone.field / alone.precision, alone.precision**-0.5)
    assert metrics.independent == pytest.approx(np.nansum(densities) / len(X))
    # Densities of the data are those of scaled data divided by the scales.
    scales = np.nanstd(X, axis=0) / np.nanstd(begin.scaled, axis=0)
    volume = (np.log(scales) * ~np.isnan(X)).sum() / len(X)
    assert found["log_likelihood"] == pytest.approx(-volume / 5)


def test_likelihoods_of_binary_data_are_left_as_they_are():
    X = np.random.default_rng(0).integers(0, 2, (50, 3)).astype(float)
    begin = mf.GeneralizedRBM(2)._begin(X, 0)
    metrics = Metrics(lambda *arguments: {"log_likelihood": -0.5}, begin)
    found = metrics(SimpleNamespace(model=begin.model), begin.scaled, None, None, None)
    assert found == {"log_likelihood": -0.5}
    p = 1 / (1 + np.exp(-begin.independent.field))
    expected = (X * np.log(p) + (1 - X) * np.log(1 - p)).sum(1).mean()
    assert metrics.independent <= expected + 1e-12


def test_likelihoods_of_early_stopping_are_annealed():
    """Mean field is nats too high for machines that were trained by it."""
    rng = np.random.default_rng(0)
    patterns = rng.random((10, 40)) < 0.5
    X = (patterns[rng.integers(10, size=600)] ^ (rng.random((600, 40)) < 0.1)).astype(float)
    models = []
    options = {"gradient": "tap", "n_epochs": 40, "learning_rate": 0.1, "random_state": 0}
    options["callbacks"] = [lambda state: models.append(state.model)]
    rbm = mf.GeneralizedRBM(10, **options).fit(X[:400], validation_data=X[400:])
    log_z = mf.exact(rbm.model_).log_partition
    right = mf.evaluation.log_likelihood(rbm.model_, X[400:], log_z).mean()
    with pytest.warns(ConvergenceWarning, match="nats too low"):
        mean_field = rbm.score_samples(X[400:], "log_sum_exp").mean()
    assert abs(mean_field - right) > 0.3
    found = np.array(rbm.history_["validation_log_likelihood"]) * 50
    assert found[-1] == pytest.approx(right, abs=0.15)
    # While couplings are small, early stopping has to see small differences.
    for model, value in zip(models[:2], found[:2], strict=True):
        log_z = mf.exact(model).log_partition
        right = mf.evaluation.log_likelihood(model, X[400:], log_z).mean()
        assert value == pytest.approx(right, abs=3e-3)
