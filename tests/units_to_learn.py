"""Units of all kinds with data, for tests of gradients."""

import numpy as np

import fastmf as mf
from fastmf.learning.layered.gradients import Gradients, summed

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


def gradient(model, X, of_model, order=2, **options):
    """The gradient, means and products of `Gradients`, with sums of the `Pairs`."""
    terms, sums, products = Gradients(model, order, **options)(model, X, of_model)
    return summed(terms, model), [mean for mean, _ in sums], products


def sums_of(means, gradient):
    """Means and derivatives by fields of each layer, as for `Plan.ascend`."""
    pairs = zip(means, gradient.layers, strict=True)
    return [np.array([mean, getattr(prior, "field", 0 * mean)]) for mean, prior in pairs]
