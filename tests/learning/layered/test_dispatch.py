"""Which machines and settings several steps of learning are taken at once for."""

import numpy as np
import pytest
from stripes import start, stripes

import fastmf as mf
from fastmf.learning.layered.dispatch import steps
from fastmf.learning.layered.settings import LayeredSettings


@pytest.mark.parametrize(
    "options, hidden",
    [
        ({"gradient": "adaptive_tap"}, mf.Bernoulli),
        ({"starts": "noise"}, mf.Bernoulli),
        ({"gradient": "tap3"}, lambda field: mf.Categorical([field[:2], field[2:]])),
    ],
)
def test_others_take_the_general_path(options, hidden):
    settings, n_hidden = LayeredSettings(**options), start().n_hidden
    assert steps(start(hidden(np.zeros(n_hidden))), stripes(), settings) is None


@pytest.mark.parametrize("gradient", ["tap", "cd", "pcd"])
@pytest.mark.parametrize("hidden", [mf.Bernoulli, lambda f: mf.GaussBernoulli(f, 2.0, f)])
def test_several_steps_are_taken_at_once(hidden, gradient):
    model = start(hidden(np.zeros(start().n_hidden)))
    assert callable(steps(model, stripes(), LayeredSettings(gradient=gradient)))


@pytest.mark.parametrize("gradient, taken", [("tap", True), ("pcd", True), ("cd", False)])
def test_deep_machines_take_several_steps_but_for_those_of_contrastive_divergence(gradient, taken):
    zeros, weights = np.zeros(8), np.zeros((8, 8))
    kinds = mf.Bernoulli, mf.Bernoulli, mf.Ising
    deep = mf.DBM((weights, weights), tuple(kind(zeros) for kind in kinds))
    assert callable(steps(deep, stripes(), LayeredSettings(gradient=gradient))) == taken


def test_deep_machines_with_groups_of_states_take_the_general_path():
    zeros, weights = np.zeros(8), np.zeros((8, 8))
    layers = mf.Bernoulli(zeros), mf.Categorical([zeros[:3], zeros[3:]]), mf.Bernoulli(zeros)
    assert steps(mf.DBM((weights, weights), layers), stripes(), LayeredSettings()) is None


@pytest.mark.parametrize("gradient", ["tap", "pcd"])
def test_users_units_take_the_general_path(gradient):
    class Own(mf.Bernoulli):
        """Units whose gradient nobody has checked to be linear."""

    zeros, weights = np.zeros(8), np.zeros((8, 8))
    model = mf.RBM(weights, mf.Bernoulli(zeros), Own(zeros))
    assert steps(model, stripes(), LayeredSettings(gradient=gradient)) is None
