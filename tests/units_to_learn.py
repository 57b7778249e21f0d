"""Units of all kinds with data, and differences along directions, for tests of gradients."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.learning.training.parameters import ModelParameters

RNG = np.random.default_rng(0)
REALS = RNG.uniform(0, 1, (6, 5))
SPARSE = np.where(RNG.random((6, 5)) < 0.4, 0.0, REALS)
MIXED = np.hstack([SPARSE[:, :2] > 0, SPARSE[:, 1:]]).astype(float)
FIELD = RNG.normal(size=5)
VISIBLE = {
    "bernoulli": (mf.Bernoulli(FIELD), RNG.integers(0, 2, (6, 5)).astype(float)),
    "ising": (mf.Ising(FIELD), RNG.choice([-1.0, 1.0], (6, 5))),
    "gaussian": (mf.Gaussian(FIELD, RNG.uniform(2, 3, 5)), RNG.normal(size=(6, 5))),
    "truncated": (mf.TruncatedGaussian(FIELD, [2.0, -1.0, 0.5, 3.0, -2.0], 0.0, 1.0), REALS),
    "spike": (mf.GaussBernoulli(FIELD, 2.5, 0.3), SPARSE),
    "truncated spike": (mf.TruncatedGaussBernoulli(FIELD, -1.0, -0.4, 0.0, 1.0), SPARSE),
    "mixed": (
        mf.Concatenated(
            mf.Bernoulli(FIELD[:2]),
            mf.GaussBernoulli(FIELD[1:3], 2.5, 0.3),
            mf.TruncatedGaussBernoulli(FIELD[2:4], -1.0, -0.4, 0.0, 1.0),
        ),
        MIXED,
    ),
}
HIDDEN = {
    "bernoulli": mf.Bernoulli(RNG.normal(size=3)),
    "ising": mf.Ising(RNG.normal(size=3)),
    "gaussian": mf.Gaussian(RNG.normal(size=3), RNG.uniform(2, 3, 3)),
    "rectified": mf.TruncatedGaussian(RNG.normal(size=3), 3.0, 0.0, np.inf),
}


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
