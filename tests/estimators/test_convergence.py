import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from fastmf.estimators import GeneralizedRBM
from fastmf.estimators._convergence import (
    warn_if_below_independent,
    warn_if_diverged,
    warn_unless_converged,
)
from fastmf.evaluation import log_likelihood
from fastmf.models import RBM, exact
from fastmf.priors import Bernoulli, Gaussian


@pytest.mark.parametrize("gradient", ["tap", "pcd"])
def test_learning_that_diverges_to_finite_couplings_is_told(gradient):
    causes = np.random.default_rng(0).random((100, 2)) < 0.5
    X = np.repeat(causes, 4, axis=1).astype(float)
    rbm = GeneralizedRBM(
        4, gradient=gradient, learning_rate=100.0, n_epochs=10, batch_size=20, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="learning has diverged: .* Use a smaller"):
        rbm.fit(X)
    truth = log_likelihood(rbm.model_, X, exact(rbm.model_, averages=False).log_partition).mean()
    assert truth < -8 * np.log(2) - 10


def test_diverged_is_less_probable_than_uniform_values():
    binary = RBM(np.zeros((8, 4)), Bernoulli(np.zeros(8)), Bernoulli(np.zeros(4)))
    uniform = -8 * np.log(2) / 12  # nats a unit, with which learning may begin
    warn_if_diverged(binary, {"log_likelihood": [2 * uniform, uniform]})
    warn_if_diverged(binary, {})
    with pytest.warns(ConvergenceWarning, match="-7 nats a row, is below .* at random, -6"):
        warn_if_diverged(binary, {"log_likelihood": [uniform, 1.2 * uniform]})
    # Of real values none is uniform.
    real = RBM(np.zeros((8, 4)), Gaussian(np.zeros(8), np.ones(8)), Bernoulli(np.zeros(4)))
    warn_if_diverged(real, {"log_likelihood": [-1e9]})


def test_rows_that_have_not_converged_are_counted():
    warn_unless_converged(np.ones(3, bool))
    with pytest.warns(ConvergenceWarning, match="of 2 of 3 rows did not converge"):
        warn_unless_converged(np.array([True, False, False]))


def test_a_likelihood_that_is_unknown_is_told():
    real = RBM(np.zeros((8, 4)), Gaussian(np.zeros(8), np.ones(8)), Bernoulli(np.zeros(4)))
    warn_if_below_independent(real, {"log_likelihood": [-1.0]}, -12.1)
    warn_if_below_independent(real, {"log_likelihood": [-np.inf]}, None)
    with pytest.warns(ConvergenceWarning, match="of the last epoch is unknown"):
        warn_if_below_independent(real, {"log_likelihood": [-1.0, -np.inf]}, -12.0)
    with pytest.warns(ConvergenceWarning, match="-12 nats a row, is below .* -11"):
        warn_if_below_independent(real, {"log_likelihood": [-1.0]}, -11.0)
