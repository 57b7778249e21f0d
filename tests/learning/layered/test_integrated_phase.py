"""Compiled steps of machines with a layer of Gaussian units do what the general path does."""

import numpy as np
import pytest
from both_paths import ONE_BY_ONE, assert_equal, assert_resumes, states_by_threads

import fastmf as mf
from fastmf.learning.layered.compiled_steps import phases_of
from fastmf.learning.layered.dispatch import lacking
from fastmf.learning.layered.family import train
from fastmf.learning.layered.phases import Problem
from fastmf.learning.layered.settings import LayeredSettings

OPTIONS = {"batch_size": 7, "n_epochs": 2, "learning_rate": 0.02, "l2": 0.01, "gradient": "tap"}
N, M, N_ROWS = 12, 21, 40


def units(kind, n):
    field = 0.1 * np.random.default_rng(n).normal(size=n)
    others = {
        "gaussian": lambda: mf.Gaussian(field, np.linspace(0.5, 3, n)),
        "bernoulli": lambda: mf.Bernoulli(field),
        "ising": lambda: mf.Ising(field),
        "bounded": lambda: mf.TruncatedGaussian(field, 1.0, -1.0, 2.0),
        "spiked": lambda: mf.TruncatedGaussBernoulli(field, 1.0, 0.3 + 0 * field, -1.0, 2.0),
        "mixed": lambda: mf.Concatenated(mf.Ising(field[:4]), mf.Bernoulli(field[4:])),
    }
    return others[kind]()


def machine(visible, hidden, dtype=np.float64):
    weights = (0.2 * np.random.default_rng(0).normal(size=(N, M))).astype(dtype)
    return mf.RBM(weights, units(visible, N), units(hidden, M))


def data(model):
    zero = np.zeros((N_ROWS, N))
    return model.visible.sample(zero, 0.0, np.random.default_rng(1)).astype(model.dtype)


CASES = [
    ("gaussian", "bernoulli", {}),
    ("gaussian", "bernoulli", {"gradient": "mean_field", "n_sweeps": 16}),
    ("gaussian", "ising", {"n_starts": 9, "n_sweeps": 1, "momentum": 0.9}),
    ("gaussian", "spiked", {"n_starts": 3, "l1": 0.01}),
    ("gaussian", "mixed", {"starts": "persistent", "n_starts": 5}),
    ("bernoulli", "gaussian", {}),
    ("ising", "gaussian", {"n_starts": 9, "centred": False}),
    ("mixed", "gaussian", {"n_sweeps": 4}),
    ("bounded", "gaussian", {"starts": "persistent"}),
    ("spiked", "gaussian", {"gradient": "mean_field"}),
]


@pytest.mark.parametrize("visible, hidden, options", CASES)
def test_they_are_those_of_the_general_path(visible, hidden, options):
    # The last batch of an epoch has fewer rows than the others.
    model = machine(visible, hidden)
    settings, X = LayeredSettings(**OPTIONS | options), data(model)
    assert lacking(model, X, settings) == []
    found = train(model, X, settings, seed=1)
    expected = train(model, X, settings, seed=1, family=ONE_BY_ONE)
    assert_equal(found, expected, rtol=1e-8, atol=1e-10)
    assert abs(found.model.weights - model.weights).max() > 1e-3


def test_the_number_of_threads_does_not_matter():
    model = machine("gaussian", "bernoulli", np.float32)
    X, rng = data(model), np.random.default_rng(0)
    rows = np.stack([rng.permutation(N_ROWS)[:35] for _ in range(4)])
    states = states_by_threads(model, X, LayeredSettings(), rows, 0.02)
    assert abs(states[0].model.weights - model.weights).max() > 1e-3
    for state in states[1:]:
        assert_equal(state, states[0], rtol=0, atol=0)


@pytest.mark.parametrize("starts", ["data", "persistent"])
def test_a_run_goes_on_from_a_checkpoint_as_if_nothing_had_happened(starts, tmp_path):
    model = machine("gaussian", "bernoulli")
    assert_resumes(model, data(model), LayeredSettings(**OPTIONS, starts=starts), tmp_path)


def test_they_stop_where_learning_diverges():
    model, settings = machine("gaussian", "bernoulli"), OPTIONS | {"learning_rate": 1e200}
    with pytest.raises(FloatingPointError, match="smaller learning_rate"):
        train(model, data(model), LayeredSettings(**settings), seed=0)


@pytest.mark.parametrize(
    "visible, hidden", [("gaussian", "gaussian"), ("half", "bernoulli"), ("bernoulli", "half")]
)
def test_other_places_of_gaussian_units_take_the_general_path(visible, hidden):
    def layer(kind, n):
        if kind == "half":
            return mf.Concatenated(units("gaussian", 4), units("bernoulli", n - 4))
        return units(kind, n)

    model = mf.RBM(np.zeros((N, M)), layer(visible, N), layer(hidden, M))
    problem = Problem(model, LayeredSettings(gradient="tap"), False)
    _, phase, *_ = phases_of(problem)
    (missing,) = (text for text, met in phase.requires(problem).items() if not met)
    assert missing == "Gaussian units that are all of one layer of two"
