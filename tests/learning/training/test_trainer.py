import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.inference.mean_field.tap import tap
from fastmf.learning.layered.settings import Settings
from fastmf.learning.layered.step import initial_state
from fastmf.learning.training.trainer import RBM_FAMILY, _warn_of_collapse, train
from fastmf.models import DBM, RBM, exact
from fastmf.priors import Bernoulli, Gaussian, Ising

N_VISIBLE, N_HIDDEN = 8, 4


def stripes(n_rows=60, dtype=float):
    """Rows that are one of two complementary patterns, with a few flips."""
    rng = np.random.default_rng(0)
    pattern = np.arange(N_VISIBLE) % 2
    X = np.where(rng.random((n_rows, 1)) < 0.5, pattern, 1 - pattern)
    return np.where(rng.random(X.shape) < 0.05, 1 - X, X).astype(dtype)


def start(hidden=None, dtype=float, visible=Bernoulli):
    weights = 0.01 * np.random.default_rng(1).normal(size=(N_VISIBLE, N_HIDDEN))
    hidden = Bernoulli(np.zeros(N_HIDDEN)) if hidden is None else hidden
    return RBM(weights.astype(dtype), visible(np.zeros(N_VISIBLE)), hidden)


def quick(**options):
    options = {"learning_rate": 0.1, "n_epochs": 4, "batch_size": 16, "l2": 0.0} | options
    return Settings(**options)


def assert_same(state, other):
    np.testing.assert_array_equal(state.model.weights, other.model.weights)
    for layer, same in zip(state.model.layers, other.model.layers, strict=True):
        for field, expected in zip(layer, same, strict=True):
            np.testing.assert_array_equal(field, expected)
    np.testing.assert_array_equal(state.velocity.couplings[0], other.velocity.couplings[0])
    assert state.history == other.history
    for chain, expected in zip(state.chains, other.chains, strict=True):
        np.testing.assert_array_equal(chain, expected)


@pytest.mark.parametrize("hidden", [Bernoulli, Ising, Gaussian])
@pytest.mark.parametrize("gradient", ["tap", "mean_field", "tap3", "adaptive_tap", "cd", "pcd"])
def test_every_gradient_learns(gradient, hidden):
    if gradient == "tap3" and hidden is Gaussian:
        pytest.skip("the third order is for binary units")
    if gradient == "adaptive_tap" and hidden is Ising:
        pytest.skip("one compilation less")
    prior = hidden(np.zeros(N_HIDDEN), 2.0) if hidden is Gaussian else hidden(np.zeros(N_HIDDEN))
    # Spins below spins, the machines that other tests compile.
    visible, X = (Ising, 2 * stripes() - 1) if hidden is Ising else (Bernoulli, stripes())
    settings = quick(gradient=gradient, n_epochs=60, learning_rate=0.05)
    model = train(start(prior, visible=visible), X, settings, seed=0).model
    independent = N_VISIBLE * np.log(0.5)
    assert log_likelihood(model, X, exact(model).log_partition).mean() > independent + 1


@pytest.mark.parametrize("kind", ["data", "noise", "random", "persistent"])
def test_every_kind_of_start(kind):
    state = train(start(), stripes(), quick(starts=kind, n_epochs=2, n_starts=5), seed=0)
    assert np.isfinite(state.model.weights).all()
    assert [len(c) for c in state.chains] == ([5] * 4 if kind == "persistent" else [])


def test_the_result_is_a_function_of_the_seed():
    first, again, other = (train(start(), stripes(), quick(), seed=s) for s in (3, 3, 4))
    assert_same(first, again)
    assert (first.model.weights != other.model.weights).any()


def test_momentum_repeats_the_previous_step():
    # One batch, and a learning rate that is zero in the second epoch.
    def rate(epoch):
        return 0.1 if epoch == 0 else 0.0

    options = {"momentum": 0.5, "learning_rate": rate, "batch_size": 60}
    one, two = (train(start(), stripes(), quick(n_epochs=n, **options)) for n in (1, 2))
    step = one.model.weights - start().weights
    np.testing.assert_allclose(two.model.weights, start().weights + 1.5 * step, atol=1e-12)


def test_weight_decay():
    plain, l2, l1 = (
        train(start(), stripes(), quick(n_epochs=1, batch_size=60, **o), seed=0).model.weights
        for o in ({}, {"l2": 0.5}, {"l1": 0.5})
    )
    np.testing.assert_allclose(l2 - plain, -0.1 * 0.5 * start().weights, atol=1e-12)
    np.testing.assert_allclose(l1 - plain, -0.1 * 0.5 * np.sign(start().weights), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_are_kept(dtype):
    state = train(start(dtype=dtype), stripes(dtype=dtype), quick(starts="persistent"), seed=0)
    assert state.model.dtype == state.model.visible.field.dtype == dtype
    assert {c.dtype for c in state.chains} == {np.dtype(dtype)}
    assert state.velocity.layers[1].field.dtype == dtype


def test_divergence_is_an_error():
    with pytest.raises(FloatingPointError, match="smaller learning_rate"):
        train(start(), stripes(), quick(learning_rate=1e308, n_epochs=9), seed=0)


def test_gaussian_units_stay_in_their_domain():
    hidden = Gaussian(np.zeros(N_HIDDEN), 1.0)
    state = train(start(hidden), stripes(), quick(learning_rate=1.0, n_epochs=20), seed=0)
    broadening = (state.model.weights**2).sum(0) / 4
    assert (state.model.hidden.precision > broadening).all()
    assert np.isfinite(state.history["log_likelihood"]).all()


def test_collapse_of_persistent_solutions_is_announced():
    patterns = np.eye(N_VISIBLE)
    merged = np.tile(patterns[0], (10, 1))
    state = initial_state(start())
    distinct = SimpleNamespace(mean=(np.vstack([patterns, 1 - patterns]), None))
    for chains, announced in ((merged, True), (np.vstack([patterns, patterns[:2]]), False)):
        state.chains = (chains,)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _warn_of_collapse(state, distinct)
        assert [
            ("10 persistent solutions have collapsed to 1" in str(w.message)) for w in caught
        ] == ([True] * announced)
    # Nor where the data themselves lead to a single solution, as at the beginning of learning.
    state.chains = (merged,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_of_collapse(state, SimpleNamespace(mean=(merged, None)))


def test_early_stopping_keeps_the_best_model():
    X = stripes()
    # Validation data of the opposite kind: learning can only make it worse.
    validation = np.ones_like(X)
    settings = quick(early_stopping=True, patience=2, n_epochs=50)
    state = train(start(), X, settings, seed=0, validation=validation)
    scores = state.history["validation_log_likelihood"]
    assert len(scores) < 50
    assert len(scores) == int(np.argmax(scores)) + 1 + 2
    shorter = train(start(), X, quick(n_epochs=int(np.argmax(scores)) + 1), seed=0)
    np.testing.assert_array_equal(state.model.weights, shorter.model.weights)


def test_callbacks_see_each_epoch_and_may_stop():
    seen = []

    def callback(state):
        seen.append((state.epoch, len(state.history["log_likelihood"])))
        return state.epoch == 2

    train(start(), stripes(), quick(), seed=0, callbacks=[callback])
    assert seen == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"callbacks": print}, "callbacks must be a sequence of functions"),
        ({"callbacks": [1]}, "callbacks must be a sequence of functions"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
    ],
)
def test_bad_options_of_a_run(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        train(start(), stripes(), quick(), seed=0, **options)


def two_phases(coupling, n_layers=2):
    """Spins with two solutions if they are coupled strongly, and rows that lead to one or both."""
    weights = (np.full((9, 9), coupling),) * (n_layers - 1)
    layers = (Ising(np.zeros(9)),) * n_layers
    model = RBM(*weights, *layers) if n_layers == 2 else DBM(weights, layers)
    return model, np.ones((3, 9)), np.vstack([np.ones((3, 9)), -np.ones((3, 9))])


@pytest.mark.parametrize("n_layers", [2, 3])
def test_solutions_found_are_kept_until_they_are_no_more(n_layers):
    def figure(rows):
        return RBM_FAMILY.figures(state, rows, None, quick(), 1)["log_likelihood"]

    model, one, both = two_phases(0.4, n_layers)
    state = initial_state(model)
    alone = figure(one)
    assert len(state.solutions) == 2 * n_layers and {len(s) for s in state.solutions} == {1}
    with_both = figure(both)
    assert alone - with_both == pytest.approx(np.log(2) / (9 * n_layers), rel=1e-3)
    # No row leads to the second solution any more, and still it counts, also a little further on.
    assert figure(one) == pytest.approx(with_both, abs=1e-9)
    state.model = two_phases(0.38, n_layers)[0]
    beside = initial_state(state.model)
    assert figure(one) == pytest.approx(
        RBM_FAMILY.figures(beside, both, None, quick(), 1)["log_likelihood"], abs=1e-6
    )
    # Of weak couplings there is one solution only.
    state.model = two_phases(0.01, n_layers)[0]
    reached = tap(state.model, one[:1]).log_partition
    options = {} if n_layers == 2 else {"tol": 1e-8}
    expected = log_likelihood(state.model, one, reached[0], **options).mean() / (9 * n_layers)
    assert figure(one) == pytest.approx(expected, abs=1e-5)
    assert {len(s) for s in state.solutions} == {1}


def test_no_more_solutions_are_kept_than_allowed(monkeypatch):
    model, _, both = two_phases(0.4)
    monkeypatch.setattr("fastmf.learning.training.trainer.MAX_SOLUTIONS", 1)
    state = initial_state(model)
    RBM_FAMILY.figures(state, both, None, quick(), 1)
    assert {len(s) for s in state.solutions} == {1}


def test_progress_bar_and_plain_lines(capsys, monkeypatch):
    train(start(), stripes(), quick(n_epochs=2), seed=0, verbose=1)
    assert "8/8" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tqdm", None)
    train(start(), stripes(), quick(n_epochs=2), seed=0, verbose=1, validation=stripes())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("epoch 2, log-likelihood per unit -0.")
    train(start(), stripes(), quick(n_epochs=1), seed=0)
    assert capsys.readouterr().err == ""
