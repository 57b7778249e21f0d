"""Models whose couplings outgrow their priors have no moments: no solver may call them solved."""

import numpy as np
import pytest

import fastmf as mf

BOTH_TYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def prior(kind, n, dtype):
    """Units of precision 1 that reach infinity on one side or on both."""
    zero = np.zeros(n, dtype)
    if kind == "gaussian":
        return mf.Gaussian(zero, zero + 1)
    if kind == "rectified":
        return mf.TruncatedGaussian(zero, zero + 1, zero, zero + np.inf)
    if kind == "rectified below":
        return mf.TruncatedGaussian(zero, zero + 1, zero - np.inf, zero)
    return mf.TruncatedGaussBernoulli(zero, zero + 1, zero, zero, zero + np.inf)


def rbm(visible, hidden, norm, dtype=np.float64, shape=(1, 1)):
    """Equal couplings of this spectral norm: below 1, all moments exist."""
    weights = np.full(shape, norm / np.sqrt(shape[0] * shape[1]), dtype)
    return mf.RBM(weights, prior(visible, shape[0], dtype), prior(hidden, shape[1], dtype))


def assert_diverged(result):
    assert not np.any(result.converged)
    assert all(message.startswith("diverged") for message in np.atleast_1d(result.message))
    assert np.all(result.log_partition == -np.inf)
    parts = result.mean if isinstance(result.mean, tuple) else (result.mean,)
    assert all(np.isfinite(part).all() for part in parts)


PAIRS = [
    ("rectified", "gaussian", 1.5),
    ("rectified", "rectified", 1.5),
    ("rectified below", "rectified", -1.5),
]
SPIKE = pytest.param("spike", "rectified", 5.0, marks=pytest.mark.slow)


@BOTH_TYPES
@pytest.mark.parametrize("schedule", ["blocked", "sequential"])
@pytest.mark.parametrize("visible, hidden, norm", [*PAIRS, SPIKE])
def test_naive_mean_field_diverges(visible, hidden, norm, schedule, dtype):
    model = rbm(visible, hidden, norm, dtype)
    for options in ({}, {"acceleration": False}, {"damping": 0.5}):
        result = mf.tap(model, order=1, schedule=schedule, max_iter=5000, **options)
        assert_diverged(result)


@pytest.mark.parametrize(
    "solve", [mf.tap, mf.adaptive_tap, pytest.param(mf.relaxed_bp, marks=pytest.mark.slow)]
)
def test_solvers_with_reaction_terms_diverge(solve):
    """Of many units, each coupling is so weak that all variances exist; the means grow."""
    model = rbm("rectified", "gaussian", 1.5, shape=(20, 20))
    if solve is mf.adaptive_tap:
        result = solve(model, field=np.ones(20))
        assert not result.converged
    else:
        assert_diverged(solve(model, max_iter=5000))


def test_fully_visible_machine_diverges():
    couplings = 1.5 / 4 * (1 - np.eye(5))
    model = mf.BoltzmannMachine(couplings, prior("rectified", 5, np.float64))
    assert_diverged(mf.tap(model, order=1, max_iter=5000))


def test_means_beyond_the_range_of_a_unit_diverge():
    """The moments exist; a rectified unit cannot tell them, and must not make up others."""
    model = rbm("rectified", "gaussian", 0.1)
    for order in (1, 2):
        assert_diverged(mf.tap(model, field=np.full(1, 1e51), order=order))
        assert mf.tap(model, field=np.full(1, 1e40), order=order).converged
    line = mf.SparseLinearModel(np.eye(2), np.full(2, 1e51), 1.0, prior("rectified", 2, float))
    for schedule in ("parallel", "sequential", "convergent"):
        assert not mf.expectation_propagation(line, schedule=schedule, max_iter=30).converged


@BOTH_TYPES
@pytest.mark.parametrize("visible, hidden", [pair[:2] for pair in PAIRS])
def test_models_at_the_border_are_solved(visible, hidden, dtype):
    """Below the border of stability, what is called solved solves the equations."""
    sign = -1 if "below" in visible else 1
    model = rbm(visible, hidden, sign * 0.99, dtype, shape=(3, 2))
    result = mf.tap(model, order=1, max_iter=10000)
    assert result.converged and np.isfinite(result.log_partition)
    (v, h), w = (part.astype(float) for part in result.mean), model.weights.astype(float)
    scale = max(abs(v).max(), abs(h).max())
    assert scale < 1e4
    expected_v = prior(visible, 3, np.float64).moments(w @ h, 0.0)[0]
    expected_h = prior(hidden, 2, np.float64).moments(v @ w, 0.0)[0]
    tol = 1e-7 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(v, expected_v, atol=tol * scale)
    np.testing.assert_allclose(h, expected_h, atol=tol * scale)


def test_repulsion_keeps_rectified_units_finite():
    """On the positive quadrant couplings of any size may repel: order by order it is solved."""
    model = mf.RBM(-rbm("rectified", "rectified", 1.2).weights, *[prior("rectified", 1, float)] * 2)
    x = np.linspace(0, 12, 4001)
    weight = np.exp(-1.2 * np.outer(x, x) - x[:, None] ** 2 / 2 - x**2 / 2)
    truth = (weight.sum(1) @ x) / weight.sum()
    result = mf.tap(model, order=1)
    assert result.converged
    assert result.mean[0][0] == pytest.approx(truth, rel=0.2)
