"""Which machines and settings several steps of learning are taken at once for."""

import numpy as np
import pytest
from stripes import start, stripes

import fastmf as mf
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.steps import steps


@pytest.mark.parametrize(
    "options, hidden",
    [
        ({"gradient": "adaptive_tap"}, mf.Bernoulli),
        ({"starts": "noise"}, mf.Bernoulli),
        ({"gradient": "pcd"}, lambda field: mf.Gaussian(field, 2.0)),
        ({}, lambda field: mf.Categorical([field[:2], field[2:]])),
    ],
)
def test_others_take_the_general_path(options, hidden):
    settings, n_hidden = LayeredSettings(**options), start().n_hidden
    assert steps(start(hidden(np.zeros(n_hidden))), stripes(), settings) is None


@pytest.mark.parametrize("hidden", [mf.Bernoulli, lambda field: mf.Gaussian(field, 2.0)])
def test_several_steps_are_taken_at_once(hidden):
    take = steps(start(hidden(np.zeros(start().n_hidden))), stripes(), LayeredSettings())
    assert callable(take)


def test_deep_machines_of_other_samplers_take_the_general_path():
    zeros, weights = np.zeros(8), np.zeros((8, 8))
    kinds = mf.Bernoulli, mf.Bernoulli, mf.Ising
    alike = mf.DBM((weights, weights), tuple(mf.Bernoulli(zeros) for _ in kinds))
    mixed = mf.DBM((weights, weights), tuple(kind(zeros) for kind in kinds))
    settings = LayeredSettings(gradient="pcd")
    assert callable(steps(alike, stripes(), settings))
    assert steps(mixed, stripes(), settings) is None


def test_users_units_take_the_general_path():
    class Own(mf.Bernoulli):
        """Units whose gradient nobody has checked to be linear."""

    zeros, weights = np.zeros(8), np.zeros((8, 8))
    assert (
        steps(mf.RBM(weights, mf.Bernoulli(zeros), Own(zeros)), stripes(), LayeredSettings())
        is None
    )
