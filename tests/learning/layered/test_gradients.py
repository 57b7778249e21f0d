import numpy as np
import pytest
from scipy.sparse import csr_array
from units_to_learn import HIDDEN, RNG, VISIBLE, entry, moved, names

from fastmf.inference.ep.adaptive_tap import adaptive_tap
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.learning.layered.gradients import gradient
from fastmf.models import RBM
from fastmf.priors._protocol import parameter_names, parts_of

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
    step, scale = 1e-3, max(1e-2, abs(derivatives.couplings[0]).max())
    named = "weights", "visible", "hidden"
    by_name = dict(zip(named, (*derivatives.couplings, *derivatives.layers), strict=True))
    places = [("weights", None, (0, 0)), ("weights", None, (4, 2))]
    places += [
        (layer, name, 1) for layer in ("visible", "hidden") for name in names(getattr(model, layer))
    ]
    for layer, name, unit in places:
        f = {
            k: average_log_likelihood(moved(model, layer, name, unit, k * step))
            for k in (-2, -1, 1, 2)
        }
        numerical = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * step)
        value = by_name[layer]
        value = value[unit] if name is None else entry(value, name, unit)
        assert value == pytest.approx(numerical, rel=1e-6, abs=1e-6 * scale), (layer, name)


def test_gradient_vanishes_in_expectation_under_the_model():
    # Data distributed as the model itself: the exact gradient is zero, TAP's nearly so.
    weights = 0.1 * np.random.default_rng(2).normal(size=(5, 3))
    model = RBM(weights, VISIBLE["bernoulli"][0], HIDDEN["bernoulli"])
    states = (np.arange(32)[:, None] >> np.arange(5) & 1).astype(float)
    p = np.exp(log_likelihood(model, states, 0.0))
    data = states[np.random.default_rng(3).choice(32, 200_000, p=p / p.sum())]
    solutions = collapsed_tap(model, states[:2], tol=1e-12)
    assert abs(gradient(model, data, solutions)[0].couplings[0]).max() < 5e-3


@pytest.mark.parametrize("visible", ["bernoulli", "gaussian", "truncated", "mixed"])
def test_sparse_rows_have_the_gradient_of_dense_ones(visible):
    prior, X = VISIBLE[visible]
    model = RBM(RNG.normal(scale=0.1, size=(len(X[0]), 3)), prior, HIDDEN["bernoulli"])
    samples = X[::-1].copy()
    found, expected = (gradient(model, x, samples, 1)[0] for x in (csr_array(X[:4]), X[:4]))
    np.testing.assert_allclose(found.couplings[0], expected.couplings[0], rtol=1e-10, atol=1e-13)
    mine, theirs = (parts_of(g.layers[0]) for g in (found, expected))
    for part, other in zip(mine, theirs, strict=True):
        for name in parameter_names(part):
            np.testing.assert_allclose(getattr(part, name), getattr(other, name), atol=1e-12)
