import numpy as np
import pytest
from differences import assert_gradient
from units_to_learn import HIDDEN, VISIBLE, gradient

from fastmf.inference.ep.adaptive_tap import adaptive_tap
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.models import RBM

# Every pair of priors is compiled anew: spike-and-slab ones are quicker as parts of one machine.
CASES = [
    *((order, binary, binary) for order in (1, 2) for binary in ("bernoulli", "ising")),
    *((2, visible, "bernoulli") for visible in ("gaussian", "truncated", "mixed")),
    *(
        pytest.param(2, visible, "bernoulli", marks=pytest.mark.slow)
        for visible in ("spike", "truncated spike")
    ),
    (1, "bernoulli", "gaussian"),
    (2, "bernoulli", "gaussian"),
    (2, "bernoulli", "rectified"),
    ("adaptive", "bernoulli", "bernoulli"),
    ("adaptive", "bernoulli", "gaussian"),
    pytest.param("adaptive", "truncated spike", "bernoulli", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("order", "visible", "hidden"), CASES)
def test_gradient_is_the_derivative_through_reconverged_fixed_points(order, visible, hidden):
    prior, X = VISIBLE[visible]
    size = X.shape[1], 3
    model = RBM(0.4 * np.random.default_rng(1).normal(size=size), prior, HIDDEN[hidden])
    starts = X[:4]

    def solve(model):
        if order == "adaptive":
            return adaptive_tap(model, starts, tol=1e-13)
        return collapsed_tap(model, starts, order=order, tol=1e-14, max_iter=3000)

    def average_log_likelihood(model):
        return log_likelihood(model, X, solve(model).log_partition.mean()).mean()

    options = () if order == "adaptive" else (order,)
    derivatives = gradient(model, X, solve(model), *options)[0]
    scale = max(1e-2, abs(derivatives.couplings[0]).max())
    close = {"rel": 1e-6, "abs": 1e-6 * scale}
    assert_gradient(derivatives, model, average_log_likelihood, step=3e-4, **close)


def test_gradient_vanishes_in_expectation_under_the_model():
    # Data distributed as the model itself: the exact gradient is zero, TAP's nearly so.
    weights = 0.1 * np.random.default_rng(2).normal(size=(5, 3))
    model = RBM(weights, VISIBLE["bernoulli"][0], HIDDEN["bernoulli"])
    states = (np.arange(32)[:, None] >> np.arange(5) & 1).astype(float)
    p = np.exp(log_likelihood(model, states, 0.0))
    data = states[np.random.default_rng(3).choice(32, 200_000, p=p / p.sum())]
    solutions = collapsed_tap(model, states[:2], tol=1e-12)
    assert abs(gradient(model, data, solutions)[0].couplings[0]).max() < 5e-3
