"""Machines in other units of measurement have the same distribution."""

import numpy as np
import pytest
from own_priors import Biased
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.learning.layered.data import scaling_of
from fastmf.priors._registry import REGISTRY

RNG = np.random.default_rng(0)
X = RNG.normal([3.0, -1e3, 0.01], [0.2, 50.0, 1e-4], (20, 3))
W = RNG.normal(size=(3, 2)) / X.std(0)[:, None]


@pytest.mark.parametrize("hidden", ["bernoulli", "spike", "bounded", "deep"])
@pytest.mark.parametrize("kind", ["gaussian", "spiked", "mixed"])
def test_log_likelihoods_differ_by_the_volume(kind, hidden):
    data = X.copy()
    visible = mf.Gaussian.from_data(data)
    if kind == "spiked":
        data[RNG.random(X.shape) < 0.4] = 0
        visible = mf.GaussBernoulli.from_data(data)
    if kind == "mixed":
        data[:, 0] = data[:, 0] > 3
        first, rest = mf.Bernoulli.from_data(data[:, :1]), mf.Gaussian.from_data(data[:, 1:])
        visible = mf.Concatenated(first, rest)
    if hidden == "deep":
        layers = visible, mf.Bernoulli(RNG.normal(size=2)), mf.Ising(RNG.normal(size=2))
        model = mf.DBM((W, RNG.normal(size=(2, 2))), layers)
        evaluate = lambda m, x: _log_weights(m, x) - mf.exact(m, averages=False).log_partition  # noqa: E731
    else:
        units = mf.Bernoulli(RNG.normal(size=2))
        model = mf.RBM(W, visible, units)
        if hidden == "spike":
            model = mf.RBM(
                1e-2 * W, visible, mf.GaussBernoulli([0.3, -0.2], [2e3, 3e3], [0.4, 1.0])
            )
        if hidden == "bounded":
            model = mf.RBM(
                W, visible, mf.TruncatedGaussian([0.3, -0.2], [-1.0, 2.0], -0.1, [0.5, 20.0])
            )
        evaluate = lambda m, x: (  # noqa: E731
            log_likelihood(m, x, 0.0) - (mf.exact(m)[0] if hidden == "bernoulli" else 0)
        )
    scaling = scaling_of(visible, model, False)
    y, of_y = scaling.data(data, np.float64), scaling.model(model)
    change = evaluate(of_y, y) - evaluate(model, data)
    volumes = np.array([scaling.log_volume(visible, row[None]) for row in y])
    difference = change - volumes
    # Of machines that are not normalised, up to a constant.
    spread = difference - (difference.mean() if hidden in ("spike", "bounded") else 0)
    np.testing.assert_allclose(spread, 0, atol=1e-7)
    again = scaling.undone(of_y)
    np.testing.assert_allclose(again.couplings[0], model.couplings[0], rtol=1e-10)
    for one, other in zip(evaluate(again, data), evaluate(model, data), strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-7)


def _log_weights(model, x):
    """Log of the sum over hidden states of a deep machine, by enumeration."""
    total = []
    for a in np.ndindex(2, 2):
        for b in np.ndindex(2, 2):
            states = (np.broadcast_to(h, (len(x), 2)) for h in (np.array(a), 2 * np.array(b) - 1))
            total.append(-model.energy(x, *(s.astype(float) for s in states)))
    return np.logaddexp.reduce(total)


def test_bounds_come_back_as_they_were():
    visible = mf.TruncatedGaussian(np.zeros(3), 1.0, [0.1, 0.0, -0.3], [0.7, 1.0, np.inf])
    model = mf.RBM(np.ones((3, 1)), visible, mf.Bernoulli([0.0]))
    scaling = scaling_of(visible, model, False)
    again = scaling.undone(scaling.model(model)).visible
    np.testing.assert_array_equal(again.lower, visible.lower)
    np.testing.assert_array_equal(again.upper, visible.upper)


@pytest.mark.parametrize("kind", ["truncated_gaussian", "truncated_gauss_bernoulli"])
def test_hidden_units_between_bounds_are_learned_at_the_deviation_of_binary_ones(kind):
    rest = {"log_odds": [0.4, -1.0]} if kind == "truncated_gauss_bernoulli" else {}
    bounds = {"lower": [0.0, -3.0], "upper": [100.0, 1.0]}
    prior = REGISTRY[kind](field=[0.0, 0.5], precision=[1e-3, -1.0], **rest, **bounds)
    visible = mf.Bernoulli(np.zeros(3))
    model = mf.RBM(RNG.normal(size=(3, 2)), visible, prior)
    scaling = scaling_of(visible, model, False)
    rows = np.eye(3)
    assert scaling.data(rows, np.float64) is rows  # as they are
    learned = scaling.model(model)
    np.testing.assert_allclose(learned.hidden.moments(0.0, 0.0)[1], 0.25, rtol=1e-9)
    before, after = (log_likelihood(one, rows, 0.0) for one in (model, learned))
    np.testing.assert_allclose(np.ptp(after - before), 0, atol=1e-9)
    again = scaling.undone(learned)
    np.testing.assert_allclose(again.weights, model.weights)
    assert again.hidden.upper.tolist() == [100.0, 1.0] and again.hidden.lower.tolist() == [0, -3]


def test_deep_machines_scale_both_sides_of_couplings():
    unit = lambda top: mf.TruncatedGaussian(np.zeros(2), 1e-6, 0.0, top)  # noqa: E731
    layers = mf.Bernoulli(np.zeros(3)), unit(1.0), unit(10.0)
    model = mf.DBM((RNG.normal(size=(3, 2)), RNG.normal(size=(2, 2))), layers)
    scaling = scaling_of(layers[0], model, False)
    states = RNG.integers(0, 2, (5, 3)) * 1.0, RNG.random((5, 2)), 10 * RNG.random((5, 2))
    scaled = map(np.divide, states, [np.ones(3), *scaling.hidden_scales])
    np.testing.assert_allclose(scaling.model(model).energy(*scaled), model.energy(*states))


def test_sparse_rows_stay_sparse():
    data = np.where(RNG.random(X.shape) < 0.5, 0, X)
    visible = mf.Gaussian.from_data(data)
    scaling = scaling_of(visible, mf.RBM(W, visible, mf.Bernoulli(np.zeros(2))), True)
    found = scaling.data(csr_array(data), np.float32)
    assert isinstance(found, csr_array) and found.dtype == np.float32
    np.testing.assert_allclose(found.toarray(), scaling.data(data, np.float32), rtol=1e-6)
    assert scaling.log_volume(visible, found) == pytest.approx(np.log(scaling.scale).sum())


def test_spikes_of_hidden_units_follow_offsets_and_users_units_have_none():
    visible = mf.Gaussian.from_data(X + 100)
    spike = mf.GaussBernoulli([0.0, 0.0], 1.0, 0.0)
    assert scaling_of(visible, mf.RBM(W, visible, spike), False).offset.all()
    assert not scaling_of(visible, mf.RBM(W, visible, spike), centred=False).of_data
    assert not scaling_of(visible, mf.RBM(W, visible, Biased(np.ones(2))), False).offset.any()
