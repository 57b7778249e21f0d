"""Steps of learning: those of plain NumPy, from any rows, with any units, on any threads."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit
from stripes import N_HIDDEN, N_VISIBLE, quick, start, stripes
from training_runs import assert_equal, states_by_threads

import fastmf as mf
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.learning.layered.gradients import summed
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import Plan, train
from fastmf.learning.training.ascent import ModelParameters, initial_state
from fastmf.models import RBM, exact
from fastmf.priors import Bernoulli, Gaussian, Ising, TruncatedGaussian
from fastmf.priors._protocol import learned_fields
from fastmf.priors._values import few_stored

# Options of a short run, in which the last batch of an epoch has fewer rows.
RUN = {"batch_size": 7, "n_epochs": 2, "learning_rate": (0.1, 0.01), "l2": 0.01, "n_sweeps": 2}


def binary(n):
    return mf.Bernoulli(np.zeros(n))


def gaussian(n):
    return mf.Gaussian(np.zeros(n), np.full(n, 2.0))


def spiked(n):
    return mf.GaussBernoulli(np.zeros(n), np.full(n, 2.0), np.zeros(n))


def bounded(n):
    return mf.TruncatedGaussBernoulli(*np.zeros((4, n)), np.ones(n))


def groups(n):
    return mf.Categorical([np.zeros(n - n // 2), np.zeros(n // 2)])


def mixed(n):
    return mf.Concatenated(binary(3), spiked(n - 3))


def machine(*kinds, sizes=(11, 6, 5), dtype=np.float64):
    rng = np.random.default_rng(0)
    shapes = list(pairwise(sizes))[: len(kinds) - 1]
    weights = [0.2 * rng.normal(size=shape).astype(dtype) for shape in shapes]
    layers = tuple(kind(n) for kind, n in zip(kinds, sizes, strict=False))
    return mf.DBM(tuple(weights), layers) if len(weights) > 1 else mf.RBM(*weights, *layers)


def rows_of(model, n_rows=33):
    prior, rng = model.layers[0], np.random.default_rng(1)
    X = prior.sample(np.zeros((n_rows, model.sizes[0])), 0.0, rng)
    return np.ascontiguousarray(X, model.dtype)


MACHINES = [
    (binary, binary), (binary, gaussian), (gaussian, binary), (spiked, bounded), (groups, binary),
    (mixed, mixed), (binary, binary, binary), (binary, spiked, binary),
]  # fmt: skip
every_machine = pytest.mark.parametrize(
    "kinds", MACHINES, ids=lambda kinds: "-".join(kind.__name__ for kind in kinds)
)


@pytest.mark.parametrize("kind", ["pcd", "cd", "mean_field"])
def test_one_kernel_moves_couplings_and_fields_as_single_operations_do(kind):
    model = machine(binary, binary, sizes=(60, 31))
    X, states = rows_of(model, 40), [initial_state(model) for _ in range(2)]
    plans = [Plan(model, LayeredSettings(gradient=kind, l1=0.002, n_starts=30)) for _ in states]
    assert plans[0].moves_fields
    plans[1].moves_fields = False
    for state, plan in zip(states, plans, strict=True):
        rng = np.random.default_rng(1)
        for _ in range(4):
            plan(state, X, 0.1, rng)
    same, other = (ModelParameters.of(state.model).arrays() for state in states)
    for x, y in zip(same, other, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("damping, n_rows", [(None, 40), (0.5, 40), (None, 900)])
@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-10), ("float32", 1e-3)])
def test_steps_of_a_binary_machine_are_those_of_plain_numpy(dtype, rtol, damping, n_rows):
    """TAP from data, with momentum, decay of weights and centring, written without kernels."""
    model = machine(binary, binary, sizes=(60, 31), dtype=dtype)
    X, rate, momentum, l2, l1 = rows_of(model, n_rows), 0.1, 0.9, 0.01, 0.002
    settings = LayeredSettings(momentum=momentum, l2=l2, l1=l1, n_sweeps=3, damping=damping)
    new_part = 1 - (damping or 0)
    state, step = initial_state(model), Plan(model, settings)
    w, b, c = (
        np.asarray(x, float) for x in (model.weights, *np.zeros((2, 60)))[:2] + (np.zeros(31),)
    )
    vw, vb, vc = 0 * w, 0 * b, 0 * c
    for _ in range(3):
        step(state, X, rate, None)
        h = expit(X @ w + c)
        m, v, n, u = np.array(X), np.zeros(X.shape), 0 * h, 0 * h
        for _ in range(3):
            a = -v @ w**2
            above = expit(m @ w + a * n + c - a / 2)
            n, u = n + new_part * (above - n), u + new_part * (above * (1 - above) - u)
            a = -u @ (w**2).T
            below = expit(n @ w.T + a * m + b - a / 2)
            m, v = m + new_part * (below - m), v + new_part * (below * (1 - below) - v)
        u, v = above * (1 - above), below * (1 - below)  # of the last fields, undamped
        rows = len(X)
        db, dc = X.mean(0) - m.mean(0), h.mean(0) - n.mean(0)
        g = X.T @ h / rows - m.T @ n / rows - w * (v.T @ u) / rows - l2 * w
        g -= np.outer(X.mean(0), dc) + np.outer(db, h.mean(0))
        vw = momentum * vw + rate * g
        new = w + vw
        decay = np.clip(new, -rate * l1, rate * l1)
        g, vw, w = g - decay / rate, vw - decay, new - decay
        vb = momentum * vb + rate * (db - g @ h.mean(0))
        vc = momentum * vc + rate * (dc - X.mean(0) @ g)
        b, c = b + vb, c + vc
    found = state.model.weights, state.model.visible.field, state.model.hidden.field
    for one, other in zip(found, (w, b, c), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


def test_steps_do_not_change_machines_that_others_have():
    model, models = machine(mixed, binary), []
    before = [np.array(x) for x in (model.weights, *learned_fields(model.visible))]
    train(model, rows_of(model), LayeredSettings(**RUN), seed=0,
          callbacks=[lambda state: models.append(state.model)])  # fmt: skip
    for x, then in zip((model.weights, *learned_fields(model.visible)), before, strict=True):
        np.testing.assert_array_equal(x, then)
    assert abs(models[0].weights - models[1].weights).max() > 1e-4


@pytest.mark.parametrize("gradient", ["tap", "pcd"])
@pytest.mark.parametrize("kinds", [(binary, binary), (bounded, spiked), (gaussian, binary)])
@pytest.mark.parametrize("make", [np.asarray, csr_array], ids=["dense", "sparse"])
def test_the_number_of_threads_does_not_matter(kinds, gradient, make):
    model = machine(*kinds, sizes=(300, 90), dtype="float32")
    model = mf.RBM(0.2 * model.weights, *model.layers)
    rng, X = np.random.default_rng(0), rows_of(model, 90)
    X = make(X * (rng.random(X.shape) < 0.1))
    rows = np.stack([rng.permutation(90)[:60] for _ in range(4)])
    settings = LayeredSettings(gradient=gradient, batch_size=60)
    states = states_by_threads(model, X, settings, rows, 0.02)
    assert abs(states[0].model.weights - model.weights).max() > 1e-3
    for state in states[1:]:
        assert_equal(state, states[0], rtol=0, atol=0)


@pytest.mark.parametrize("gradient", ["tap", "mean_field", "cd", "pcd"])
@pytest.mark.parametrize("dtype, close", [("f8", 1e-9), ("f4", 1e-3)])
def test_sparse_rows_take_the_steps_of_dense_ones(gradient, dtype, close):
    rng = np.random.default_rng(4)
    X = (rng.random((33, 300)) < 0.05) * rng.choice([0.5, 1.0], (33, 300))
    X[5] = 0
    model = machine(binary, binary, sizes=(300, 9), dtype=dtype)
    settings = LayeredSettings(**RUN, gradient=gradient)
    assert few_stored(csr_array(X))
    expected = train(model, X.astype(dtype), settings, seed=1)
    for given in (csr_array(X.astype(dtype)), csr_array(X)):
        found = train(model, given, settings, seed=1)
        assert_equal(found, expected, rtol=close, atol=close * 1e-3)
    assert abs(expected.model.weights - model.weights).max() > 0.01


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_labels_are_taken_as_the_states_of_their_groups(dtype):
    model, settings = machine(groups, gaussian), LayeredSettings(**RUN, gradient="cd")
    X = rows_of(model)
    expected = train(model, X, settings, seed=1)
    labels = model.visible.labels(X).astype(dtype)
    assert_equal(train(model, labels, settings, seed=1), expected, rtol=0, atol=0)
    assert abs(expected.model.weights - model.weights).max() > 1e-3


@pytest.mark.parametrize("gradient", ["pcd", "cd"])
def test_steps_end_where_machines_would_not_exist(gradient):
    """The weights begin at 0.97 of where the machine ceases to exist."""
    model = machine(gaussian, gaussian)
    largest = np.linalg.norm(model.weights, 2) / 2  # the precisions are 2
    model = mf.RBM(0.97 / largest * model.weights, *model.layers)
    settings = LayeredSettings(**RUN | {"gradient": gradient, "learning_rate": 0.02})
    found = train(model, 9 * np.abs(rows_of(model)), settings, seed=1).model
    precisions = np.outer(found.visible.precision, found.hidden.precision)
    assert 0.97 < np.linalg.norm(found.weights / np.sqrt(precisions), 2) < 1


@every_machine
def test_learning_stops_where_it_diverges(kinds):
    model, settings = machine(*kinds), LayeredSettings(**RUN | {"learning_rate": 1e200})
    with pytest.raises(FloatingPointError, match="smaller learning_rate"):
        train(model, rows_of(model), settings, seed=0)


def test_a_callback_may_replace_the_model():
    other = machine(binary, binary, sizes=start().weights.shape)

    def replaced(state):
        state.model = other

    found = train(start(), stripes(), LayeredSettings(**RUN), seed=0, callbacks=[replaced])
    assert found.model is other


@pytest.mark.parametrize("hidden", [Bernoulli, Ising, Gaussian])
@pytest.mark.parametrize("gradient", ["tap", "mean_field", "adaptive_tap", "cd", "pcd"])
def test_every_gradient_learns(gradient, hidden):
    if gradient == "adaptive_tap" and hidden is Ising:
        pytest.skip("one compilation less")
    prior = hidden(np.zeros(N_HIDDEN), 2.0) if hidden is Gaussian else hidden(np.zeros(N_HIDDEN))
    # Spins below spins, the machines that other tests compile.
    visible, X = (Ising, 2 * stripes() - 1) if hidden is Ising else (Bernoulli, stripes())
    rate = 0.05 if hidden is Ising else 0.08
    n_epochs, rate = (10, 0.25) if gradient == "adaptive_tap" else (40, rate)
    settings = quick(gradient=gradient, n_epochs=n_epochs, learning_rate=rate)
    model = train(start(prior, visible=visible), X, settings, seed=0).model
    independent = N_VISIBLE * np.log(0.5)
    assert log_likelihood(model, X, exact(model).log_partition).mean() > independent + 1


def test_the_damping_of_adaptive_tap_is_that_of_the_solver():
    """Damping that is nearly one leaves sites where they start: those of one iteration."""
    settings = quick(gradient="adaptive_tap", n_epochs=1, learning_rate=0.5)
    weights = np.random.default_rng(0).normal(size=(N_VISIBLE, N_HIDDEN))
    model = start().rebuilt((weights,), start().layers)
    options = {"one": {"n_sweeps": 1}, "held": {"damping": 1 - 1e-12}, "free": {"damping": 0.0}}
    found = {
        name: train(model, stripes(), replace(settings, **given), seed=0).model.weights
        for name, given in options.items()
    }
    np.testing.assert_allclose(found["held"], found["one"], rtol=1e-8)
    assert abs(found["free"] - found["one"]).max() > 1e-3


def test_gaussian_units_need_no_bound_on_their_precision():
    """Beyond half the critical coupling, and better than units alone."""
    hidden = Gaussian(np.zeros(N_HIDDEN), 1.0)
    state = train(start(hidden), stripes(), quick(learning_rate=0.4, n_epochs=25), seed=0)
    model = state.model
    broadening = (model.weights**2).sum(0) / 4
    assert (model.hidden.precision < 2 * broadening).any()
    found = log_likelihood(model, stripes(), exact(model, averages=False).log_partition).mean()
    assert found > -N_VISIBLE * np.log(2) + 2
    assert np.isfinite(state.history["log_likelihood"]).all()


def test_learning_says_where_mean_fields_have_no_moments_and_goes_on_with_chains():
    rectified = TruncatedGaussian(np.zeros(N_HIDDEN), 1.0, 0.0, np.inf)
    model = RBM(np.full((N_VISIBLE, N_HIDDEN), 0.8), start().visible, rectified)
    settings = quick(learning_rate=0.01, n_epochs=2)
    with pytest.warns(
        UserWarning, match="'tap' cannot follow .* continues with gradient='pcd'"
    ) as told:
        found = train(model, stripes(), settings, seed=0)
    assert len(told) == 1
    assert len(found.chains) == 1 and np.isfinite(found.history["log_likelihood"]).all()
    chains = train(model, stripes(), replace(settings, gradient="pcd"), seed=0)
    np.testing.assert_allclose(found.model.weights, chains.model.weights, rtol=0.2)


@pytest.mark.parametrize("unit", [Bernoulli, Ising])
def test_belief_propagation_gives_the_exact_gradient_on_trees(unit):
    rng = np.random.default_rng(0)
    model = RBM(rng.normal(size=(4, 1)), unit(rng.normal(size=4)), unit(rng.normal(size=1)))
    X = unit(np.zeros(4)).sample(np.zeros((6, 4)), np.zeros((6, 4)), rng)
    slopes = []
    for name in ("bp", "exact"):
        plan = Plan(model, LayeredSettings(gradient=name, n_sweeps=5))
        slopes.append(summed(plan.gradient(initial_state(model), X, None)[0], model))
    for bp, exactly in zip(*(joined_arrays(slope) for slope in slopes), strict=True):
        np.testing.assert_allclose(bp, exactly, atol=1e-12)
    with pytest.raises(ValueError, match="binary units"):
        Plan(machine(gaussian, binary), LayeredSettings(gradient="bp"))


def joined_arrays(slope):
    return *slope.couplings, *(layer.field for layer in slope.layers)


def test_groups_of_two_states_are_binary_units():
    """x in {0, 1} with field b is a group of fields (0, b), whose first state is not coupled.

    The difference between its states is what the binary unit is, and moves twice as far.
    """
    rng = np.random.default_rng(0)
    weights, field = rng.normal(size=(6, 5)) / 3, rng.normal(size=6)
    hidden = mf.Bernoulli(np.zeros(5))
    pairs = mf.Categorical([np.array([0, b]) for b in field])
    X = rng.integers(0, 2, (20, 6))
    settings = LayeredSettings(batch_size=20, n_epochs=1, learning_rate=0.01, l2=0.0)
    binary = train(mf.RBM(weights, mf.Bernoulli(field), hidden), 1.0 * X, settings, seed=0)
    coupled = np.zeros((12, 5))
    coupled[1::2] = weights
    found = train(mf.RBM(coupled, pairs, hidden), X, settings, seed=0)
    step = found.model.weights - coupled
    expected = binary.model.weights - weights
    np.testing.assert_allclose(step[1::2] - step[::2], 2 * expected, rtol=1e-9, atol=1e-12)
