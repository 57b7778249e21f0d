"""Newton steps on log-messages against belief propagation, enumeration and calculus."""

import numpy as np
import pytest
from bp_models import centred, sigmoid

import fastmf as mf
from fastmf.inference.bp.newton_messages import _MessageSweep, confirmed, newton_fixed_point


def parts(model):
    return model.weights, model.visible.field, model.hidden.field


@pytest.mark.parametrize("shape", [(9, 7), (4, 12), (1, 1), (1, 6), (60, 30)])
def test_the_fixed_point_where_messages_converge(shape):
    model = centred(*shape, 2 / np.sqrt(sum(shape)))
    expected = mf.belief_propagation(model, tol=1e-14)
    found = newton_fixed_point(*parts(model), 1e-12)
    assert expected.converged and found.residual <= 1e-12 and found.n_iter < 40
    for log_odds, mean in zip(found.log_odds, expected.mean, strict=True):
        np.testing.assert_allclose(sigmoid(log_odds), mean, atol=1e-10)
    assert found.log_partition == pytest.approx(expected.log_partition, abs=1e-9)


@pytest.mark.parametrize("scale", [12, 80])
def test_exact_on_a_tree_with_large_weights(scale):
    rng = np.random.default_rng(1)
    weights = np.zeros((5, 4))
    for i, j in [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (4, 3), (0, 3)]:
        weights[i, j] = scale * rng.normal()
    model = mf.RBM(weights, *(mf.Bernoulli(5 * rng.normal(size=n)) for n in (5, 4)))
    found, truth = newton_fixed_point(*parts(model), 1e-9), mf.exact(model)
    assert found.log_partition == pytest.approx(truth.log_partition, abs=1e-8)
    for log_odds, mean in zip(found.log_odds, truth.mean, strict=True):
        np.testing.assert_allclose(sigmoid(log_odds), mean, atol=1e-8)


def test_the_steps_are_those_of_newton():
    """Along a small fraction of one, the change of a sweep falls by that fraction."""
    model, rng, step_size = centred(9, 7, 3.0), np.random.default_rng(0), 1e-6
    sweep = _MessageSweep(*parts(model), model.weights * rng.random((9, 7)))
    after = _MessageSweep(*parts(model), sweep.messages + step_size * sweep.step())
    derivative = (after.change - sweep.change) / step_size
    np.testing.assert_allclose(derivative, -sweep.change, atol=1e-4 * abs(sweep.step()).max())


def test_confirmed_makes_the_sweep():
    """The residual is small at a fixed point only, whatever the search claims."""
    model = centred(9, 7, 0.5)
    point = newton_fixed_point(*parts(model), 1e-12)
    found = confirmed(*parts(model), point._replace(residual=1.0))
    assert found.residual < 1e-10
    assert found.log_partition == pytest.approx(point.log_partition, abs=1e-12)
    moved = confirmed(*parts(model), point._replace(messages=point.messages**0.5, residual=0.0))
    assert moved.residual > 1e-3


def test_messages_that_underflow_are_confirmed_as_finite():
    model = centred(3, 2, 1.0)
    point = newton_fixed_point(*parts(model), 1e-12)
    for message in (0.0, np.inf, np.nan):
        found = confirmed(*parts(model), point._replace(messages=np.full((3, 2), message)))
        assert all(np.isfinite(x).all() for x in (*found.log_odds, found.messages))
