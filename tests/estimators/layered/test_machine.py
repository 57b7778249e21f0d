"""What the estimators of RBMs and DBMs share, on a DBM of one hidden layer and on an RBM."""

from functools import partial

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.special import comb
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.evaluation.log_partition import estimated_log_partition

X = (np.random.default_rng(0).random((40, 6)) < [0.9, 0.9, 0.9, 0.1, 0.1, 0.1]).astype(float)
OPTIONS = {"n_epochs": 3, "batch_size": 10, "random_state": 0}


@pytest.fixture(scope="module")
def machines():
    rbm = mf.GeneralizedRBM(3, **OPTIONS).fit(X)
    return rbm, mf.DeepBoltzmannMachine((3,), **OPTIONS).fit(X)


def test_scores_use_the_estimated_log_partition(machines):
    for machine in machines:
        expected = machine.score_samples(X, log_partition=machine.log_partition())
        np.testing.assert_array_equal(machine.score_samples(X), expected)
        assert machine.score(X) == pytest.approx(expected.mean())
        exact = mf.exact(machine.model_).log_partition
        assert machine.log_partition() == machine.log_partition("exact") == exact
        assert machine.log_partition("log_sum_exp") == pytest.approx(exact, abs=0.05)


def test_scores_are_exact_where_few_states_are_summed():
    Y = np.repeat(np.random.default_rng(0).random((300, 5)) < 0.5, 2, axis=1).astype(float)
    options = {"n_epochs": 100, "learning_rate": 0.2, "random_state": 0}
    rbm = mf.GeneralizedRBM(8, gradient="tap", **options).fit(Y)
    log_z = mf.exact(rbm.model_).log_partition
    expected = mf.evaluation.log_likelihood(rbm.model_, Y, log_z)
    np.testing.assert_allclose(rbm.score_samples(Y), expected, atol=1e-12)
    with pytest.warns(ConvergenceWarning, match="nats too low"):
        mean_field = rbm.score_samples(Y, "log_sum_exp").mean()
    assert abs(mean_field - expected.mean()) > 0.3
    assert rbm.log_partition_ == rbm.log_partition("exact") == log_z
    assert rbm.log_partition_error_ == 0
    with pytest.raises(ValueError, match="how must be one of"):
        rbm.log_partition("annealing")
    wide = mf.GeneralizedRBM(30, n_epochs=1, random_state=0).fit(np.repeat(Y, 3, axis=1))
    with pytest.raises(ValueError, match="exact needs a layer of at most 20"):
        wide.log_partition("exact")


def test_strong_couplings_of_hidden_layers_are_told():
    """Frustrated loops between two hidden layers of 25 units, for which the data decide nothing."""
    rng = np.random.default_rng(0)
    layers = [mf.Bernoulli(np.zeros(n)) for n in (4, 25, 25)]
    X = (rng.random((12, 4)) < 0.5).astype(float)
    for scale in (0.01, 3.0):
        upper = scale * rng.normal(size=(25, 25))
        layers[1] = mf.Bernoulli(-upper.sum(1) / 2)
        model = mf.DBM([np.full((4, 25), 0.01), upper], layers)
        machine = mf.DeepBoltzmannMachine((25, 25), init=model, n_epochs=0).fit(X)
        if scale == 3.0:
            with pytest.warns(ConvergenceWarning, match="hidden layers given data by mean field"):
                machine.score_samples(X, 5.0)
        else:
            machine.score_samples(X, 5.0)


def separate_blocks(scale):
    """A machine of 48 and 24 units, two blocks of 24 and 12, and its exact log-partition."""
    rng, states = np.random.default_rng(2), np.arange(2**12)[:, None] >> np.arange(12) & 1
    blocks = scale * rng.normal(size=(2, 24, 12))
    visible, hidden = -blocks.sum(2) / 2, -blocks.sum(1) / 2
    log_z = sum(
        np.logaddexp.reduce(states @ b + np.logaddexp(0, states @ W.T + a).sum(1))
        for W, a, b in zip(blocks, visible, hidden, strict=True)
    )
    layers = mf.Bernoulli(visible.ravel()), mf.Bernoulli(hidden.ravel())
    return mf.RBM(block_diag(*blocks), *layers), log_z


def test_scores_beyond_exact_sums_are_annealed_once(tmp_path):
    model, log_z = separate_blocks(1.0)
    states = (np.random.default_rng(0).random((50, 48)) < 0.5).astype(float)
    machine = mf.GeneralizedRBM(init=model, n_epochs=0, random_state=0).fit(states)
    assert abs(machine.log_partition("log_sum_exp") - log_z) > 0.3
    right = mf.evaluation.log_likelihood(model, states, log_z)
    np.testing.assert_allclose(machine.score_samples(states), right, atol=0.1)
    assert 0 < machine.log_partition_error_ < 0.1
    again = mf.GeneralizedRBM(init=model, n_epochs=0, random_state=0).fit(states)
    assert again.log_partition_ == machine.log_partition_ == machine.log_partition()
    machine.save(tmp_path / "machine")
    loaded = mf.GeneralizedRBM.load(tmp_path / "machine")
    loaded.n_threads, loaded.starts_ = 1, None  # it is not estimated anew
    assert loaded.log_partition_ == machine.log_partition_
    assert loaded.log_partition_error_ == machine.log_partition_error_
    # Another model has another log-partition.
    machine.model_ = mf.RBM(0 * model.weights, *model.layers)
    alone = sum(np.logaddexp(0, layer.field).sum() for layer in model.layers)
    assert machine.log_partition_ == pytest.approx(alone, abs=0.1)


def test_scores_of_probabilities_are_annealed_from_the_nearest_states(monkeypatch):
    few = partial(estimated_log_partition, n_steps=2)
    monkeypatch.setattr("fastmf.estimators.layered._machine.estimated_log_partition", few)
    grey = np.random.default_rng(0).random((50, 48))
    machine = mf.GeneralizedRBM(init=separate_blocks(1.0)[0], n_epochs=0).fit(grey)
    states = mf.GeneralizedRBM(init=machine.model_, n_epochs=0).fit(np.round(grey))
    assert machine.log_partition_ == states.log_partition_


def test_rows_that_lack_most_values_are_annealed():
    """A single mean-field solution is one of many phases: nats too low."""
    model, log_z = separate_blocks(1.0)
    X = (np.random.default_rng(0).random((12, 48)) < 0.5).astype(float)
    machine = mf.GeneralizedRBM(init=model, n_epochs=0, random_state=0).fit(X)
    X[:, 24:] = np.nan  # the first block, which is summed over its 12 hidden units
    X[:, 8:24] = np.nan
    visible, hidden = mf.Bernoulli(model.visible.field[:24]), mf.Bernoulli(model.hidden.field[:12])
    first = mf.RBM(model.weights[:24, :12], visible, hidden)
    first = mf.GeneralizedRBM(init=first, n_epochs=0).fit(np.nan_to_num(X[:, :24]))
    right = first.score_samples(X[:, :24])
    found = machine.score_samples(X, log_z)
    assert found == pytest.approx(right, abs=0.6)
    assert found.mean() == pytest.approx(right.mean(), abs=0.2)


def test_an_uncertain_log_partition_is_told(monkeypatch):
    name = "fastmf.estimators.layered._machine.estimated_log_partition"
    monkeypatch.setattr(name, partial(estimated_log_partition, n_steps=2))
    model, log_z = separate_blocks(1.5)
    states = (np.random.default_rng(0).random((50, 48)) < 0.5).astype(float)
    machine = mf.GeneralizedRBM(init=model, n_epochs=0, random_state=0).fit(states)
    with pytest.warns(ConvergenceWarning, match="has an error of about"):
        machine.score(states)
    assert abs(machine.log_partition_ - log_z) < 3 * machine.log_partition_error_
    monkeypatch.setattr(name, lambda *_: (log_z, 0.09))
    assert machine.fit(states).log_partition() == log_z
    monkeypatch.setattr(name, lambda *_: (log_z, 0.11))
    with pytest.warns(ConvergenceWarning, match="an error of about 0.11 nats"):
        machine.fit(states).log_partition()


def test_scores_of_deep_machines_sum_hidden_layers_exactly():
    Y = np.repeat(np.random.default_rng(0).random((300, 4)) < 0.5, 2, axis=1).astype(float)
    dbm, rng = mf.DeepBoltzmannMachine((5, 3), **OPTIONS).fit(Y), np.random.default_rng(1)
    weights = tuple(2 * rng.normal(size=w.shape) for w in dbm.weights_)
    dbm.model_ = mf.DBM(weights, dbm.model_.layers)
    states = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(float)
    assert np.exp(dbm.score_samples(states)).sum() == pytest.approx(1, abs=1e-10)
    # By mean field given the data it is not.
    log_z = mf.exact(dbm.model_).log_partition
    near = mf.evaluation.log_likelihood(dbm.model_, states, log_z)
    assert abs(np.exp(near).sum() - 1) > 1e-6
    np.testing.assert_array_equal(dbm.score_samples(states, log_z), dbm.score_samples(states))


def with_spiked_hidden_units(scale):
    rng = np.random.default_rng(0)
    weights, odds = scale * rng.normal(size=(4, 3)), np.array([0.3, -0.2, 0.1])
    visible = mf.Gaussian([0.2, -0.1, 0.3, 0.0], [1.0, 2.0, 0.5, 1.5])
    return mf.RBM(weights, visible, mf.GaussBernoulli([0.1, 0.4, -0.3], 1.0, odds))


def log_partition_by_spikes(model):
    """Sum over which hidden units are not zero; all others are jointly Gaussian."""
    (f, p), hidden, total = model.visible, model.hidden, []
    for some in np.ndindex(2, 2, 2):
        on = np.flatnonzero(some)
        W = model.weights[:, on]
        matrix = np.block([[np.diag(p), -W], [-W.T, np.diag(hidden.precision[on])]])
        field = np.concatenate([f, hidden.field[on]])
        # The slab is normalised: of weight exp(log_odds) beside a spike of weight 1.
        q, b = hidden.precision[on], hidden.field[on]
        slab = hidden.log_odds[on] - b**2 / (2 * q) - np.log(2 * np.pi / q) / 2
        gaussian = field @ np.linalg.solve(matrix, field) / 2
        gaussian -= np.linalg.slogdet(matrix / (2 * np.pi))[1] / 2
        total.append(slab.sum() + gaussian)
    return np.logaddexp.reduce(total)


def test_scores_are_annealed_where_mean_field_has_no_moments():
    model = with_spiked_hidden_units(0.3)
    X = np.random.default_rng(1).normal(size=(30, 4))
    machine = mf.GeneralizedRBM(init=model, n_epochs=0, random_state=0).fit(X)
    with pytest.warns(ConvergenceWarning, match="unknown, inf: .*annealed_importance"):
        assert machine.log_partition("log_sum_exp") == np.inf
    exact = log_partition_by_spikes(model)
    assert machine.log_partition() == pytest.approx(exact, abs=0.05)
    assert np.isfinite(machine.score(X))


def test_rounding_of_large_fields_is_no_error_of_the_log_partition():
    rng = np.random.default_rng(0)
    Y = (rng.random((50, 60)) < 0.3).astype(np.float32)
    machine = mf.GeneralizedRBM(30, n_epochs=1, random_state=0).fit(Y)
    weights, field = rng.normal(size=(60, 30)) / 10, rng.normal(size=60)
    field[:3] = 1e8 * np.array([np.pi, -np.pi, 1.2345])
    layers = mf.Bernoulli(field.astype(np.float32)), mf.Bernoulli(np.zeros(30, np.float32))
    machine.model_ = mf.RBM(weights.astype(np.float32), *layers)
    assert machine.log_partition("log_sum_exp") == pytest.approx(field[[0, 2]].sum(), rel=1e-6)


def test_a_log_partition_that_misses_the_states_of_most_weight_warns():
    """All starts lead to a sparse phase, and almost all weight is where all units are on."""
    n, hidden = 60, 30
    field = mf.Bernoulli(np.full(n, -6.0)), mf.Bernoulli(np.full(hidden, -6.0))
    machine = mf.GeneralizedRBM(hidden, n_epochs=1, random_state=0).fit(np.zeros((50, n)))
    for weight in (0.5, 0.0):
        machine.model_ = mf.RBM(np.full((n, hidden), weight), *field)
        machine.starts_ = np.zeros((20, n))
        k = np.arange(n + 1)
        logs = np.log(comb(n, k)) - 6.0 * k + hidden * np.logaddexp(0, weight * k - 6.0)
        exact = np.logaddexp.reduce(logs)
        if weight:
            with pytest.warns(ConvergenceWarning, match="nats too low"):
                found = machine.log_partition("log_sum_exp")
            assert found < exact - 100
            with pytest.warns(ConvergenceWarning, match="log-likelihoods too high"):
                machine.score_samples(np.zeros((2, n)), "log_sum_exp")
            assert machine.log_partition() == pytest.approx(exact, abs=0.1)
        else:
            assert machine.log_partition("log_sum_exp") == pytest.approx(exact, abs=0.1)
