"""Gradients with groups of states: finite differences through solutions that are found anew."""

import numpy as np
import pytest
from group_models import MODELS, ORDERS

import fastmf as mf
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.learning.layered.gradients import gradient
from fastmf.priors._protocol import parts_of

LAYERED = {k: m for k, m in MODELS.items() if not k.startswith("fully")}


def solved(model, order):
    return mf.tap(model, order=order, tol=1e-13, max_iter=5000)


def objective(model, X, order):
    options = {"order": order, "tol": 1e-13, "max_iter": 5000} if model.deep else {}
    value = solved(model, order).log_partition
    return log_likelihood(model, X, float(value), **options).mean()


def with_weight(model, k, entry, step):
    couplings = [np.array(w) for w in model.couplings]
    couplings[k][entry] += step
    return model.rebuilt(tuple(couplings), model.layers)


def with_field(model, k, part, unit, step):
    layers = list(model.layers)
    parts = list(parts_of(layers[k]))
    field = np.array(parts[part].field)
    field[unit] += step
    parts[part] = parts[part]._replace(field=field)
    layers[k] = mf.Concatenated(*parts) if len(parts) > 1 else parts[0]
    return model.rebuilt(model.couplings, tuple(layers))


@pytest.mark.parametrize(("name", "order"), [pair for pair in ORDERS if pair[0] in LAYERED])
def test_gradient_is_the_derivative_of_the_log_likelihood(name, order):
    model, rng = LAYERED[name], np.random.default_rng(5)
    n = model.sizes[0]
    X = model.layers[0].sample(np.zeros((4, n)), np.zeros((4, n)), rng)
    options = {"tol": 1e-13, "max_iter": 5000} if model.deep else {}
    solution = solved(model, order)
    start = tuple(part[None] for part in solution.mean), tuple(p[None] for p in solution.var)
    found = gradient(
        model, X, mf.tap(model, start, order=order, tol=1e-13, max_iter=50), order, **options
    )[0]
    step = 1e-4
    for k, couplings in enumerate(found.couplings):
        for _ in range(6):
            entry = tuple(rng.integers(0, couplings.shape))
            above, below = (
                objective(with_weight(model, k, entry, sign * step), X, order) for sign in (1, -1)
            )
            expected = (above - below) / (2 * step)
            assert couplings[entry] == pytest.approx(expected, abs=2e-7), (k, entry)
    for k, layer in enumerate(found.layers):
        for number, part in enumerate(parts_of(layer)):
            unit = int(rng.integers(len(part.field)))
            above, below = (
                objective(with_field(model, k, number, unit, sign * step), X, order)
                for sign in (1, -1)
            )
            assert part.field[unit] == pytest.approx((above - below) / (2 * step), abs=2e-7)
