"""Which machines and settings several steps of learning are taken at once for."""

import logging

import numpy as np
import pytest
from stripes import start, stripes

import fastmf as mf
from fastmf.learning.layered.dispatch import lacking, steps
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


def test_the_log_says_which_path_is_taken_and_what_the_other_one_requires(caplog):
    with caplog.at_level(logging.INFO, "fastmf"):
        steps(start(), stripes(), LayeredSettings())
        steps(start(), stripes(), LayeredSettings(starts="noise"))
    compiled, general = (record.message for record in caplog.records)
    assert compiled == "steps of learning are compiled"
    assert "general path" in general and "starts='data' or 'persistent'" in general


@pytest.mark.parametrize(
    "options, hidden, missing",
    [
        ({}, mf.Bernoulli, []),
        ({"gradient": "exact"}, mf.Bernoulli, ["gradient='cd' or 'pcd'"]),
        ({"gradient": "adaptive_tap"}, mf.Bernoulli, ["a gradient other than 'adaptive_tap'"]),
        ({}, mf.Gaussian, []),
        ({"gradient": "pcd"}, mf.Gaussian, []),
        ({"gradient": "tap3"}, mf.Gaussian, ["gradient='mean_field' or 'tap'"]),
        ({"n_sweeps": 17}, mf.Gaussian, ["n_sweeps at most 16"]),
    ],
)  # fmt: skip
def test_what_compiled_steps_lack(options, hidden, missing):
    units = hidden(np.zeros(start().n_hidden), *([2.0] if hidden is mf.Gaussian else []))
    assert lacking(start(units), stripes(), LayeredSettings(**options)) == missing


def test_rows_that_are_no_arrays_take_the_general_path():
    assert lacking(start(), stripes().tolist(), LayeredSettings()) == ["rows in memory"]
