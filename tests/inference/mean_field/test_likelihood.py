import numpy as np
import pytest
from group_models import MODELS, every_order
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.inference.mean_field.likelihood import log_likelihood, log_partition_estimate
from fastmf.models import RBM, BoltzmannMachine, exact
from fastmf.models.layered import Layered
from fastmf.priors import Bernoulli, Concatenated, Gaussian, TruncatedGaussian
from tests.inference.mean_field.test_solutions import some_solutions
from tests.inference.mean_field.test_sparse_sweeps import MACHINES as SPARSE


@pytest.mark.parametrize("hidden", [Bernoulli([0.1, -0.4]), Gaussian([0.1, -0.4], [2.0, 3.0])])
def test_probabilities_of_all_states_add_up_to_one(hidden):
    model = RBM(np.random.default_rng(0).normal(size=(4, 2)), Bernoulli(np.arange(4) / 4), hidden)
    states = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(float)
    p = np.exp(log_likelihood(model, states, exact(model).log_partition))
    assert p.sum() == pytest.approx(1, abs=1e-13)


def test_probabilities_give_at_most_the_average_over_states():
    rng = np.random.default_rng(0)
    visible, hidden = Bernoulli(rng.normal(size=4)), Bernoulli(rng.normal(size=3))
    model, p = RBM(rng.normal(size=(4, 3)), visible, hidden), rng.random(4)
    states = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(float)
    average = np.where(states, p, 1 - p).prod(1) @ log_likelihood(model, states, 2.0)
    assert average - 0.5 < log_likelihood(model, p[None], 2.0)[0] < average


def test_probabilities_enter_by_their_mean_beside_other_units_too():
    rng = np.random.default_rng(0)
    field, p, x = rng.normal(size=3), rng.random(3), rng.normal(size=2)
    visible = Concatenated(Bernoulli(field), Gaussian([0.3, -0.4], [2.0, 3.0]))
    model = RBM(np.zeros((5, 1)), visible, Bernoulli(np.zeros(1)))
    log_partition = (
        model.hidden.log_partition(0.0, 0.0).sum() + visible.log_partition(0.0, 0.0).sum()
    )
    found = log_likelihood(model, np.concatenate([p, x])[None], log_partition)
    q = 1 / (1 + np.exp(-field))
    expected = (p * np.log(q) + (1 - p) * np.log(1 - q)).sum()
    mean, variance = np.array([0.3 / 2, -0.4 / 3]), 1 / np.array([2, 3])
    expected -= ((x - mean) ** 2 / variance + np.log(2 * np.pi * variance)).sum() / 2
    assert found == pytest.approx([expected], abs=1e-12)


def test_sparse_rows_have_the_likelihood_of_dense_ones():
    rng = np.random.default_rng(0)
    model = RBM(rng.normal(size=(6, 2)), Bernoulli(rng.normal(size=6)), Bernoulli(np.zeros(2)))
    X = (rng.random((9, 6)) < 0.3).astype(float)
    found = log_likelihood(model, csr_array(X), 1.5)
    np.testing.assert_allclose(found, log_likelihood(model, X, 1.5), rtol=1e-13)


@pytest.mark.parametrize("bad, message", [
    (np.full((2, 3), np.nan), "finite"), (np.ones((2, 4)), r"shape \(n_rows, 3\)"),
    (np.ones((0, 3)), r"shape \(n_rows, 3\)"), (np.full((2, 3), 2.0), r"values in \[0, 1\]"),
])  # fmt: skip
def test_bad_sparse_rows_are_refused(bad, message):
    model = RBM(np.zeros((3, 2)), Bernoulli(np.zeros(3)), Bernoulli(np.zeros(2)))
    with pytest.raises(ValueError, match=message):
        log_likelihood(model, csr_array(bad), 0.0)


def test_estimates_count_each_solution_once():
    reached = some_solutions([[0], [1], [0]], [1.0, 3.0, 1.0])
    one = RBM(np.zeros((1, 1)), Bernoulli([0.0]), Bernoulli([0.0]))
    assert log_partition_estimate(one, reached) == pytest.approx(np.log(np.exp(1) + np.exp(3)))
    assert log_partition_estimate(one, reached, "mean") == pytest.approx(2)
    diverged = some_solutions([[0], [1]], [-np.inf, 3.0])
    assert log_partition_estimate(one, diverged) == 3
    assert log_partition_estimate(one, diverged, "mean") == 3


BINARY = RBM(np.full((3, 2), 0.3), Bernoulli([0.1, -0.2, 0.3]), Bernoulli([0.0, 0.5]))


def test_any_array_of_rows_is_accepted():
    expected = log_likelihood(BINARY, np.array([[1.0, 0.0, 1.0]]), 2.0)
    for X in ([[1, 0, 1]], [1, 0, 1], np.array([[True, False, True]]), np.uint8([[1, 0, 1]])):
        np.testing.assert_array_equal(log_likelihood(BINARY, X, 2.0), expected)


def test_values_whose_squares_are_no_numbers_have_no_likelihood():
    weights = np.array([[0.5, -0.2], [0.1, 0.3]])
    model = RBM(weights, Gaussian(np.ones(2), np.ones(2)), Bernoulli(np.zeros(2)))
    X = np.array([[1e200, 0.0], [1e308, -1e308], [1e100, 1.0], [0.0, 0.0]])
    found = log_likelihood(model, X, 0.0)
    assert found[:2].tolist() == [-np.inf, -np.inf]
    np.testing.assert_allclose(found[2:], [-5e199, 2 * np.log(2)])


def test_what_real_units_cannot_be_has_no_likelihood():
    bounded = RBM(np.ones((2, 1)), TruncatedGaussian([0.0, 1.0], 1.0, 0.0, 1.0), Bernoulli([0.0]))
    found = log_likelihood(bounded, [[0.5, 0.5], [0.5, 1.5]], 0.0)
    assert np.isfinite(found[0]) and found[1] == -np.inf


@pytest.mark.parametrize(
    "model, X, log_partition, message",
    [
        (BINARY, [[2.0, 0.0, 1.0]], 0.0, r"X must have values in \[0, 1\]"),
        (BINARY, [[0.0, -0.1, 1.0]], 0.0, r"X must have values in \[0, 1\]"),
        (BINARY, [[np.nan, 0.0, 1.0]], 0.0, "X must be finite"),
        (BINARY, np.ones((2, 4)), 0.0, r"X must have shape \(3,\)"),
        (BINARY, [["one", "two", "three"]], 0.0, "X must be an array of real numbers"),
        (BINARY, np.ones((1, 3)), np.nan, "log_partition must be a number"),
        (BoltzmannMachine(np.zeros((3, 3)), Bernoulli(np.zeros(3))), np.ones((1, 3)), 0.0, "model"),
    ],
)
def test_bad_input_is_named(model, X, log_partition, message):
    with pytest.raises((ValueError, TypeError), match=message):
        log_likelihood(model, X, log_partition)


# --- the log-partition of given means and variances; its formula is the twin of the kernel --------


def test_third_order_of_layers_in_parts():
    rng = np.random.default_rng(4)
    weights, field = rng.normal(size=(6, 4)) / 2, rng.normal(size=6)
    hidden = mf.Ising(rng.normal(size=4))
    whole = mf.RBM(weights, mf.Bernoulli(field), hidden)
    parts = mf.RBM(
        weights, mf.Concatenated(mf.Bernoulli(field[:2]), mf.Bernoulli(field[2:])), hidden
    )
    found, expected = (mf.tap(m, order=3, tol=1e-13) for m in (parts, whole))
    assert found.converged
    assert found.log_partition == pytest.approx(expected.log_partition, abs=1e-12)
    np.testing.assert_allclose(found.mean[0], expected.mean[0], atol=1e-13)


def test_trees_are_exact_to_second_order():
    """The error of the second order is of third order in the couplings."""
    errors = []
    for scale in (0.1, 0.05):
        _, machine = SPARSE["spins"](scale, 3, 14)
        errors.append(abs(mf.tap(machine).log_partition - mf.exact(machine).log_partition))
    assert errors[1] < errors[0] / 6


@every_order
def test_error_of_groups_falls_with_the_couplings(name, order):
    model, errors = MODELS[name], []
    for scale in (0.1, 0.05):
        if isinstance(model, Layered):
            smaller = model.rebuilt(tuple(scale * w for w in model.couplings), model.layers)
        else:
            smaller = mf.BoltzmannMachine(scale * model.couplings, model.prior)
        found = mf.tap(smaller, order=order, tol=1e-14, max_iter=3000).log_partition
        errors.append(abs(found - mf.exact(smaller, averages=False).log_partition))
    assert np.log2(errors[0] / errors[1]) > order + 0.6


# --- no moments -----------------------------------------------------------------------------------


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
        assert_diverged(mf.tap(model, order=1, schedule=schedule, max_iter=5000, **options))


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
    x = np.linspace(0, 12, 1001)
    weight = np.exp(-1.2 * np.outer(x, x) - x[:, None] ** 2 / 2 - x**2 / 2)
    truth = (weight.sum(1) @ x) / weight.sum()
    result = mf.tap(model, order=1)
    assert result.converged
    assert result.mean[0][0] == pytest.approx(truth, rel=0.2)
