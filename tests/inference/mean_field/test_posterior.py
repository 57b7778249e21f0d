"""The posterior of the hidden layers of a deep machine."""

import itertools

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.mean_field.posterior import posterior

SIZES = 5, 4, 3


def deep_machine(sizes=SIZES, scale=0.5):
    rng = np.random.default_rng(0)
    weights = [
        scale * rng.normal(size=(n, m)) / np.sqrt(n + m) for n, m in itertools.pairwise(sizes)
    ]
    return mf.DBM(tuple(weights), tuple(mf.Bernoulli(rng.normal(size=n)) for n in sizes))


def data(n_rows=6):
    return (np.random.default_rng(1).random((n_rows, SIZES[0])) < 0.5).astype(float)


def test_the_exact_posterior_for_weak_couplings():
    dbm, X = deep_machine(), data()
    model, found = posterior(dbm, X)
    assert isinstance(model, mf.RBM) and found.converged.all()
    for r, x in enumerate(X):
        field = dbm.layers[1].field + x @ dbm.weights[0]
        exact = mf.exact(mf.RBM(dbm.weights[1], mf.Bernoulli(field), dbm.layers[2]))
        for mean, expected in zip(found.mean, exact.mean, strict=True):
            np.testing.assert_allclose(mean[r], expected, atol=5e-3)
        assert found.log_partition[r] == pytest.approx(exact.log_partition, abs=2e-3)


@pytest.mark.parametrize("sizes", [SIZES, pytest.param((5, 4, 3, 2), marks=pytest.mark.slow)])
def test_it_is_the_machine_with_clamped_visible_units(sizes):
    dbm, X = deep_machine(sizes, 2.0), data()
    _, found = posterior(dbm, X, tol=1e-12)
    clamped = mf.tap(dbm, clamp=X, tol=1e-12)
    for mean, expected in zip(found.mean, clamped.mean[1:], strict=True):
        np.testing.assert_allclose(mean, expected, atol=1e-10)
    visible = X @ dbm.layers[0].field
    np.testing.assert_allclose(found.log_partition + visible, clamped.log_partition, atol=1e-10)


def test_options_are_those_of_tap():
    _, found = posterior(deep_machine(), data(), max_iter=1, log_partition=False)
    assert (found.n_iter == 1).all() and found.log_partition is None
