from itertools import pairwise

import numpy as np
import pytest
from potts_data import all_labels

import fastmf as mf


def random_dbm(sizes=(4, 3, 2), scale=0.5, seed=0, prior=mf.Bernoulli, dtype=float):
    rng = np.random.default_rng(seed)
    shapes = pairwise(sizes)
    weights = tuple((scale * rng.normal(size=shape)).astype(dtype) for shape in shapes)
    return mf.DBM(weights, tuple(prior(rng.normal(size=n).astype(dtype)) for n in sizes))


def test_energy_is_that_of_the_same_rbm():
    dbm = random_dbm((4, 3, 2, 5))
    rng = np.random.default_rng(1)
    states = [rng.integers(0, 2, (6, n)) for n in dbm.sizes]
    sides = np.hstack(states[::2]), np.hstack(states[1::2])
    np.testing.assert_allclose(dbm.energy(*states), dbm.bipartite().energy(*sides))
    rbm = mf.RBM(dbm.weights[0], *dbm.layers[:2])
    two = mf.DBM(dbm.weights[:1], dbm.layers[:2])
    np.testing.assert_allclose(two.energy(*states[:2]), rbm.energy(*states[:2]))


def test_layers_of_several_kinds_stand_side_by_side():
    rng = np.random.default_rng(0)
    layers = (
        mf.Gaussian(rng.normal(size=3), np.full(3, 9.0)),
        mf.Bernoulli(rng.normal(size=2)),
        mf.Bernoulli(rng.normal(size=4)),
    )
    dbm = mf.DBM((rng.normal(size=(3, 2)), rng.normal(size=(2, 4))), layers)
    assert repr(dbm) == "DBM(3 Gaussian x 2 Bernoulli x 4 Bernoulli, float64)"
    assert isinstance(dbm.bipartite().visible, mf.Concatenated)
    h1, h2 = all_labels([2] * 2), all_labels([2] * 4)
    pairs = np.hstack([np.repeat(h1, 16, 0), np.tile(h2, (4, 1))])
    h1, h2 = pairs[:, :2], pairs[:, 2:]
    fields = layers[0].field + h1 @ dbm.weights[0].T
    visible = (fields**2 / 18 + np.log(2 * np.pi / 9) / 2).sum(1)
    rest = h1 @ layers[1].field + h2 @ layers[2].field + ((h1 @ dbm.weights[1]) * h2).sum(1)
    expected = np.logaddexp.reduce(visible + rest)
    assert mf.exact(dbm).log_partition == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "weights, layers, error, message",
    [
        (np.ones((2, 2)), (mf.Bernoulli([0.0, 0.0]),) * 2, TypeError, "weights must be a tuple"),
        ((np.ones((2, 2)),), mf.Bernoulli([0.0, 0.0]), TypeError, "layers must be a tuple"),
        ((np.ones((2, 2)),), (mf.Bernoulli([0.0, 0.0]),), ValueError, "one layer more"),
        ((), (mf.Bernoulli([0.0]),), ValueError, "at least one"),
        ((np.ones((1, 2)), np.ones((1, 2))), (mf.Bernoulli([0.0]),) * 3, ValueError, "layer 1"),
        ((np.ones((1, 2)),), (mf.Bernoulli([0.0]),) * 2, ValueError, "2 units"),
        ((np.full((1, 1), np.nan),), (mf.Bernoulli([0.0]),) * 2, ValueError, r"weights\[0\]"),
    ],
)
def test_bad_parameters(weights, layers, error, message):
    with pytest.raises(error, match=message):
        mf.DBM(weights, layers)


def test_bad_states():
    dbm = random_dbm()
    with pytest.raises(ValueError, match="3 layers"):
        dbm.energy(np.zeros(4))
    with pytest.raises(ValueError, match="layer 1"):
        dbm.energy(np.zeros(4), np.zeros(4), np.zeros(2))
