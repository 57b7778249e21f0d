from itertools import pairwise

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.rings import ring_diagrams


def gaussians(sizes, seed):
    """A machine of Gaussian units, its couplings as a matrix, and the precision of the whole."""
    rng = np.random.default_rng(seed)
    layers = [mf.Gaussian(np.zeros(n), rng.uniform(1.5, 3, n)) for n in sizes]
    weights = [0.4 * rng.normal(size=shape) for shape in pairwise(sizes)]
    ends = np.cumsum(sizes)
    couplings = np.zeros((ends[-1],) * 2)
    for w, end in zip(weights, ends, strict=False):
        couplings[end - w.shape[0] : end, end : end + w.shape[1]] = w
    couplings += couplings.T
    model = mf.RBM(*weights, *layers) if len(sizes) == 2 else mf.DBM(weights, layers)
    return model, couplings, np.concatenate([p.precision for p in layers])


@pytest.mark.parametrize("sizes", [(7, 4), (3, 6), (5, 4, 3)])
def test_nothing_else_is_missing_between_gaussian_units(sizes):
    model, couplings, own = gaussians(sizes, 0)
    full = np.diag(own) - couplings
    exact = len(own) * np.log(2 * np.pi) / 2 - np.linalg.slogdet(full)[1] / 2
    var = np.linalg.inv(full).diagonal()
    second_order = (np.log(2 * np.pi * np.e * var) - own * var).sum() / 2
    second_order += var @ couplings**2 @ var / 4
    layers = np.split(np.stack([var, var]), np.cumsum(sizes)[:-1], axis=1)
    rings = ring_diagrams(model, tuple(layers), tol=1e-6)
    np.testing.assert_allclose(rings, exact - second_order, rtol=1e-9)
    assert abs(rings[0]) > 0.01
    np.testing.assert_allclose(ring_diagrams(model, tuple(layers)), rings, atol=1e-4)


@pytest.mark.parametrize("strength", [0.5, 0.8])
def test_log_partitions_of_spins_with_patterns_come_closer(strength):
    """Where many couplings act together; between independent ones rings cancel."""
    rng = np.random.default_rng(0)
    left, right = rng.choice([-1, 1], (60, 2)), rng.choice([-1, 1], (12, 2))
    weights = strength * left @ right.T / np.sqrt(60 * 12)
    model = mf.RBM(weights, mf.Ising(np.zeros(60)), mf.Ising(np.zeros(12)))
    solution = mf.tap(model, np.ones((1, 60)))
    off = solution.log_partition - mf.exact(model, averages=False).log_partition
    left = off + ring_diagrams(model, solution.var)
    assert abs(left) < abs(off) / 20


def test_fixed_units_and_strong_couplings_do_no_harm():
    rng = np.random.default_rng(2)
    model = mf.RBM(20 * rng.normal(size=(6, 5)), mf.Ising(np.zeros(6)), mf.Ising(np.zeros(5)))
    visible, hidden = np.ones((2, 6)), np.ones((2, 5))
    visible[0, :3] = hidden[0, 1:] = 0
    rings = ring_diagrams(model, (visible, hidden))
    assert np.isfinite(rings).all()
    smaller = mf.RBM(model.weights[3:, :1], mf.Ising(np.zeros(3)), mf.Ising(np.zeros(1)))
    one = ring_diagrams(smaller, (visible[:1, 3:], hidden[:1, :1]))
    np.testing.assert_allclose(rings[0], one[0], rtol=1e-3)
