"""Steps of units of which more than the field is learned are those of the general path."""

from dataclasses import replace

import numpy as np
import pytest
from both_paths import ONE_BY_ONE, assert_equal, assert_resumes, states_by_threads

import fastmf as mf
from fastmf.learning.layered.dispatch import steps
from fastmf.learning.layered.family import train
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.training.hidden_scales import free_units
from fastmf.priors._protocol import learned_fields, parts_of

OPTIONS = {"batch_size": 7, "n_epochs": 2, "learning_rate": 0.02, "l2": 0.01, "n_sweeps": 2}


def spiked(n):
    return mf.GaussBernoulli(np.zeros(n), np.full(n, 2.0), np.zeros(n))


def bounded(n):
    return mf.TruncatedGaussBernoulli(*np.zeros((4, n)), np.ones(n))


def rectified(n):
    return mf.TruncatedGaussian(np.zeros(n), np.ones(n), np.zeros(n), np.full(n, np.inf))


def gaussian(n):
    return mf.Gaussian(np.zeros(n), np.full(n, 2.0))


def mixed(n):
    return mf.Concatenated(mf.Bernoulli(np.zeros(3)), spiked(n - 3))


UNITS = {
    "gaussian": gaussian,
    "rectified": rectified,
    "spiked": spiked,
    "bounded": bounded,
    "binomial": lambda n: mf.Binomial(np.zeros(n), np.full(n, 3.0)),
    "groups": lambda n: mf.Categorical([np.zeros(n - n // 2), np.zeros(n // 2)]),
    "mixed": mixed,
}


def machine(visible, hidden="gaussian", n=11, n_hidden=5, dtype=np.float64):
    rng = np.random.default_rng(0)
    weights = 0.1 * rng.normal(size=(n, n_hidden)).astype(dtype)
    return mf.RBM(weights, UNITS[visible](n), UNITS[hidden](n_hidden))


def data(kind, n=11, n_rows=24):
    rng = np.random.default_rng(1)
    X = rng.random((n_rows, n))
    if kind in ("spiked", "bounded", "mixed"):
        X *= rng.random(X.shape) < 0.5
    if kind == "mixed":
        X[:, :3] = np.ceil(X[:, :3])
    if kind == "groups":
        return UNITS[kind](n).sample(np.zeros((n_rows, n)), 0.0, rng)
    return np.round(3 * X) if kind == "binomial" else X


# Gaussian units next to bounded ones only are integrated out, in the general path.
EVERY_KIND = [(kind, "gaussian", {}) for kind in ("rectified", "spiked", "mixed")]
EVERY_KIND += [(kind, "spiked", {}) for kind in ("gaussian", "bounded", "binomial")]
OF_SPIKED = [
    ("spiked", "spiked", {"centred": False, "n_starts": 4}),
    ("spiked", "bounded", {"starts": "persistent", "n_starts": 9, "n_sweeps": 4}),
    ("spiked", "mixed", {"gradient": "mean_field", "l1": 0.01, "momentum": 0.9}),
]


OF_SAMPLES = [(kind, "gaussian", {"gradient": "cd"}) for kind in UNITS] + [
    ("groups", "groups", {"gradient": "pcd", "n_starts": 5}),
    ("mixed", "mixed", {"gradient": "pcd", "centred": False, "momentum": 0.5}),
    ("spiked", "bounded", {"gradient": "pcd", "n_starts": 9, "n_sweeps": 4}),
    ("groups", "rectified", {"gradient": "pcd", "l1": 0.01, "momentum": 0.5}),
    ("bounded", "spiked", {"gradient": "pcd", "centred": False}),
    ("binomial", "mixed", {"gradient": "cd", "l1": 0.01}),
]


@pytest.mark.parametrize("visible, hidden, options", EVERY_KIND + OF_SPIKED + OF_SAMPLES)
def test_they_are_those_of_the_general_path(visible, hidden, options):
    # The last batch of an epoch has fewer rows than the others.
    X, settings = data(visible), LayeredSettings(**OPTIONS | options)
    model = machine(visible, hidden)
    assert steps(model, X, settings) is not None
    found = train(model, X, settings, seed=1)
    expected = train(model, X, settings, seed=1, family=ONE_BY_ONE)
    assert_equal(found, expected, rtol=1e-9, atol=1e-11)
    assert abs(found.model.weights - model.weights).max() > 1e-3
    units = zip(found.model.layers, model.layers, free_units(model.layers), strict=True)
    for prior, before, free in units:
        for now, then in zip(learned_fields(prior), learned_fields(before), strict=True):
            held = free.any() and any(now is getattr(p, "precision", 0) for p in parts_of(prior))
            assert np.array_equal(now, then) == held


def test_gaussian_units_next_to_gaussian_ones_take_the_general_path():
    settings, model, X = (
        LayeredSettings(**OPTIONS),
        machine("gaussian", "gaussian"),
        data("gaussian"),
    )
    assert steps(model, X, settings) is None
    assert steps(model, X, replace(settings, gradient="pcd"))


@pytest.mark.parametrize("gradient", ["pcd", "cd"])
def test_steps_end_where_machines_would_not_exist(gradient):
    """Both paths halve the same steps; W here begins at 0.97 of where the machine ends to exist."""
    model = machine("gaussian", "gaussian")
    largest = np.linalg.norm(model.weights, 2) / 2  # the precisions are 2
    model = mf.RBM(0.97 / largest * model.weights, *model.layers)
    X, settings = 9 * data("gaussian"), LayeredSettings(**OPTIONS | {"gradient": gradient})
    found = train(model, X, settings, seed=1)
    assert_equal(found, train(model, X, settings, seed=1, family=ONE_BY_ONE), rtol=1e-9, atol=1e-11)
    visible, hidden = found.model.layers
    scaled = found.model.weights / np.sqrt(np.outer(visible.precision, hidden.precision))
    assert 0.97 < np.linalg.norm(scaled, 2) < 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_number_of_threads_does_not_matter(dtype):
    rng = np.random.default_rng(0)
    weights = 0.05 * rng.normal(size=(200, 40)).astype(dtype)
    layers = (prior(n) for prior, n in ((bounded, 200), (spiked, 40)))
    model = mf.RBM(weights, *layers)
    X = data("bounded", 200, 90).astype(dtype)
    settings = LayeredSettings(batch_size=30)
    rows = np.stack([rng.permutation(90)[:30] for _ in range(4)])
    states = states_by_threads(model, X, settings, rows, 0.02)
    assert abs(states[0].model.weights - model.weights).max() > 1e-3
    for state in states[1:]:
        assert_equal(state, states[0], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["spiked", "bounded", "gaussian"])
def test_a_run_goes_on_from_a_checkpoint_as_if_nothing_had_happened(tmp_path, kind, dtype):
    options = {**OPTIONS, "momentum": np.float64(0.3), "starts": "persistent"}
    settings, X = LayeredSettings(**options), data(kind).astype(dtype)
    model = machine(kind, dtype=np.dtype(dtype))
    whole = assert_resumes(model, X, settings, tmp_path)
    velocities = [learned_fields(layer) for layer in whole.velocity.layers]
    assert {field.dtype for fields in velocities for field in fields} == {np.dtype(dtype)}


@pytest.mark.parametrize("kind", ["gaussian", "bounded"])
def test_they_stop_where_learning_diverges(kind):
    settings = LayeredSettings(**OPTIONS | {"learning_rate": 1e200, "momentum": 0.99})
    with pytest.raises(FloatingPointError, match="smaller learning_rate"):
        train(machine(kind), data(kind), settings, seed=0)


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_labels_are_taken_as_the_states_of_their_groups(dtype):
    model, settings = machine("groups"), LayeredSettings(**OPTIONS, gradient="cd")
    X = data("groups")
    expected = train(model, X, settings, seed=1)
    labels = model.visible.labels(X).astype(dtype)
    assert_equal(train(model, labels, settings, seed=1), expected, rtol=0, atol=0)
    assert abs(expected.model.weights - model.weights).max() > 1e-3
