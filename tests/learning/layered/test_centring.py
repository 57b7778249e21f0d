from itertools import pairwise

import numpy as np
import pytest
from own_priors import Biased
from units_to_learn import gradient, sums_of

import fastmf as mf
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import Plan
from fastmf.learning.training.ascent import ModelParameters, initial_state

RNG = np.random.default_rng(0)


def machine(layers, weights):
    return mf.RBM(*weights, *layers) if len(layers) == 2 else mf.DBM(tuple(weights), tuple(layers))


def centred(model, slope, means):
    """The direction of a step of gradient ascent when units are counted from their means."""
    state, plan = initial_state(model), Plan(model, LayeredSettings(l2=0, momentum=0))
    plan.averages.free = []  # steps are not scaled
    plan.ascend(state, slope.combine(np.copy), sums_of(means, slope), [], 1.0)
    return state.velocity


def flat(parameters):
    weights, layers = parameters.couplings, parameters.layers
    return np.concatenate([*(w.ravel() for w in weights), *(p.field for p in layers)])


def usual(vector, sizes, offsets):
    """Weights and fields of a machine from those with units counted from offsets."""
    shapes = list(pairwise(sizes))
    parts = np.split(vector, np.cumsum([*(a * b for a, b in shapes), *sizes])[:-1])
    weights = [p.reshape(shape) for p, shape in zip(parts, shapes, strict=False)]
    fields = list(parts[len(shapes) :])
    for k, (w, (below, above)) in enumerate(zip(weights, offsets, strict=True)):
        fields[k] = fields[k] - w @ above
        fields[k + 1] = fields[k + 1] - w.T @ below
    return np.concatenate([*(w.ravel() for w in weights), *fields])


def test_a_prior_without_a_field_is_not_centred():
    layers = Biased(RNG.normal(size=4)), mf.Bernoulli(RNG.normal(size=3))
    model = mf.RBM(RNG.normal(size=(4, 3)), *layers)
    slope = ModelParameters.of(model).combine(lambda x: RNG.normal(size=x.shape))
    step = centred(model, slope, [RNG.random(n) for n in (4, 3)])
    np.testing.assert_array_equal(step.layers[0].bias, slope.layers[0].bias)


@pytest.mark.parametrize("which", [None, 0, 1])
@pytest.mark.parametrize("sizes", [(4, 3), (3, 4, 2)])
def test_it_is_the_gradient_in_other_coordinates(sizes, which):
    """Units whose field is no tilt, of layer `which`, leave their neighbours uncentred."""
    layers = [mf.Bernoulli(RNG.normal(size=n)) for n in sizes]
    if which is not None:
        layers[which] = mf.GaussBernoulli(layers[which].field, 2.0, 0.3)
    model = machine(layers, [RNG.normal(size=shape) for shape in pairwise(sizes)])
    slope = ModelParameters.of(model).combine(lambda x: RNG.normal(size=x.shape))
    means = [RNG.random(n) for n in sizes]
    offsets = [
        (below * (k + 1 != which), above * (k != which))
        for k, (below, above) in enumerate(pairwise(means))
    ]
    basis = np.eye(len(flat(slope)))
    change = np.stack([usual(row, sizes, offsets) for row in basis], axis=1)
    found = centred(model, slope, means)
    np.testing.assert_allclose(flat(found), change @ change.T @ flat(slope), rtol=1e-12)
    if which is not None:
        log_odds = (parameters.layers[which].log_odds for parameters in (found, slope))
        np.testing.assert_array_equal(*log_odds)


def test_it_does_not_matter_which_value_of_a_unit_is_called_one():
    X = RNG.integers(0, 2, (20, 6)).astype(float)
    w, b, c = RNG.normal(size=(6, 3)), RNG.normal(size=6), RNG.normal(size=3)

    def slope(w, b, c, X):
        model = mf.RBM(w, mf.Bernoulli(b), mf.Bernoulli(c))
        found = centred(model, *gradient(model, X, mf.tap(model, X))[:2])
        return *found.couplings, *(layer.field for layer in found.layers)

    by_w, by_b, by_c = slope(w, b, c, X)
    other_w, other_b, other_c = slope(-w, -b, c + w.sum(0), 1 - X)
    np.testing.assert_allclose(other_w, -by_w, atol=1e-7)
    np.testing.assert_allclose(other_b, -by_b, atol=1e-7)
    np.testing.assert_allclose(other_c, by_c + by_w.sum(0), atol=1e-7)


def test_decay_acts_on_couplings_between_deviations():
    """It leaves the fields of units counted from their means where they are."""
    sizes = 4, 3
    layers = [mf.Bernoulli(RNG.normal(size=n)) for n in sizes]
    model = mf.RBM(RNG.normal(size=sizes), *layers)
    means = [RNG.random(n) for n in sizes]
    state, nothing = initial_state(model), ModelParameters.of(model).combine(np.zeros_like)
    plan = Plan(model, LayeredSettings(l2=0.1, momentum=0))
    plan.ascend(state, nothing, sums_of(means, nothing), [], 0.5)
    np.testing.assert_allclose(state.model.weights, 0.95 * model.weights)
    for k, (before, after) in enumerate(zip(model.layers, state.model.layers, strict=True)):
        weights = [m.weights if k == 0 else m.weights.T for m in (model, state.model)]
        seen = [p.field + w @ means[1 - k] for p, w in zip((before, after), weights, strict=True)]
        np.testing.assert_allclose(seen[1], seen[0])
