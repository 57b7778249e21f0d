"""Mean-field solutions of deep machines: those of the same machine written as an RBM."""

from itertools import pairwise

import numpy as np
import pytest

import fastmf as mf

SIZES = 30, 26, 9
FOUR_LAYERS = *SIZES, 5  # compiled anew


def random_dbm(sizes=SIZES, scale=2.0, seed=0):
    rng = np.random.default_rng(seed)
    weights = tuple(scale * rng.normal(size=(n, m)) / np.sqrt(n + m) for n, m in pairwise(sizes))
    return mf.DBM(weights, tuple(mf.Bernoulli(rng.normal(size=n)) for n in sizes))


def sides(parts):
    return [np.concatenate(parts[side::2], axis=-1) for side in (0, 1)]


@pytest.mark.parametrize("sizes", [SIZES, pytest.param(FOUR_LAYERS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("schedule", ["blocked", "sequential"])
def test_solutions_are_those_of_the_rbm(order, schedule, sizes):
    dbm = random_dbm(sizes)
    deep = mf.tap(dbm, order=order, schedule=schedule, tol=1e-12)
    wide = mf.tap(dbm.bipartite(), order=order, schedule=schedule, tol=1e-12)
    assert deep.converged and wide.converged
    assert deep.log_partition == pytest.approx(wide.log_partition, abs=1e-9)
    for name in ("mean", "var", "b", "a"):
        for found, expected in zip(sides(getattr(deep, name)), getattr(wide, name), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-9)


def test_two_layers_are_an_rbm():
    dbm = random_dbm((20, 10))
    rbm = mf.RBM(dbm.weights[0], *dbm.layers)
    X = (np.random.default_rng(0).random((7, 20)) < 0.5).astype(float)
    deep, plain = mf.tap(dbm, X), mf.tap(rbm, X)
    np.testing.assert_array_equal(deep.n_iter, plain.n_iter)
    np.testing.assert_array_equal(deep.log_partition, plain.log_partition)
    for found, expected in zip(deep.mean, plain.mean, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_weak_couplings_are_solved():
    dbm = random_dbm((4, 3, 3), scale=0.3)
    found, expected = mf.tap(dbm), mf.exact(dbm)
    assert found.log_partition == pytest.approx(expected.log_partition, abs=1e-4)
    for mean, true in zip(found.mean, expected.mean, strict=True):
        np.testing.assert_allclose(mean, true, atol=1e-3)


def test_data_held_at_the_bottom():
    """The posterior over the hidden layers, and log p~(x): Tramel et al. (2018), Appendix E."""
    dbm = random_dbm((5, 4, 3), scale=0.5)
    X = (np.random.default_rng(0).random((6, 5)) < 0.5).astype(float)
    held = mf.tap(dbm, X, clamp=X)
    assert held.converged.all()
    np.testing.assert_array_equal(held.mean[0], X)
    hidden = mf.RBM(dbm.weights[1], *dbm.layers[1:])
    for r, x in enumerate(X):
        field = dbm.layers[1].field + x @ dbm.weights[0]
        posterior = mf.exact(mf.RBM(hidden.weights, mf.Bernoulli(field), hidden.hidden))
        np.testing.assert_allclose(held.mean[1][r], posterior.mean[0], atol=5e-3)
        expected = posterior.log_partition + x @ dbm.layers[0].field
        assert held.log_partition[r] == pytest.approx(expected, abs=2e-3)
        # The same equations without the visible layer.
        above = mf.tap(hidden, field=x @ dbm.weights[0], tol=1e-10)
        np.testing.assert_allclose(held.mean[1][r], above.mean[0], atol=1e-6)


def test_bad_input():
    dbm = random_dbm((4, 3, 2))
    with pytest.raises(ValueError, match="tuple of 3"):
        mf.tap(dbm, field=(np.zeros(4), np.zeros(3)))
    with pytest.raises(ValueError, match="init"):
        mf.tap(dbm, np.zeros((2, 5)))
