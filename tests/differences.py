"""Derivatives by differences, as oracles of gradients."""

import numpy as np
import pytest

from fastmf.learning.training.ascent import ModelParameters


def differences(function, x, step=1e-5):
    """Central differences by each element of a vector, along the first axis."""
    return np.array(
        [(function(x + e) - function(x - e)) / (2 * step) for e in step * np.eye(len(x))]
    )


def moved(model, step, direction):
    """The model after a step of its parameters along a direction."""
    parameters = ModelParameters.of(model).combine(lambda p, d: p + step * d, direction)
    return model.rebuilt(**vars(parameters))


def assert_gradient(slope, model, value, n_directions=4, step=1e-4, **close):
    """Compare derivatives by all parameters with differences of `value` along directions."""
    rng = np.random.default_rng(1)
    for _ in range(n_directions):
        direction = ModelParameters.of(model).combine(lambda p: rng.normal(size=p.shape))
        products = []
        direction.combine(lambda d, g, out=products: out.append((d * g).sum()), slope)
        f = {k: value(moved(model, k * step, direction)) for k in (-2, -1, 1, 2)}
        numerical = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * step)
        assert sum(products) == pytest.approx(numerical, **close)
