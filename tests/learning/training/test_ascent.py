import numpy as np
import pytest
from stripes import quick, start, stripes
from units_to_learn import sums_of

from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import Plan, train
from fastmf.learning.training.ascent import ModelParameters, initial_state
from fastmf.models import RBM
from fastmf.priors import Bernoulli


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_l1_leaves_the_couplings_of_a_penalised_maximum(momentum):
    # Of the objective -|W - T|^2 / 2, whose maximum is the soft threshold of T.
    target = np.random.default_rng(0).normal(size=(6, 5))
    model = RBM(0 * target, Bernoulli(np.zeros(6)), Bernoulli(np.zeros(5)))
    state, means = initial_state(model), [np.zeros(6), np.zeros(5)]
    plan = Plan(model, LayeredSettings(l1=0.4, l2=0.0, momentum=momentum))
    for _ in range(400):
        gradient = ModelParameters.of(state.model).combine(np.zeros_like)
        gradient.couplings = (target - state.model.weights,)
        plan.ascend(state, gradient, sums_of(means, gradient), [], 0.1)
    expected = np.sign(target) * np.maximum(abs(target) - 0.4, 0)
    np.testing.assert_allclose(state.model.weights, expected, atol=1e-6)
    np.testing.assert_array_equal(state.model.weights == 0, expected == 0)
    assert 5 < (expected == 0).sum() < 25


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_are_kept(dtype):
    state = train(start(dtype=dtype), stripes(dtype=dtype), quick(starts="persistent"), seed=0)
    assert state.model.dtype == state.model.visible.field.dtype == dtype
    assert {c.dtype for c in state.chains} == {np.dtype(dtype)}
    assert state.velocity.layers[1].field.dtype == dtype
