import numpy as np
import pytest

from fastmf.learning.layered.exact_averages import MAX_SUMMED_STATES
from fastmf.learning.layered.settings import (
    FEW_ROWS,
    MANY_ROWS,
    LayeredSettings,
    gradient_for,
    steps_for,
    weight_scale_for,
)
from fastmf.models import DBM, RBM
from fastmf.priors import Bernoulli, GaussBernoulli, Gaussian, TruncatedGaussian


@pytest.mark.parametrize("option, value, error", [
    ("gradient", "newton", ValueError), ("starts", "zeros", ValueError),
    ("learning_rate", -0.1, ValueError), ("learning_rate", np.nan, ValueError),
    ("learning_rate", np.inf, ValueError), ("learning_rate", (0.1, -1), ValueError),
    ("learning_rate", (0.1, 0.2, "cubic"), ValueError), ("learning_rate", (0.1,), ValueError),
    ("learning_rate", "fast", TypeError), ("learning_rate", None, TypeError),
    ("momentum", 1.0, ValueError), ("momentum", True, TypeError), ("l2", -1, ValueError),
    ("l1", -1e-9, ValueError), ("n_epochs", -1, ValueError), ("n_epochs", 2.5, TypeError),
    ("batch_size", 0, ValueError), ("n_starts", 0, ValueError), ("n_sweeps", 0, ValueError),
    ("damping", 1.0, ValueError), ("early_stopping", 0, ValueError),
    ("early_stopping", "yes", TypeError), ("monitor_rows", "all", TypeError),
])  # fmt: skip
def test_options_out_of_range(option, value, error):
    with pytest.raises(error, match=option):
        LayeredSettings(**{option: value})


def machine(visible, hidden):
    return RBM(np.zeros((len(visible.field), len(hidden.field))), visible, hidden)


@pytest.mark.parametrize(
    ("visible", "hidden", "expected"),
    [
        (Bernoulli(np.zeros(5)), Bernoulli(np.zeros(3)), "exact"),
        (Bernoulli(np.zeros(50)), Bernoulli(np.zeros(13)), "tap"),
        (TruncatedGaussian(np.zeros(5), 1.0, 0.0, 1.0), Bernoulli(np.zeros(3)), "exact"),
        (TruncatedGaussian(np.zeros(5), 1.0, 0.0, 1.0), Bernoulli(np.zeros(13)), "tap"),
        (Gaussian(np.zeros(5), 1.0), Bernoulli(np.zeros(12)), "exact"),
        (Gaussian(np.zeros(5), 1.0), Bernoulli(np.zeros(13)), "pcd"),
        (Gaussian(np.zeros(50), 1.0), Gaussian(np.zeros(40), 1.0), "exact"),
        (Bernoulli(np.zeros(50)), Gaussian(np.zeros(40), 1.0), "pcd"),
        (GaussBernoulli(np.zeros(5), 1.0, 0.0), Bernoulli(np.zeros(3)), "exact"),
    ],
)
def test_small_machines_are_exact(visible, hidden, expected):
    assert gradient_for(machine(visible, hidden), 100) == expected


def test_likelihoods_that_may_have_no_maximum_are_not_maximised():
    small = machine(Bernoulli(np.zeros(5)), Bernoulli(np.zeros(3)))
    assert gradient_for(small, 100, 0.0) == "tap"
    assert gradient_for(small, 100, 0.01) == "exact"


def test_many_rows_and_deep_machines_are_learned_by_chains():
    real, binary = Gaussian(np.zeros(50), 1.0), Bernoulli(np.zeros(3))
    assert gradient_for(machine(real, binary), MAX_SUMMED_STATES**2) == "pcd"
    deep = DBM((np.zeros((50, 3)), np.zeros((3, 3))), (real, binary, binary))
    assert gradient_for(deep, 100) == "pcd"
    deep = DBM((np.zeros((3, 3)), np.zeros((3, 3))), (binary, binary, binary))
    assert gradient_for(deep, 100) == "tap"


@pytest.mark.parametrize("options, expected", [
    ({}, FEW_ROWS), ({"gradient": "mean_field", "starts": "noise"}, FEW_ROWS),
    ({"gradient": "pcd"}, MANY_ROWS), ({"gradient": "exact"}, MANY_ROWS),
    ({"starts": "persistent"}, MANY_ROWS), ({"preconditioning": 0.5}, MANY_ROWS),
])  # fmt: skip
def test_mean_field_of_discrete_units_takes_few_rows_in_a_step(options, expected):
    binary, real = Bernoulli(np.zeros(5)), Gaussian(np.zeros(5), 1.0)
    settings = LayeredSettings(**options)
    assert steps_for(machine(binary, binary), settings) == expected
    assert steps_for(machine(binary, binary), settings, 0.1)["l2"] == 0.1 * expected["l2"]
    assert steps_for(machine(real, binary), settings) == MANY_ROWS
    assert steps_for(machine(binary, real), settings) == MANY_ROWS
    deep = DBM((np.zeros((5, 5)), np.zeros((5, 5))), (binary, binary, binary))
    assert steps_for(deep, settings) == MANY_ROWS


def test_first_weights_of_real_columns_leave_a_distribution_at_any_size():
    binary, many = Bernoulli(np.zeros(20)), Bernoulli(np.zeros(50))
    assert weight_scale_for(many, binary, given=False) == 1e-3
    assert weight_scale_for(Gaussian(np.zeros(50), 9.0), binary, given=True) == 1e-3
    for n, m in ((2, 300), (300, 2), (100, 100)):
        hidden = Bernoulli(np.zeros(m))
        scale = weight_scale_for(Gaussian(np.zeros(n), 1.0), hidden, given=False)
        weights = np.random.default_rng(0).normal(scale=scale, size=(n, m))
        assert 0.2 < np.linalg.norm(weights, 2) < 0.6


def test_first_weights_of_hidden_units_without_bounds_have_their_scale():
    binary, real = Bernoulli(np.zeros(72)), Gaussian(np.zeros(28), np.repeat([1.0, 25.0], 14))
    np.testing.assert_allclose(weight_scale_for(binary, real, given=True)[[0, -1]], [0.03, 0.15])
    wide = TruncatedGaussian(np.zeros(72), 1.0, 0.0, 255.0)
    assert weight_scale_for(wide, real, given=True) == 1e-3
    # Next to real columns the scale of hidden units is not free.
    scale = weight_scale_for(Gaussian(np.zeros(72), 1.0), real, given=False)
    np.testing.assert_allclose(scale, 0.03)
