from typing import NamedTuple

import numpy as np
import pytest

from fastmf.learning.layered.domain import project as project_parameters
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models import DBM, RBM
from fastmf.priors import Bernoulli, Gaussian, Ising
from fastmf.priors._domain import PRECISION_MARGIN, largest_variance


def project(weights, visible, hidden):
    parameters = ModelParameters(couplings=(weights,), layers=(visible, hidden))
    return project_parameters(RBM(np.zeros((1, 1)), Ising([0.0]), Ising([0.0])), parameters)


class Uniform(NamedTuple):
    """Units of one's own: uniform on [-width, width] without a tilt, and here under any."""

    width: np.ndarray

    def log_partition(self, b, a):
        return np.log(2 * self.width) + 0 * (b + a)

    def moments(self, b, a):
        return 0 * (b + a) * self.width, self.width**2 / 3 + 0 * (b + a)


def test_of_ones_own_units_the_variance_without_a_tilt_counts():
    own = Uniform(np.array([1.0, 3.0]))
    np.testing.assert_allclose(largest_variance(own), [1 / 3, 3])
    model = project(np.array([[3.0], [2.0]]), own, Gaussian([0.0], [1.0]))
    np.testing.assert_allclose(model.hidden.precision, PRECISION_MARGIN * (9 / 3 + 4 * 3))


def test_binary_layers_are_left_alone():
    weights = np.full((3, 2), 50.0)
    model = project(weights, Bernoulli(np.zeros(3)), Ising([0.3, 1e9]))
    np.testing.assert_array_equal(model.weights, weights)
    np.testing.assert_array_equal(model.visible.field, 0)
    assert model.hidden.field[0] == 0.3
    assert model.hidden.field[1] < 100


@pytest.mark.parametrize("flipped", [False, True])
def test_precision_of_gaussian_units_is_raised_just_where_needed(flipped):
    weights = np.array([[3.0, 0.1], [4.0, 0.1]])
    gaussian = Gaussian([1.0, 1.0], [2.0, 2.0])
    layers = (gaussian, Ising([0, 0])) if flipped else (Ising([0, 0]), gaussian)
    model = project(weights.T if flipped else weights, *layers)
    projected = model.layers[1 - flipped]
    np.testing.assert_allclose(projected.precision, [PRECISION_MARGIN * 25, 2.0])
    np.testing.assert_array_equal(projected.field, gaussian.field)


def test_two_unbounded_layers_keep_each_other_finite():
    rng = np.random.default_rng(0)
    weights = 10 * rng.normal(size=(6, 4))
    model = project(weights, Gaussian(np.zeros(6), 1.0), Gaussian(np.zeros(4), 1.0))
    c_v, c_h = np.zeros(6), np.zeros(4)
    for _ in range(1000):
        tilted = model.hidden.precision - c_v @ weights**2
        assert (tilted > 0).all()
        c_h = 1 / tilted
        tilted = model.visible.precision - weights**2 @ c_h
        assert (tilted > 0).all()
        c_v = 1 / tilted
    # And the model itself can be normalised: its precision matrix is positive definite.
    j = np.block(
        [
            [np.diag(model.visible.precision), -weights],
            [-weights.T, np.diag(model.hidden.precision)],
        ]
    )
    assert np.linalg.eigvalsh(j).min() > 0


def test_a_layer_between_two_others_withstands_both():
    weights = np.full((2, 1), 3.0), np.full((1, 4), 2.0)
    layers = Ising(np.zeros(2)), Gaussian([0.0], [1.0]), Ising(np.zeros(4))
    model = DBM(weights, layers)
    model = project_parameters(model, ModelParameters.of(model))
    np.testing.assert_allclose(model.layers[1].precision, PRECISION_MARGIN * (2 * 9 + 4 * 4))
