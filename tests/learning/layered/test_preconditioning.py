"""Steps along the gradient times an approximate inverse Fisher matrix."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from stripes import N_HIDDEN, N_VISIBLE, quick, start, stripes
from units_to_learn import sums_of

import fastmf as mf
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.learning.layered.gradients import preconditioner
from fastmf.learning.layered.step import Plan, train
from fastmf.learning.training.ascent import ModelParameters, initial_state
from fastmf.models import exact


def prepared(model, X, settings):
    state = initial_state(model)
    Plan(model, settings).prepare(state, X)
    return state


def test_preconditioners_are_damped_inverse_covariances():
    rng = np.random.default_rng(0)
    mean, var = rng.random((50, 7)), rng.random((50, 7))
    covariance = np.cov(mean.T, bias=True) + np.diag(var.mean(0))
    expected = np.linalg.inv(np.eye(7) + covariance / 0.3)
    found = preconditioner(mean, var, 0.3)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("unit", [mf.Bernoulli, mf.Ising])
def test_covariances_are_those_of_the_data_and_of_hidden_units_given_these(unit):
    model = start(unit(np.linspace(-1, 1, N_HIDDEN)))
    state = prepared(model, stripes(), quick(preconditioning=0.2))
    X, b = stripes(), stripes() @ model.weights
    mean, var = model.hidden.moments(b, 0.0)
    for found, covariance in zip(
        state.preconditioners,
        (np.cov(X.T, bias=True), np.cov(mean.T, bias=True) + np.diag(var.mean(0))),
        strict=True,
    ):
        expected = np.linalg.inv(np.eye(len(covariance)) + covariance / 0.2)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    # Once more: the mean of both for hidden units, and the same for visible ones.
    before = state.preconditioners
    Plan(model, quick(preconditioning=0.2)).prepare(state, X[:30])
    np.testing.assert_array_equal(state.preconditioners[0], before[0])
    assert not np.array_equal(state.preconditioners[1], before[1])


def test_covariances_are_those_of_the_rows_of_several_steps():
    """In an epoch of less than 5,000 rows, of all rows."""
    X, settings = stripes(4000), quick(preconditioning=0.2, n_epochs=1, batch_size=100)
    state = train(start(), X, settings, seed=0)
    expected = np.linalg.inv(np.eye(N_VISIBLE) + np.cov(X.T, bias=True) / 0.2)
    np.testing.assert_allclose(state.preconditioners[0], expected, rtol=1e-10)


def test_without_couplings_directions_are_those_of_the_natural_gradient():
    """Where layers are independent the Fisher matrix, summed over states, is a Kronecker product.

    With the covariances of the model itself and a small scale s, steps are s^2 times the inverse
    Fisher matrix times the gradient, of couplings between units counted from their means.
    """
    rng, scale, n, n_hidden = np.random.default_rng(0), 1e-7, 3, 2
    layers = [mf.Bernoulli(rng.normal(size=m)) for m in (n, n_hidden)]
    model = mf.RBM(np.zeros((n, n_hidden)), *layers)
    states = np.array(list(np.ndindex((2,) * (n + n_hidden))), float)
    log_p = states @ np.concatenate([layer.field for layer in layers])
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    deviations = states - p @ states
    products = (deviations[:, :n, None] * deviations[:, None, n:]).reshape(len(states), -1)
    fisher = (p * products.T) @ products
    gradient = rng.normal(size=(n, n_hidden))

    means = np.split(p @ states, [n])
    state = initial_state(model)
    state.preconditioners = tuple(
        np.linalg.inv(np.eye(len(m)) + np.diag(m * (1 - m)) / scale) for m in means
    )
    zero = [layer._replace(field=0 * layer.field) for layer in layers]
    direction = ModelParameters(couplings=(gradient.copy(),), layers=tuple(zero))
    sums = sums_of(means, direction)
    Plan(model, quick(momentum=0.0)).ascend(state, direction, sums, [], 1.0)
    moved = state.model
    expected = np.linalg.solve(fisher, gradient.ravel()).reshape(gradient.shape)
    np.testing.assert_allclose(moved.couplings[0] / scale**2, expected, rtol=1e-5)


def test_of_a_large_scale_steps_are_those_of_ordinary_gradients():
    options = dict(gradient="pcd", n_epochs=2, momentum=0.5, l2=0.01)
    found = train(start(), stripes(), quick(preconditioning=1e12, **options), seed=0)
    expected = train(start(), stripes(), quick(**options), seed=0)
    np.testing.assert_allclose(found.model.weights, expected.model.weights, rtol=1e-9)
    np.testing.assert_allclose(found.model.hidden.field, expected.model.hidden.field, rtol=1e-9)


def bright(n_rows=600):
    """Rows of pixels that are all bright or dark together, but for fine stripes."""
    rng = np.random.default_rng(0)
    fine = np.where(rng.random((n_rows, 1)) < 0.5, 1, -1) * np.resize([1, -1], 12)
    fields = 3 * rng.normal(size=(n_rows, 1)) + fine
    return (rng.random((n_rows, 12)) < 1 / (1 + np.exp(-fields))).astype(float)


@pytest.mark.slow
def test_details_beside_a_direction_of_large_variance_are_learned_sooner():
    """As many steps, each at the best of several rates, by exact likelihoods."""

    def best(rates, **options):
        weights = 0.1 * np.random.default_rng(1).normal(size=(12, 6))
        model = mf.RBM(weights, mf.Bernoulli(np.zeros(12)), mf.Bernoulli(np.zeros(6)))
        likelihoods = []
        for rate in rates:
            settings = quick(
                learning_rate=(rate, 0.0), gradient="pcd", n_sweeps=5, n_epochs=10, momentum=0.0,
                n_starts=200, batch_size=100, **options,
            )  # fmt: skip
            # Of one seed the difference is between 0 and 0.13 nats.
            machines = [train(model, bright(), settings, seed=seed).model for seed in range(3)]
            values = [log_likelihood(m, bright(), exact(m).log_partition).mean() for m in machines]
            likelihoods.append(np.mean(values))
        return max(likelihoods)

    assert best((3, 10), preconditioning=0.5) > best((0.3, 1, 3, 10)) + 0.05


def test_single_batches_are_preconditioned():
    rbm = mf.GeneralizedRBM(4, preconditioning=0.1, learning_rate=1.0, random_state=0)
    for batch in np.split(stripes(), 6):
        rbm.partial_fit(batch)
    assert rbm._state.preconditioners[0].shape == (N_VISIBLE, N_VISIBLE)
    assert np.isfinite(rbm.weights_).all()


@pytest.mark.parametrize(
    "X, options, problem",
    [
        (stripes(), {"preconditioning": 0.0}, "positive"),
        (stripes(), {"preconditioning": -1.0}, "must be in"),
        (stripes(), {"preconditioning": 0.5, "centred": False}, "centred=True"),
        (stripes(), {"preconditioning": 0.5, "hidden": "gaussian"}, "fields alone"),
        (csr_array(stripes() * (np.arange(60) == 0)[:, None]), {"preconditioning": 0.5}, "dense"),
    ],
)
def test_what_it_is_not_for_is_refused(X, options, problem):
    with pytest.raises(ValueError, match=problem):
        mf.GeneralizedRBM(3, n_epochs=1, random_state=0, **options).fit(X)


@pytest.mark.slow
def test_learning_stops_where_ordinary_learning_does():
    """At a maximum of the penalised likelihood, gradients are zero with preconditioners, too."""
    options = dict(gradient="tap", n_sweeps=30, batch_size=60, momentum=0.9, l2=0.05)
    learned = train(
        start(), stripes(), quick(n_epochs=400, learning_rate=0.5, **options), seed=0
    ).model
    again = train(
        learned, stripes(), quick(n_epochs=20, preconditioning=0.1, **options), seed=0
    ).model
    np.testing.assert_allclose(again.weights, learned.weights, rtol=1e-5)
