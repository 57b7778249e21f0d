from itertools import pairwise

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.mean_field.corrections import (
    _pairs,
    _response,
    _rings,
    log_partition_correction,
)


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
def test_nothing_but_rings_is_missing_between_gaussian_units(sizes):
    model, couplings, own = gaussians(sizes, 0)
    full = np.diag(own) - couplings
    exact = len(own) * np.log(2 * np.pi) / 2 - np.linalg.slogdet(full)[1] / 2
    var = np.linalg.inv(full).diagonal()
    second_order = (np.log(2 * np.pi * np.e * var) - own * var).sum() / 2
    second_order += var @ couplings**2 @ var / 4
    layers = tuple(np.split(np.stack([var, var]), np.cumsum(sizes)[:-1], axis=1))
    rings = log_partition_correction(model, layers, layers, tol=1e-6)
    np.testing.assert_allclose(rings, exact - second_order, rtol=1e-9)
    assert abs(rings[0]) > 0.01
    np.testing.assert_allclose(log_partition_correction(model, layers, layers), rings, atol=1e-4)


def entropy(p):
    return -(p * np.log(p) + (1 - p) * np.log1p(-p)).sum()


@pytest.mark.parametrize("kind", [mf.Bernoulli, mf.Ising])
def test_nothing_but_pairs_is_missing_on_trees_of_binary_units(kind):
    """At the exact means of a star the corrected free energy is the exact one."""
    rng = np.random.default_rng(1)
    low, high = kind.support
    weights = 1.5 * rng.normal(size=(6, 1))
    model = mf.RBM(weights, kind(0.5 * rng.normal(size=6)), kind(np.array([0.3])))
    exact = mf.exact(model)
    visible, hidden = exact.mean
    var = [(high - m) * (m - low) for m in exact.mean]
    second_order = visible @ weights @ hidden + var[0] @ weights**2 @ var[1] / 2
    for prior, m in zip(model.layers, exact.mean, strict=True):
        second_order += prior.field @ m + entropy((m - low) / (high - low))
    weights = weights * (high - low) ** 2
    p = [(m - low) / (high - low) for m in exact.mean]
    rings, by_var = _rings(weights, [q[None] * (1 - q[None]) for q in p], 1e-8, 200)
    pairs, force = _pairs(weights, *p)
    missing = exact.log_partition - second_order
    assert abs(missing) > 0.01
    assert rings[0] + pairs == pytest.approx(missing, rel=1e-6)
    # To which the response is added, as if TAP had these means.
    force = force + (1 - 2 * np.concatenate(p)) * by_var[0]
    response = _response(weights, *p, force)
    moments = (tuple(part[None] for part in parts) for parts in (exact.mean, var))
    whole = log_partition_correction(model, *moments, tol=1e-8)[0]
    assert whole == pytest.approx(missing + response * (response < abs(missing)), rel=1e-6)


def test_forces_are_derivatives():
    rng = np.random.default_rng(2)
    weights, means = 2 * rng.normal(size=(4, 3)), rng.uniform(0.1, 0.9, 7)

    def value(means):
        visible, hidden = means[:4], means[4:]
        var = [(q * (1 - q))[None] for q in (visible, hidden)]
        return np.array(
            [_rings(weights, var, 1e-9, 300)[0][0], _pairs(weights, visible, hidden)[0]]
        )

    step = 1e-4 * np.eye(7)
    numeric = np.array([(value(means + s) - value(means - s)) / 2e-4 for s in step]).T
    var = [(q * (1 - q))[None] for q in (means[:4], means[4:])]
    rings = (1 - 2 * means) * _rings(weights, var, 1e-9, 300)[1][0]
    np.testing.assert_allclose(rings, numeric[0], atol=1e-5)
    np.testing.assert_allclose(_pairs(weights, means[:4], means[4:])[1], numeric[1], atol=1e-6)


@pytest.mark.parametrize("strength", [0.5, 0.8])
def test_log_partitions_of_spins_with_patterns_come_closer(strength):
    """Where many couplings act together."""
    rng = np.random.default_rng(0)
    left, right = rng.choice([-1, 1], (60, 2)), rng.choice([-1, 1], (12, 2))
    weights = strength * left @ right.T / np.sqrt(60 * 12)
    model = mf.RBM(weights, mf.Ising(np.zeros(60)), mf.Ising(np.zeros(12)))
    assert remaining(model, np.ones((1, 60))) < 1 / 20


def test_log_partitions_of_spins_with_independent_couplings_come_closer():
    """Between which rings of Gaussians alone would be worse than TAP."""
    rng = np.random.default_rng(0)
    weights = 0.1 * rng.normal(size=(60, 12))
    visible, hidden = (mf.Ising(0.2 * rng.normal(size=n)) for n in (60, 12))
    assert remaining(mf.RBM(weights, visible, hidden), np.ones((1, 60))) < 1 / 3


def remaining(model, starts):
    """Share of the error of TAP that is left."""
    solution = mf.tap(model, starts)
    off = solution.log_partition - mf.exact(model, averages=False).log_partition
    return abs(off + log_partition_correction(model, solution.mean, solution.var))[0] / abs(off)[0]


def test_the_response_is_that_of_tap():
    """A small force, as fields on the units, raises TAP's maximum by the slope and the response."""
    rng = np.random.default_rng(3)
    weights, force = 0.5 * rng.normal(size=(6, 5)), 1e-3 * rng.normal(size=11)
    model = mf.RBM(weights, mf.Bernoulli(rng.normal(size=6)), mf.Bernoulli(rng.normal(size=5)))
    options = {"tol": 1e-13, "max_iter": 5000}
    plain = mf.tap(model, **options)
    pushed = mf.tap(model, field=(force[:6], force[6:]), **options)
    rise = pushed.log_partition - plain.log_partition - force @ np.concatenate(plain.mean)
    assert _response(weights, *plain.mean, force) == pytest.approx(rise, rel=0.01)


def test_fixed_units_and_strong_couplings_do_no_harm():
    rng = np.random.default_rng(2)
    model = mf.RBM(2 * rng.normal(size=(6, 5)), mf.Ising(np.zeros(6)), mf.Ising(np.zeros(5)))
    visible, hidden = np.zeros((2, 6)), np.zeros((2, 5))
    visible[0, :3] = hidden[0, 1:] = 1
    var = 1 - visible**2, 1 - hidden**2
    added = log_partition_correction(model, (visible, hidden), var)
    assert np.isfinite(added).all()
    smaller = mf.RBM(model.weights[3:, :1], mf.Ising(np.zeros(3)), mf.Ising(np.zeros(1)))
    one = log_partition_correction(
        smaller, (visible[:1, 3:], hidden[:1, :1]), (var[0][:1, 3:], var[1][:1, :1])
    )
    np.testing.assert_allclose(added[0], one[0], rtol=1e-3)
    for strength in (-500, 500):
        model = mf.RBM(np.full((6, 5), strength), mf.Ising(np.zeros(6)), mf.Ising(np.zeros(5)))
        assert np.isfinite(log_partition_correction(model, (visible, hidden), var)).all()
