import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from fastmf.estimators import GeneralizedRBM
from fastmf.estimators.common.runs import warn_of_likelihood, warn_unless_converged
from fastmf.evaluation import log_likelihood
from fastmf.inference.mean_field.lower_bound import lower_bound
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


@pytest.mark.parametrize("visible", [Bernoulli(np.zeros(8)), Gaussian(np.zeros(8), np.ones(8))])
def test_learning_must_end_above_independent_units_and_keep_half_of_its_gain(visible):
    """One rule for all units; values are nats a row for twelve units."""
    machine = RBM(np.zeros((8, 4)), visible, Bernoulli(np.zeros(4)))

    def after(*values, epoch=None, better=-np.inf):
        history = {"log_likelihood": list(np.array(values) / 12)}
        epoch = len(values) if epoch is None else epoch
        warn_of_likelihood(machine, history, -12.0, epoch, lambda _: better)

    after(-12.1)  # an epoch of small steps
    after(-12.0, -8.0, -9.9)
    after(-12.0, -8.0, -11.0, epoch=2)  # the second is kept
    after(-12.0, -11.95, -12.0)  # nothing was gained
    after(epoch=0)
    after(-12.2, better=-12.1)  # the estimate of the epoch was too low
    after(-12.0, -8.0, -10.1, better=-9.9)
    with pytest.warns(ConvergenceWarning, match="diverged: .* epoch 1, -12.2 nats a row, is below"):
        after(-12.2)
    with pytest.warns(ConvergenceWarning, match="fell from -8 nats a row, in epoch 2, to -10.1 in"):
        after(-12.0, -8.0, -10.1)
    with pytest.warns(ConvergenceWarning, match="of epoch 2 is unknown"):
        after(-12.0, -np.inf)


def test_epochs_whose_solutions_miss_the_states_of_most_weight_are_told():
    """By mean-field solutions from data it would be ten nats a row above any that is possible."""
    rng = np.random.default_rng(0)
    X = (rng.random((200, 60)) < 0.03 + 0.3 * (rng.random((200, 1)) < 0.3)).astype(float)
    options = {"learning_rate": 2.0, "n_epochs": 10, "batch_size": 50, "random_state": 20}
    rbm = GeneralizedRBM(25, hidden="ising", gradient="pcd", **options)
    with pytest.warns(ConvergenceWarning, match="learning has diverged"):
        rbm.fit(X)
    assert "_log_partition" not in vars(rbm)  # a bound suffices to tell, without annealing
    most = log_likelihood(rbm.model_, X, lower_bound(rbm.model_).value).mean()
    p = X.mean(0)
    independent = (X * np.log(p) + (1 - X) * np.log(1 - p)).sum(1).mean()
    assert most < independent - 2
    assert 85 * rbm.history_["log_likelihood"][-1] < independent - 1


@pytest.mark.parametrize(
    "visible", ["bernoulli", pytest.param("categorical", marks=pytest.mark.slow)]
)
def test_large_rates_with_gaussian_hidden_units_on_tables_are_told(visible):
    """The true log-likelihood is below that of independent columns, or half of the gain is lost."""
    rng = np.random.default_rng(0)
    classes, shares = rng.integers(0, 3, 500), rng.dirichlet(0.4 * np.ones(5), (3, 8))
    labels = (rng.random((500, 8, 1)) > shares[classes].cumsum(2)).sum(2)
    X = labels if visible == "categorical" else np.eye(5)[labels].reshape(500, -1)
    options = {"visible": visible, "hidden": "gaussian", "n_epochs": 10, "random_state": 0}
    GeneralizedRBM(10, **options).fit(X)
    with pytest.warns(ConvergenceWarning, match="Use a smaller learning_rate"):
        GeneralizedRBM(10, **options, learning_rate=5.0).fit(X)


def test_rows_that_have_not_converged_are_counted():
    warn_unless_converged(np.ones(3, bool))
    with pytest.warns(ConvergenceWarning, match="of 2 of 3 rows did not converge"):
        warn_unless_converged(np.array([True, False, False]))
