from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import comb

import fastmf as mf
from fastmf.evaluation import TrajectoryAnnealing


def digits(n_rows, dtype=float):
    """Rows of sixteen units in two phases."""
    rng = np.random.default_rng(0)
    phase = rng.integers(2, size=(n_rows, 1))
    means = np.where(phase, [0.9] * 8 + [0.1] * 8, [0.2] * 8 + [0.7] * 8)
    return (rng.random((n_rows, 16)) < means).astype(dtype)


def trained(trajectory, dtype=float, **options):
    models = []
    callbacks = [trajectory, lambda state: models.append(state.model)]
    defaults = {"learning_rate": 0.1, "n_epochs": 12, "batch_size": 20, "weight_scale": 0.1}
    machine = mf.GeneralizedRBM(
        8, gradient="cd", callbacks=callbacks, random_state=0, **defaults | options
    )
    machine.fit(digits(300, dtype))
    return models


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_partitions_by_epoch_agree_with_enumeration(dtype):
    X = digits(100)
    trajectory = TrajectoryAnnealing(X, n_steps=5, rng=1)
    models = trained(trajectory, dtype)
    truth = np.array([mf.exact(model).log_partition for model in models])
    error = np.array(trajectory.error)
    # Learning must move the log-partition by far more than what is tested.
    assert abs(models[-1].weights).max() > 0.5 and np.ptp(truth) > 1
    assert trajectory.epoch == list(range(1, 13))
    assert (error < 0.1).all() and (error > 0).all()
    assert (abs(trajectory.log_partition - truth) < 4 * error + 1e-4).all()
    likelihoods = [
        mf.evaluation.log_likelihood(model, X, z).mean()
        for model, z in zip(models, trajectory.log_partition, strict=True)
    ]
    np.testing.assert_allclose(trajectory.log_likelihood, likelihoods, rtol=1e-12)
    assert len(trajectory.seconds) == 12 and min(trajectory.seconds) > 0


def test_errors_are_the_scatter_of_independent_runs():
    models = trained(TrajectoryAnnealing(rng=0, n_chains=2, n_first_steps=20, n_steps=1))[3::4]
    truth = mf.exact(models[-1]).log_partition
    found, errors = [], []
    for seed in range(40):
        trajectory = TrajectoryAnnealing(n_chains=50, n_steps=2, n_first_steps=50, rng=seed)
        for epoch, model in enumerate(models, 1):
            trajectory.record(model, epoch)
        found.append(trajectory.log_partition[-1])
        errors.append(trajectory.error[-1])
    scatter = np.std(np.array(found) - truth)
    assert 0.5 < scatter / np.sqrt(np.mean(np.square(errors))) < 1.6
    assert abs(np.mean(found) - truth) < 4 * scatter / np.sqrt(40)


@pytest.mark.parametrize("visible", ["ising", "gaussian"])
def test_other_units(visible):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(8, 5)) / 2
    prior = mf.Ising(rng.normal(size=8)) if visible == "ising" else mf.Gaussian(np.ones(8), 4.0)
    trajectory = TrajectoryAnnealing(n_steps=10, rng=2)
    for epoch, scale in enumerate((0.2, 0.6, 1.0)):
        model = mf.RBM(scale * weights, prior, mf.Bernoulli(np.zeros(5)))
        trajectory.record(model, epoch)
        off = abs(trajectory.log_partition[-1] - mf.exact(model).log_partition)
        assert off < 4 * trajectory.error[-1] < 0.5


def test_deep_machines():
    rng = np.random.default_rng(3)
    sizes = (6, 4, 5)
    layers = [mf.Bernoulli(rng.normal(size=n)) for n in sizes]
    weights = [rng.normal(size=pair) for pair in pairwise(sizes)]
    X = (rng.random((10, 6)) < 0.5).astype(float)
    trajectory = TrajectoryAnnealing(X, rng=0)
    for epoch, scale in enumerate((0.5, 1.0)):
        model = mf.DBM([scale * w for w in weights], layers)
        trajectory.record(model, epoch)
    off = abs(trajectory.log_partition[-1] - mf.exact(model).log_partition)
    assert off < 4 * trajectory.error[-1] < 0.3
    assert len(trajectory.log_likelihood) == 2 and trajectory.chains.shape == (100, 11)


def test_threads_do_not_matter_and_epochs_are_chosen():
    rng = np.random.default_rng(0)
    prior = [mf.Bernoulli(rng.normal(size=n)) for n in (60, 40)]
    weights = 0.3 * rng.normal(size=(60, 40))
    found = []
    for n_threads in (1, 3):
        trajectory = TrajectoryAnnealing(every=2, n_first_steps=20, n_threads=n_threads, rng=0)
        for epoch in (1, 2, 3, 4):
            model = mf.RBM(weights * epoch / 4, *prior)
            trajectory(SimpleNamespace(model=model, epoch=epoch))
        assert trajectory.epoch == [2, 4]
        found.append(trajectory.log_partition)
    assert found[0] == found[1]


def test_too_few_chains_are_said_and_bad_arguments_refused():
    rng = np.random.default_rng(0)
    prior = [mf.Bernoulli(np.zeros(30)) for _ in range(2)]
    weights = rng.normal(size=(30, 30))
    trajectory = TrajectoryAnnealing(n_chains=50, n_steps=1, rng=0)
    trajectory.record(mf.RBM(0 * weights, *prior), 0)
    with pytest.warns(UserWarning, match="contribute .* of epoch 1; pass n_steps=4"):
        trajectory.record(mf.RBM(2 * weights, *prior), 1)
    with pytest.raises(ValueError, match="shape"):
        trajectory.record(mf.RBM(weights[:, :7], prior[0], mf.Bernoulli(np.zeros(7))), 2)
    with pytest.raises(ValueError, match="n_steps"):
        TrajectoryAnnealing(n_steps=0)
    with pytest.raises(TypeError, match="RBM"):
        TrajectoryAnnealing().record(mf.BoltzmannMachine(np.zeros((2, 2)), mf.Ising([0, 0])), 0)


def test_a_record_below_a_certain_bound_is_made_anew_or_warns(monkeypatch):
    """Training jumps to a machine whose weight is where no chain is."""
    n, hidden = 60, 24
    field = mf.Bernoulli(np.full(n, -4.0)), mf.Bernoulli(np.full(hidden, -4.0))
    first, last = (mf.RBM(np.full((n, hidden), w), *field) for w in (0.0, 0.5))
    k = np.arange(n + 1)
    logs = np.log(comb(n, k)) - 4.0 * k + hidden * np.logaddexp(0, 0.5 * k - 4.0)
    trajectory = TrajectoryAnnealing(n_steps=2, n_fresh_steps=2, n_first_steps=20, rng=0)
    trajectory.record(first, 0)
    trajectory.record(last, 1)
    assert trajectory.log_partition[1] == pytest.approx(np.logaddexp.reduce(logs), abs=0.2)
    monkeypatch.setattr(TrajectoryAnnealing, "_anneal_from_units", lambda self, model: 100.0)
    trajectory._value -= 50
    monkeypatch.setattr(TrajectoryAnnealing, "_compare_with_fresh", lambda self, model: 0.0)
    with pytest.warns(UserWarning, match="nats too low"):
        trajectory.record(last, 2)
