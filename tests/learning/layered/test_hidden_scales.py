"""Hidden units without bounds next to bounded ones: their scale is free, and steps have it."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import logsumexp

import fastmf as mf
from fastmf.estimators.layered._learning import hidden_prior
from fastmf.evaluation import log_likelihood
from fastmf.learning.layered.exact_averages import exact_averages
from fastmf.learning.layered.gradients import (
    MEAN_SCALE,
    free_units,
    natural_of_scales,
    products_of_units,
    with_held_precisions,
)
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import train

HALF_LINE = mf.TruncatedGaussian(0.0, 1.0, 0.0, np.inf)
KINDS = {
    "gaussian": "gaussian",
    "rectified": HALF_LINE,
    "spike and slab": "gauss_bernoulli",
    "rectified slab": mf.TruncatedGaussBernoulli(0.0, 1.0, 0.0, 0.0, np.inf),
}


def gaussian(n, precision=1.0):
    return mf.Gaussian(np.zeros(n), np.full(n, precision))


def binary(n):
    return mf.Bernoulli(np.zeros(n))


def two_groups(n_rows, n_columns):
    """Rows of which all columns are 1 with probability 0.8, or all with 0.2."""
    rng = np.random.default_rng(1)
    likely = np.where(rng.random((n_rows, 1)) < 0.5, 0.8, 0.2)
    return (rng.random((n_rows, n_columns)) < likely).astype(float)


def test_units_without_bounds_between_bounded_ones_are_free():
    half = mf.TruncatedGaussian(np.zeros(2), np.ones(2), np.zeros(2), np.array([1.0, np.inf]))
    mixed = mf.Concatenated(binary(1), half)
    layers = binary(4), mixed, binary(2), gaussian(2)
    expected = [[False] * 4, [False, False, True], [False] * 2, [True] * 2]
    assert [units.tolist() for units in free_units(layers)] == expected
    # Next to real columns, and of visible units, precisions matter.
    assert not any(map(np.any, free_units((gaussian(4), gaussian(2)))))
    assert not any(map(np.any, free_units((gaussian(4), binary(2)))))
    assert not any(map(np.any, free_units((binary(4), gaussian(2), half))))


def test_steps_have_the_inverse_of_the_covariance_of_units():
    rng = np.random.default_rng(0)
    layers, x = (binary(5), gaussian(2, 4.0)), rng.normal(size=(5, 2))
    mean, var, means = rng.normal(size=(30, 2)), rng.random((30, 2)), np.full(5, 0.5)
    products = products_of_units(free_units(layers), [(mean, var)])
    covariance = np.cov(mean.T, bias=True) + np.diag(var.mean(0) + 1 / 4)
    expected = np.linalg.solve(covariance, x.T).T
    scales = natural_of_scales(layers, [means, mean.mean(0)], products, free_units(layers), True)
    np.testing.assert_allclose(scales.of_couplings(0, x), expected, rtol=1e-12)
    fields = scales.of_fields((binary(5), mf.Gaussian(x[0], x[1])))[1].field
    np.testing.assert_allclose(fields, expected[0], rtol=1e-12)
    # Where visible units are not counted from their means, these are damped.
    scales = natural_of_scales(layers, [means, mean.mean(0)], products, free_units(layers), False)
    damped = np.linalg.solve(np.eye(5) + np.outer(means, means) / MEAN_SCALE, expected)
    np.testing.assert_allclose(scales.of_couplings(0, x), damped, rtol=1e-12)

    # Other units of the layer keep their steps.
    layers = binary(5), mf.Concatenated(binary(1), gaussian(2, 4.0))
    mean, var, x = (np.hstack([part[:, :1], part]) for part in (mean, var, x))
    scales = natural_of_scales(layers, [means, mean.mean(0)], products, free_units(layers), True)
    np.testing.assert_allclose(scales.of_couplings(0, x), np.hstack([x[:, :1], damped]), rtol=1e-12)
    gradients = mf.Bernoulli(x[0]), mf.Concatenated(mf.Bernoulli(x[0, :1]), mf.Gaussian(*x[:2, 1:]))
    moved = scales.of_fields((binary(5), gradients[1]))[1]
    np.testing.assert_array_equal(moved.parts[0].field, x[0, :1])
    np.testing.assert_allclose(moved.parts[1].field, expected[0], rtol=1e-12)
    held = with_held_precisions(layers, gradients, free_units(layers))[1]
    np.testing.assert_array_equal(held.parts[1].precision, [0, 0])


@pytest.mark.parametrize(
    ("kind", "gradient"),
    [("gaussian", "cd"), ("gaussian", "pcd"), ("rectified", "pcd"), ("spike and slab", "cd")],
)
def test_machines_of_another_scale_learn_the_same(kind, gradient):
    """With h -> 4 h, all that is computed is a power of 2 times what it was."""
    rng, n = np.random.default_rng(0), 4
    weights, field, one = 0.3 * rng.normal(size=(12, n)), rng.normal(size=n), np.ones(n)
    make = {
        "gaussian": lambda a: mf.Gaussian(field / a, one / a**2),
        "rectified": lambda a: mf.TruncatedGaussian(field / a, one / a**2, 0 * one, np.inf * one),
        "spike and slab": lambda a: mf.GaussBernoulli(field / a, one / a**2, field),
    }[kind]
    settings = LayeredSettings(gradient=gradient, batch_size=25, n_epochs=3, l2=0.0)
    X = two_groups(100, 12)
    found = [
        train(mf.RBM(weights / a, binary(12), make(a)), X, settings, seed=0).model for a in (1, 4)
    ]
    assert abs(found[0].weights - weights).max() > 0.05
    np.testing.assert_allclose(4 * found[1].weights, found[0].weights, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found[1].visible.field, found[0].visible.field, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(4 * found[1].hidden.field, found[0].hidden.field, atol=1e-8)
    np.testing.assert_array_equal(found[0].hidden.precision, one)


# Nats a row above independent units that are reached; 57 are the most.
LEAST = {"gaussian": 50, "rectified": 25, "spike and slab": 1.5, "rectified slab": 1.5}


@pytest.mark.parametrize("kind, gradient", [
    ("spike and slab", "auto"),
    *(pytest.param(k, "auto", marks=pytest.mark.slow) for k in ("rectified", "rectified slab")),
    *(pytest.param("gaussian", g, marks=pytest.mark.slow) for g in ("auto", "cd", "tap")),
])  # fmt: skip
def test_hundreds_of_columns_that_agree_are_learned(kind, gradient):
    """Steps of binary units diverge here: the variance of hidden units becomes 100 times that."""
    X = two_groups(300, 300)
    machine = mf.GeneralizedRBM(5, hidden=KINDS[kind], gradient=gradient, random_state=0).fit(X)
    annealed = mf.evaluation.annealed_importance_sampling(
        machine.model_, n_steps=400, data=X[:100], rng=0
    )
    # From both sides: chains that begin at the data are annealed to a log-partition above.
    assert abs(annealed.log_partition - annealed.reverse) < 0.3
    upper = max(annealed.log_partition, annealed.reverse)
    columns = machine.pointwise_
    independent = columns.log_prob(X).sum(1).mean() - columns.log_partition(0.0, 0.0).sum()
    assert log_likelihood(machine.model_, X, upper).mean() > independent + LEAST[kind]
    np.testing.assert_array_equal(machine.hidden_.precision, 1)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind != "gaussian")) for kind in KINDS]
)
def test_likelihoods_come_near_to_that_of_the_mixture_behind_the_rows(kind):
    rng = np.random.default_rng(2)
    group, draws = rng.integers(3, size=2000), rng.random((2000, 10))
    p = rng.choice([0.1, 0.9], size=(3, 10))
    X = (draws < p[group]).astype(float)

    def log_probabilities(p):
        return X @ np.log(p) + (1 - X) @ np.log(1 - p)

    mixture = logsumexp(log_probabilities(p.T) - np.log(3), axis=1).mean()
    independent = log_probabilities(X.mean(0)).mean()
    machine = mf.GeneralizedRBM(4, hidden=KINDS[kind], gradient="pcd", random_state=0).fit(X)
    total = exact_averages(machine.model_).log_partition
    found = log_likelihood(machine.model_, X, total).mean()
    assert found > independent + 0.8 * (mixture - independent) > independent + 1


@pytest.mark.parametrize("hidden", [("gaussian", "bernoulli"), ("bernoulli", HALF_LINE)])
def test_deep_machines_hold_the_scale_of_a_layer(hidden):
    X = two_groups(200, 100)
    machine = mf.DeepBoltzmannMachine((4, 3), hidden=hidden, n_epochs=5, random_state=0).fit(X)
    assert all(np.isfinite(w).all() and abs(w).max() < 10 for w in machine.model_.couplings)
    for layer in machine.model_.layers:
        np.testing.assert_array_equal(getattr(layer, "precision", 1), 1)


def test_exact_gradients_do_not_let_precisions_escape_decay():
    X = two_groups(300, 8)
    machine = mf.GeneralizedRBM(2, hidden="gaussian", n_epochs=100, random_state=0).fit(X)
    assert machine.gradient_ == "exact"
    np.testing.assert_array_equal(machine.hidden_.precision, 1)


@pytest.mark.parametrize(
    ("kind", "gradient"),
    [("gaussian", "cd"), ("rectified", "pcd"), ("spike and slab", "tap"), ("gaussian", "tap")],
)
def test_sparse_rows_take_the_steps_of_dense_ones(kind, gradient):
    rng = np.random.default_rng(0)
    X = two_groups(100, 40) * (rng.random((100, 40)) < 0.3)
    hidden = hidden_prior(KINDS[kind], 4, np.float64)
    model = mf.RBM(0.1 * rng.normal(size=(40, 4)), binary(40), hidden)
    settings = LayeredSettings(gradient=gradient, batch_size=20, n_epochs=3, l1=0.001)
    found, expected = (train(model, rows, settings, seed=0).model for rows in (csr_array(X), X))
    assert abs(expected.weights - model.weights).max() > 0.02
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-8, atol=1e-10)
    for layer, other in zip(found.layers, expected.layers, strict=True):
        np.testing.assert_allclose(layer, other, rtol=1e-8, atol=1e-10)
