import copy
import pickle

import numpy as np
import pytest

from fastmf.learning.training.parameters import ModelParameters
from fastmf.models import CRBM, DBM, RBM
from fastmf.priors import Bernoulli, Gaussian, TruncatedGaussian

RNG = np.random.default_rng(0)
LAYERS = Bernoulli(RNG.normal(size=3)), Gaussian(np.zeros(2), np.ones(2)), Bernoulli(np.zeros(4))
COUPLINGS = RNG.normal(size=(3, 2)), RNG.normal(size=(2, 4))
CONDITIONAL = CRBM(COUPLINGS[0], np.zeros((3, 5)), np.zeros((2, 5)), np.zeros(3), np.zeros(2))


@pytest.mark.parametrize(
    "model, n_matrices",
    [(RBM(COUPLINGS[0], *LAYERS[:2]), 1), (DBM(COUPLINGS, LAYERS), 2), (CONDITIONAL, 3)],
)
def test_a_model_is_rebuilt_from_its_parameters(model, n_matrices):
    parameters = ModelParameters.of(model)
    assert len(list(parameters.matrices())) == n_matrices
    again = model.rebuilt(**vars(parameters))
    assert type(again) is type(model) and repr(again) == repr(model)
    for before, after in zip(
        parameters.matrices(), ModelParameters.of(again).matrices(), strict=True
    ):
        np.testing.assert_array_equal(before, after)


def test_functions_act_on_every_array():
    model = RBM(COUPLINGS[0], *LAYERS[:2])
    parameters = ModelParameters.of(model)
    doubled = parameters.combine(lambda x, y: x + y, parameters)
    np.testing.assert_array_equal(doubled.couplings[0], 2 * COUPLINGS[0])
    np.testing.assert_array_equal(doubled.layers[0].field, 2 * LAYERS[0].field)
    np.testing.assert_array_equal(doubled.layers[1].precision, [2, 2])


def test_what_is_not_learned_stays():
    visible = TruncatedGaussian(np.zeros(3), 1.0, -1.0, 1.0)
    parameters = ModelParameters.of(RBM(COUPLINGS[0], visible, LAYERS[1]))
    zero = parameters.combine(np.zeros_like)
    np.testing.assert_array_equal(zero.layers[0].precision, np.zeros(3))
    np.testing.assert_array_equal(zero.layers[0].upper, np.ones(3))


def test_derivatives_are_pickled_as_they_are():
    """Processes send them to each other: a negative derivative is no valid precision."""
    derivative = ModelParameters.of(DBM(COUPLINGS, LAYERS)).combine(np.negative)
    again = pickle.loads(pickle.dumps(derivative))
    assert [type(layer) for layer in again.layers] == [type(layer) for layer in LAYERS]
    np.testing.assert_array_equal(again.layers[1].precision, [-1, -1])
    np.testing.assert_array_equal(again.couplings[0], -COUPLINGS[0])
    assert copy.deepcopy(derivative).layers[1].precision[0] == -1
