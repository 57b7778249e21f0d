"""Unknown labels of a conditional RBM, against sums over all states."""

import itertools

import numpy as np
import pytest

from fastmf.learning.conditional import (
    ConditionalSettings,
    ConditionalSteps,
    drawn_labels,
    log_weights_of_known,
)
from fastmf.learning.training.ascent import initial_state
from fastmf.learning.training.trainer import Completion
from fastmf.models import CRBM

RNG = np.random.default_rng(0)


def machine(n_hidden):
    shapes = (4, n_hidden), (4, 3), (n_hidden, 3), (4,), (n_hidden,)
    return CRBM(*(RNG.normal(size=shape) for shape in shapes))


def completions(model, y, x):
    """All rows of labels that agree with those that are known, and their log-weights."""
    rows = np.array(list(itertools.product((0.0, 1.0), repeat=4)))
    rows = rows[((rows == y) | np.isnan(y)).all(1)]
    return rows, -model.free_energy(rows, np.tile(x, (len(rows), 1)))


@pytest.mark.parametrize("n_hidden", [0, 2])
def test_unknown_labels_are_summed_over(n_hidden):
    model, X = machine(n_hidden), RNG.normal(size=(9, 3))
    Y = (RNG.random((9, 4)) < 0.5) * 1.0
    Y[RNG.random(Y.shape) < 0.4] = np.nan
    Y[0] = np.nan
    Y[1] = 1
    found = log_weights_of_known(model, Y, X)
    right = [np.logaddexp.reduce(completions(model, y, x)[1]) for y, x in zip(Y, X, strict=True)]
    np.testing.assert_allclose(found, right)


def test_draws_have_the_means_given_known_labels_and_features():
    model, x, y = machine(2), RNG.normal(size=(1, 3)), np.array([1.0, np.nan, np.nan, 0])
    Y = np.tile(y, (20_000, 1))
    fields = tuple(np.repeat(part, len(Y), axis=0) for part in model.fields(x))
    drawn = drawn_labels(model, Y, np.isnan(Y), fields, 30, np.random.default_rng(0))
    rows, logs = completions(model, y, x)
    mean = np.exp(logs - np.logaddexp.reduce(logs)) @ rows
    np.testing.assert_allclose(drawn.mean(0), mean, atol=4 * 0.5 / np.sqrt(len(Y)))


def test_features_stay_beside_labels():
    model, X = machine(2), RNG.normal(size=(3, 3))
    Y = np.array([[0, 1, 1, 0], [1, np.nan, 0, np.nan], [1, 1, 1, 1]])
    complete = Completion((Y, X), model, ConditionalSteps(ConditionalSettings()).draw)
    complete(initial_state(model), np.random.default_rng(0))
    labels, features = complete.data
    assert features is X and np.isin(labels, (0, 1)).all()
    np.testing.assert_array_equal(labels[~np.isnan(Y)], Y[~np.isnan(Y)])
