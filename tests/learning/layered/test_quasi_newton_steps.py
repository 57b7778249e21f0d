"""Maximum likelihood by quasi-Newton steps: against SciPy's L-BFGS and closed forms."""

import numpy as np
import pytest
from differences import differences
from scipy.optimize import minimize
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.learning.layered.quasi_newton_steps import Objective, QuasiNewtonSteps, variables_of
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.quasi_newton import direction_of
from fastmf.learning.training.trainer import train

RNG = np.random.default_rng(0)
CLUSTERS = RNG.integers(0, 2, (200, 2)) @ RNG.normal(size=(2, 4)) + 0.4 * RNG.normal(size=(200, 4))


def machine(X, hidden=None, n=3, visible=None):
    hidden = mf.Bernoulli(np.zeros(n)) if hidden is None else hidden
    visible = mf.Gaussian.from_data(X) if visible is None else visible
    weights = 1e-2 * np.random.default_rng(1).normal(size=(X.shape[1], n))
    return mf.RBM(weights.astype(X.dtype), visible, hidden)


def maximise(model, X, n_epochs, weights=None, **options):
    settings = LayeredSettings(
        gradient="exact", n_epochs=n_epochs, batch_size=len(X), **{"l2": 0.0} | options
    )
    return train(model, X, QuasiNewtonSteps(settings, X, weights), seed=0)


def test_gradients_are_finite_differences_with_weights_and_penalties():
    model = mf.RBM(
        RNG.normal(size=(4, 3)), mf.Gaussian.from_data(CLUSTERS), mf.Bernoulli(np.zeros(3))
    )
    objective = Objective(CLUSTERS, RNG.random(200), 0.3)
    point = objective.at(model)
    found = differences(lambda x: objective.near(model, x).value, point.variables)
    np.testing.assert_allclose(point.gradient, found, rtol=1e-5, atol=1e-7)


def test_steps_are_as_good_as_those_of_scipy():
    model = machine(CLUSTERS)
    objective = Objective(CLUSTERS, None, 0.0)

    def negative(variables):
        point = objective.near(model, variables)
        return -point.value, -point.gradient

    start, options = variables_of(model), {"maxiter": 40}
    expected = minimize(negative, start, jac=True, method="L-BFGS-B", options=options)
    assert objective.at(maximise(model, CLUSTERS, 40).model).value > -expected.fun - 0.1
    # Every step rises, on all rows.
    values = [objective.at(maximise(model, CLUSTERS, n).model).value for n in (1, 2, 5, 10, 20)]
    assert (np.diff(values) > 0).all()


@pytest.mark.parametrize("kind", ["spike", "bounded", "float32", "sparse"])
def test_other_units_and_rows_rise(kind):
    X = np.where(RNG.random(CLUSTERS.shape) < 0.5, 0, CLUSTERS)
    visible = mf.GaussBernoulli.from_data(X) if kind in ("spike", "sparse") else None
    if kind == "bounded":
        visible = mf.TruncatedGaussian.from_data(X)
    if kind == "float32":
        X = X.astype(np.float32)
    model = machine(X, visible=visible)
    rows = csr_array(X) if kind == "sparse" else X
    settings = LayeredSettings(gradient="exact", n_epochs=30, batch_size=200, l2=0.0)
    found = train(model, rows, QuasiNewtonSteps(settings, rows), seed=0).model
    assert found.dtype == X.dtype
    objective = Objective(X, None, 0.0)
    assert objective.at(found).value > objective.at(model).value + 0.05


def test_weights_are_repeated_rows():
    weights = RNG.integers(0, 3, 200)
    one = maximise(machine(CLUSTERS), CLUSTERS, 20, weights.astype(float))
    other = maximise(machine(CLUSTERS), np.repeat(CLUSTERS, weights, 0), 20)
    np.testing.assert_allclose(one.model.weights, other.model.weights, rtol=1e-5, atol=1e-6)


def test_columns_explained_without_an_error_do_not_run_away():
    """Two values in a column: with a hidden unit for them the likelihood has no bound."""
    X = np.c_[RNG.integers(0, 2, 200), RNG.normal(size=200)].astype(float)
    model = maximise(machine(X, n=1), X, 100).model
    assert np.isfinite(model.weights).all() and model.visible.precision.max() <= 1e6


def test_log_weights_of_scores_that_do_not_occur_stay():
    rng = np.random.default_rng(6)
    X = np.minimum(3 * rng.integers(0, 2, (150, 1)) * rng.random((150, 3)).round(1), [2, 1, 2])
    X = X.round()
    allowed = np.arange(3) <= np.array([[2], [1], [2]])
    model = machine(X, n=1, visible=mf.Ordinal(np.where(allowed, 0.0, -np.inf)))
    found = maximise(model, X, 60).model
    np.testing.assert_array_equal(np.isfinite(found.visible.log_weights), allowed)

    # Without the unit of two scores as an ordinal one: the same model, other variables.
    parts = mf.Ordinal(np.zeros((1, 3))), mf.Bernoulli(np.zeros(1)), mf.Ordinal(np.zeros((1, 3)))
    other = maximise(machine(X, n=1, visible=mf.Concatenated(*parts)), X, 60).model
    log_likelihoods = [
        log_likelihood(m, X, mf.exact(m, averages=False).log_partition).mean()
        for m in (found, other)
    ]
    assert log_likelihoods[0] == pytest.approx(log_likelihoods[1], abs=1e-4)
    empty = mf.RBM(
        np.zeros((3, 1)), mf.Ordinal.from_data(X, pseudocount=0.0), mf.Bernoulli(np.zeros(1))
    )
    assert log_likelihoods[0] > log_likelihood(empty, X, mf.exact(empty).log_partition).mean() + 0.1


def test_the_direction_is_that_of_the_bfgs_inverse():
    rng = np.random.default_rng(0)
    factor, steps, gradient = rng.normal(size=(7, 7)), rng.normal(size=(3, 7)), rng.normal(size=7)
    changes = steps @ (factor @ factor.T + np.eye(7))
    inverse = steps[-1] @ changes[-1] / (changes[-1] @ changes[-1]) * np.eye(7)
    for s, y in zip(steps, changes, strict=True):
        left = np.eye(7) - np.outer(s, y) / (s @ y)
        inverse = left @ inverse @ left.T + np.outer(s, s) / (s @ y)
    np.testing.assert_allclose(direction_of(gradient, steps, changes), inverse @ gradient)
    np.testing.assert_array_equal(direction_of(gradient, steps[:0], changes[:0]), gradient)
