"""Gradients with groups of states: finite differences through solutions that are found anew."""

import numpy as np
import pytest
from differences import assert_gradient
from group_models import MODELS, ORDERS
from units_to_learn import gradient

import fastmf as mf
from fastmf.inference.mean_field.likelihood import log_likelihood

LAYERED = {k: m for k, m in MODELS.items() if not k.startswith("fully")}


def solved(model, order):
    return mf.tap(model, order=order, tol=1e-13, max_iter=5000)


def objective(model, X, order):
    options = {"order": order, "tol": 1e-13, "max_iter": 5000} if model.deep else {}
    value = solved(model, order).log_partition
    return log_likelihood(model, X, float(value), **options).mean()


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
    assert_gradient(found, model, lambda moved: objective(moved, X, order), rel=1e-6, abs=2e-7)
