"""Compiled steps of deep machines do what the general path does."""

from itertools import pairwise

import numpy as np
import pytest
from both_paths import ONE_BY_ONE, assert_equal, assert_resumes, states_by_threads

import fastmf as mf
from fastmf.learning.layered.deep_phase import DeepRows
from fastmf.learning.layered.dispatch import steps
from fastmf.learning.layered.family import train
from fastmf.learning.layered.phases import Problem
from fastmf.learning.layered.settings import LayeredSettings

OPTIONS = {"batch_size": 7, "n_epochs": 2, "learning_rate": 0.02, "l2": 0.01, "n_sweeps": 3}


def gaussian(field):
    return mf.Gaussian(field, np.full(len(field), 2.0))


def spiked(field):
    return mf.GaussBernoulli(field, np.full(len(field), 2.0), 0 * field)


def machine(*kinds, sizes=(12, 7, 5, 6, 4), dtype=np.float64):
    rng, sizes = np.random.default_rng(0), sizes[: len(kinds)]
    weights = tuple((0.2 * rng.normal(size=pair)).astype(dtype) for pair in pairwise(sizes))
    layers = (kind(0.1 * rng.normal(size=n)) for kind, n in zip(kinds, sizes, strict=True))
    return mf.DBM(weights, tuple(layers))


def data(kind, n_rows=33, n=12):
    rng = np.random.default_rng(1)
    X = 1.0 * (rng.random((n_rows, n)) < 0.4)
    return {mf.Bernoulli: X, mf.Ising: 2 * X - 1}.get(kind, X * rng.random(X.shape))


BINARY = (mf.Bernoulli,) * 3
MIXED = (mf.Ising, mf.Bernoulli, mf.Ising, mf.Bernoulli, mf.Bernoulli)
every_case = pytest.mark.parametrize(
    "kinds, options",
    [
        (BINARY, {}),
        (BINARY, {"gradient": "tap3"}),
        (BINARY, {"gradient": "pcd"}),
        (MIXED, {"gradient": "mean_field", "n_sweeps": 4, "momentum": 0.9}),
        (MIXED, {"gradient": "tap3", "starts": "persistent", "n_starts": 5}),
        ((*MIXED[:3], mf.Bernoulli), {"gradient": "pcd", "n_starts": 9, "centred": False}),
        ((spiked, mf.Bernoulli, mf.Bernoulli), {"n_starts": 4, "l1": 0.01}),
        ((spiked, mf.Bernoulli, spiked), {"starts": "persistent", "n_starts": 5}),
        ((mf.Bernoulli, spiked, mf.Bernoulli, spiked), {"centred": False}),
    ],
)


@every_case
def test_they_are_those_of_the_general_path(kinds, options):
    # The last batch of an epoch has fewer rows than the others.
    model, X = machine(*kinds), data(kinds[0])
    settings = LayeredSettings(**OPTIONS | options)
    assert steps(model, X, settings) is not None
    found = train(model, X, settings, seed=1)
    expected = train(model, X, settings, seed=1, family=ONE_BY_ONE)
    assert_equal(found, expected, rtol=1e-9, atol=1e-11)
    for now, then in zip(found.model.weights, model.weights, strict=True):
        assert abs(now - then).max() > 1e-4


@pytest.mark.parametrize("gradient", ["tap", "pcd"])
def test_the_number_of_threads_does_not_matter(gradient):
    rng, sizes = np.random.default_rng(0), (150, 60, 40)
    model = machine(*BINARY, sizes=sizes, dtype=np.float32)
    X = data(mf.Bernoulli, 90, 150).astype(np.float32)
    settings = LayeredSettings(gradient=gradient, batch_size=30)
    rows = np.stack([rng.permutation(90)[:30] for _ in range(4)])
    chains = (np.hstack([X[:30], X[:30, :40]]),) if gradient == "pcd" else ()
    states = states_by_threads(model, X, settings, rows, 0.02, chains)
    assert abs(states[0].model.weights[1] - model.weights[1]).max() > 1e-4
    for state in states[1:]:
        assert_equal(state, states[0], rtol=0, atol=0)


@pytest.mark.parametrize("gradient", ["tap", "pcd"])
def test_a_run_goes_on_from_a_checkpoint_as_if_nothing_had_happened(gradient, tmp_path):
    settings = LayeredSettings(**OPTIONS, gradient=gradient)
    assert_resumes(machine(*BINARY), data(mf.Bernoulli), settings, tmp_path)


def test_they_stop_where_learning_diverges():
    settings = LayeredSettings(**OPTIONS | {"learning_rate": 1e200})
    with pytest.raises(FloatingPointError, match="smaller learning_rate"):
        train(machine(*BINARY), data(mf.Bernoulli), settings, seed=0)


def test_draws_of_deep_starts_are_not_compiled():
    deep = Problem(machine(*BINARY), LayeredSettings(gradient="cd"), False)
    assert DeepRows.requires(deep)["a gradient other than 'cd'"] is False
