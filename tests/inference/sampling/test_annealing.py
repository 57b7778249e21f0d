import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.sampling.annealing import Path, Population


def test_resampled_chains_count_for_their_starts():
    rng = np.random.default_rng(0)
    population = Population(200)
    first, second = rng.normal(size=(2, 200))
    population.add(first)
    starts = population.resample(rng)
    assert population.effective_size() == pytest.approx(200)
    population.add(second)
    mean = np.exp(first).mean() * np.exp(second).mean()
    by_start = np.exp(population.by_start())
    assert by_start.mean() == pytest.approx(mean)
    expected = np.exp(first).mean() * np.bincount(starts, np.exp(second), 200)
    np.testing.assert_allclose(by_start, expected, rtol=1e-12)
    # Systematic resampling draws a chain as often as expected, rounded up or down.
    weights = np.exp(first) / np.exp(first).sum()
    assert (abs(np.bincount(starts, minlength=200) - 200 * weights) < 1).all()


def test_weighted_resampling_keeps_the_estimate_unbiased(monkeypatch):
    """With few chains and steps, so that a wrong weight after resampling would show."""
    rng = np.random.default_rng(0)
    priors = [mf.Bernoulli(rng.normal(size=n)) for n in (7, 4)]
    model = mf.RBM(0.8 * rng.normal(size=(7, 4)), *priors)
    monkeypatch.setattr("fastmf.inference.sampling.annealing.RESAMPLE_BELOW", 1.1)
    neutral = [np.zeros(7), np.zeros(4)]
    path = Path.of(model, 0.0, 10, np.random.default_rng(0), 1)
    betas = np.linspace(0, 1, 6)
    truth = mf.exact(model).log_partition
    means = [np.exp(path.forward(neutral, betas).log_weights - truth).mean() for _ in range(2000)]
    assert abs(np.mean(means) - 1) < 4 * np.std(means) / np.sqrt(2000)
