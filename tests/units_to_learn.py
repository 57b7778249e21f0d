"""Units of all kinds with data, and changes of single parameters, for tests of gradients."""

import numpy as np

import fastmf as mf
from fastmf.priors._protocol import parameter_names

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


def changed(prior, name, unit, step):
    """The prior with one number changed; a part of a concatenated one goes by its position."""
    if hasattr(prior, "parts"):
        part, name = name
        parts = list(prior.parts)
        parts[part] = changed(parts[part], name, unit, step)
        return prior._replace(parts=tuple(parts))
    value = getattr(prior, name).copy()
    value[unit] += step
    return prior._replace(**{name: value})


def names(prior):
    """Names of the learned fields, as `changed` takes them."""
    if hasattr(prior, "parts"):
        return [(k, name) for k, part in enumerate(prior.parts) for name in names(part)]
    return parameter_names(prior)


def entry(derivatives, name, unit):
    if isinstance(name, tuple):
        return entry(derivatives.parts[name[0]], name[1], unit)
    return getattr(derivatives, name)[unit]


def moved(model, layer, name, unit, step):
    """The model with one number changed."""
    if layer == "weights":
        weights = model.weights.copy()
        weights[unit] += step
        return mf.RBM(weights, *model.layers)
    layers = {"visible": model.visible, "hidden": model.hidden}
    return mf.RBM(model.weights, **layers | {layer: changed(layers[layer], name, unit, step)})
