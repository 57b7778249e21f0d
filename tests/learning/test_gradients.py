import numpy as np
import pytest

from fastmf.learning.gradients import data_average, gradient
from fastmf.learning.likelihood import log_likelihood
from fastmf.inference import tap
from fastmf.models import RBM
from fastmf.priors import Bernoulli, Gaussian, Ising

RNG = np.random.default_rng(0)
VISIBLE = {
    "bernoulli": (Bernoulli(RNG.normal(size=5)), RNG.integers(0, 2, (6, 5)).astype(float)),
    "ising": (Ising(RNG.normal(size=5)), RNG.choice([-1.0, 1.0], (6, 5))),
    "gaussian": (Gaussian(RNG.normal(size=5), RNG.uniform(2, 3, 5)), RNG.normal(size=(6, 5))),
}
HIDDEN = {
    "bernoulli": Bernoulli(RNG.normal(size=3)),
    "ising": Ising(RNG.normal(size=3)),
    "gaussian": Gaussian(RNG.normal(size=3), RNG.uniform(2, 3, 3)),
}
CASES = [
    (order, visible, hidden)
    for order in (1, 2, 3)
    for visible in VISIBLE
    for hidden in HIDDEN
    if order < 3 or "gaussian" not in (visible, hidden)
]


def moved(model, layer, name, unit, step):
    """The model with one number changed."""
    if layer == "weights":
        weights = model.weights.copy()
        weights[unit] += step
        return RBM(weights, *model.layers)
    prior = getattr(model, layer)
    value = getattr(prior, name).copy()
    value[unit] += step
    return RBM(
        model.weights,
        **{"visible": model.visible, "hidden": model.hidden}
        | {layer: prior._replace(**{name: value})},
    )


@pytest.mark.parametrize(("order", "visible", "hidden"), CASES)
def test_gradient_is_the_derivative_through_reconverged_fixed_points(order, visible, hidden):
    prior, X = VISIBLE[visible]
    model = RBM(0.4 * np.random.default_rng(1).normal(size=(5, 3)), prior, HIDDEN[hidden])
    starts = X[:4]

    def solve(model):
        return tap(model, starts, order=order, tol=1e-14, max_iter=3000)

    def average_log_likelihood(model):
        return log_likelihood(model, X, solve(model).log_partition.mean()).mean()

    derivatives = gradient(model, X, solve(model), order)
    step, scale = 1e-3, max(1e-2, abs(derivatives.weights).max())
    places = [("weights", None, (0, 0)), ("weights", None, (4, 2))]
    places += [
        (layer, name, 1)
        for layer in ("visible", "hidden")
        for name in getattr(model, layer)._fields
    ]
    for layer, name, unit in places:
        f = {
            k: average_log_likelihood(moved(model, layer, name, unit, k * step))
            for k in (-2, -1, 1, 2)
        }
        numerical = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * step)
        value = getattr(derivatives, layer)
        value = value[unit] if name is None else getattr(value, name)[unit]
        assert value == pytest.approx(numerical, rel=1e-6, abs=1e-6 * scale), (layer, name)


def test_gradient_vanishes_in_expectation_under_the_model():
    # Data distributed as the model itself: the exact gradient is zero, TAP's nearly so.
    weights = 0.1 * np.random.default_rng(2).normal(size=(5, 3))
    model = RBM(weights, VISIBLE["bernoulli"][0], HIDDEN["bernoulli"])
    states = (np.arange(32)[:, None] >> np.arange(5) & 1).astype(float)
    p = np.exp(log_likelihood(model, states, 0.0))
    data = states[np.random.default_rng(3).choice(32, 200_000, p=p / p.sum())]
    solutions = tap(model, states[:2], tol=1e-12)
    assert abs(gradient(model, data, solutions).weights).max() < 5e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_are_kept(dtype):
    prior, X = VISIBLE["bernoulli"]
    model = RBM(np.ones((5, 3), dtype), prior, HIDDEN["bernoulli"])
    assert data_average(model, X.astype(dtype)).weights.dtype == dtype
