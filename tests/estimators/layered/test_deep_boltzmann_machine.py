import itertools

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.evaluation import log_likelihood

# Two halves that are on or off together, and know of each other: 16 pixels.
RNG = np.random.default_rng(0)
CAUSES = RNG.random((300, 2)) < 0.5
X = (RNG.random((300, 16)) < np.where(np.repeat(CAUSES, 8, axis=1), 0.9, 0.1)).astype(float)
OPTIONS = {"learning_rate": 0.2, "n_sweeps": 10, "l2": 1e-4, "random_state": 0, "batch_size": 50}


@pytest.fixture(scope="module")
def trained():
    return mf.DeepBoltzmannMachine((6, 4), n_epochs=15, pretraining_epochs=10, **OPTIONS).fit(X)


def exact_log_likelihood(model, rows):
    states = [np.array(list(itertools.product((0.0, 1.0), repeat=n))) for n in model.sizes[1:]]
    h1 = np.repeat(states[0], len(states[1]), 0)
    h2 = np.tile(states[1], (len(states[0]), 1))
    log_weights = [
        np.logaddexp.reduce(-model.energy(np.broadcast_to(x, (len(h1), 16)), h1, h2)) for x in rows
    ]
    return np.array(log_weights) - mf.exact(model).log_partition


def test_it_learns(trained):
    """By enumeration it explains the data better than independent units can."""
    p = X.mean(0)
    independent = (X * np.log(p) + (1 - X) * np.log(1 - p)).sum(1).mean()
    exact = exact_log_likelihood(trained.model_, X[:60])
    assert exact.mean() > independent + 2
    assert trained.score_samples(X[:60]).mean() == pytest.approx(exact.mean(), abs=0.5)
    history = trained.history_["log_likelihood"]
    assert len(history) == 15 and history[-1] > independent / 26


def test_pretraining_is_a_head_start():
    fits = [
        mf.DeepBoltzmannMachine((6, 4), n_epochs=1, pretraining_epochs=n, **OPTIONS).fit(X)
        for n in (0, 10)
    ]
    without, with_ = (exact_log_likelihood(fit.model_, X[:60]).mean() for fit in fits)
    assert with_ > without + 0.2


def test_layers_are_added_to_a_given_model(trained):
    rbm = mf.GeneralizedRBM(6, gradient="tap", n_epochs=15, **OPTIONS).fit(X)
    of_rbm = log_likelihood(rbm.model_, X[:60], mf.exact(rbm.model_).log_partition).mean()
    fits = [
        mf.DeepBoltzmannMachine((6, 4), init=rbm.model_, n_epochs=n, **OPTIONS).fit(X)
        for n in (0, 15)
    ]
    np.testing.assert_array_equal(fits[0].weights_[0], rbm.weights_)
    added, learned = (exact_log_likelihood(fit.model_, X[:60]).mean() for fit in fits)
    assert added == pytest.approx(of_rbm, abs=0.01)
    assert learned > added
    # A deep machine: all its layers are given, or the lower ones.
    same = mf.DeepBoltzmannMachine((6, 4), init=trained.model_, n_epochs=0, **OPTIONS)
    for here, there in zip(same.fit(X).weights_, trained.weights_, strict=True):
        np.testing.assert_array_equal(here, there)
    deeper = mf.DeepBoltzmannMachine((6, 4, 2), init=trained.model_, n_epochs=0, **OPTIONS)
    assert deeper.fit(X.astype(np.float32)).model_.sizes == (16, 6, 4, 2)
    assert deeper.model_.dtype == np.float32


def test_a_given_model_must_fit(trained):
    machine = mf.DeepBoltzmannMachine((6, 3), init=trained.model_)
    with pytest.raises(ValueError, match=r"begin with the hidden layers of init, \(6, 4\), got"):
        machine.fit(X)
    with pytest.raises(ValueError, match="got 16 units and 5 columns"):
        clone(machine).set_params(init=trained.model_).fit(X[:, :5])
    with pytest.raises(TypeError, match="init must be of type RBM or DBM, or None, got int"):
        clone(machine).set_params(init=3).fit(X)


def test_rows_that_do_not_converge_are_told(trained, monkeypatch):
    monkeypatch.setattr(type(trained), "_options", {"max_iter": 1})
    with pytest.warns(ConvergenceWarning, match="of 300 rows did not converge"):
        trained.transform(X)


def test_what_it_offers(trained):
    assert trained.transform(X).shape == (300, 4)
    assert trained.get_feature_names_out().shape == (4,)
    assert [w.shape for w in trained.weights_] == [(16, 6), (6, 4)]
    solutions = trained.solutions()
    assert solutions.hidden.shape[1] == 10 and solutions.converged.all()
    noisy = np.where(RNG.random(X.shape) < 0.2, 1 - X, X)
    clean = trained.denoise(noisy, flip_probability=0.2) > 0.5
    # Fewer pixels differ from what was sent than without, or from those of independent units.
    pointwise = np.where(X.mean(0) > 0.8, 1, np.where(X.mean(0) < 0.2, 0, noisy))
    wrong = [(guess != X).mean() for guess in (clean, noisy, pointwise)]
    assert wrong[0] < min(wrong[1:]) - 0.03
    gaps = np.where(RNG.random(X.shape) < 0.3, np.nan, X)
    filled = trained.impute(gaps)
    assert ((filled > 0.5) == X)[np.isnan(gaps)].mean() > 0.8


def test_samples_have_the_means_of_the_model(trained):
    samples = trained.sample(2000, n_sweeps=100, random_state=0)
    np.testing.assert_allclose(samples.mean(0), mf.exact(trained.model_).mean[0], atol=0.05)
    few, again = (trained.sample(50, n_sweeps=20, random_state=0) for _ in range(2))
    np.testing.assert_array_equal(few, again)


@pytest.mark.slow  # three kinds of layers compile for half a minute
def test_layers_of_several_kinds(tmp_path):
    rows = RNG.normal(size=(60, 5))
    dbm = mf.DeepBoltzmannMachine(
        (4, 3), visible="gaussian", hidden=("bernoulli", mf.Ising([0.3])), n_epochs=2,
        learning_rate=0.01, pretraining_epochs=1, random_state=0,
    ).fit(rows)  # fmt: skip
    assert [type(layer).__name__ for layer in dbm.hidden_] == ["Bernoulli", "Ising"]
    assert np.isfinite(dbm.score(rows))
    dbm.save(tmp_path / "mixed.npz")
    again = mf.DeepBoltzmannMachine.load(tmp_path / "mixed.npz")
    np.testing.assert_array_equal(again.transform(rows), dbm.transform(rows))


@pytest.mark.parametrize("n_components", [4, (4,)])
def test_one_hidden_layer_is_an_rbm(n_components):
    options = {"n_epochs": 2, "n_sweeps": 3, "random_state": 0}
    deep = mf.DeepBoltzmannMachine(n_components, **options).fit(X)
    plain = mf.GeneralizedRBM(4, **options).fit(X)
    np.testing.assert_array_equal(deep.weights_[0], plain.weights_)
    np.testing.assert_array_equal(deep.transform(X), plain.transform(X))
    np.testing.assert_array_equal(deep.score_samples(X), plain.score_samples(X))
    np.testing.assert_array_equal(deep.sample(3, random_state=1), plain.sample(3, random_state=1))


@pytest.mark.parametrize("options, message", [
    ({"n_components": ()}, "a layer at least"), ({"n_components": (5, 0)}, "n_components"),
    ({"gradient": "cd"}, "deep machine"), ({"pretraining_epochs": -1}, "pretraining_epochs"),
    ({"hidden": ("bernoulli",)}, "one for each of 2"),
    ({"hidden": None}, "hidden must be a unit prior"),
    ({"early_stopping": "soon"}, "early_stopping must be"),
])  # fmt: skip
def test_bad_options(options, message):
    dbm = clone(mf.DeepBoltzmannMachine((4, 3))).set_params(**options)
    with pytest.raises((ValueError, TypeError), match=message):
        dbm.fit(X[:20])
