"""TAP with groups of states: against the matrix form of the equations, and limits."""

from itertools import pairwise

import numpy as np
import pytest
from group_models import FOUR, MODELS, MatrixForm, every_order, joined, normal, units

import fastmf as mf
from fastmf.inference.mean_field._layouts import layout_of


@every_order
@pytest.mark.parametrize("schedule", ["blocked", "sequential"])
def test_fixed_points_are_those_of_the_matrix_form(name, order, schedule):
    model = MODELS[name]
    n = len(joined(mf.tap(model).mean))
    field, precision = 0.3 * np.sin(np.arange(n)), 0.1 * np.arange(n) / n
    split = np.cumsum([layer.moments(0.0, 0.0)[0].size for layer in model.layers])[:-1]
    options = {"order": order, "schedule": schedule, "tol": 1e-12, "max_iter": 5000}
    result = mf.tap(
        model, field=tuple(np.split(field, split)), precision=tuple(np.split(precision, split)),
        **options,
    )  # fmt: skip
    assert result.converged
    form, mean, var = MatrixForm(model), joined(result.mean), joined(result.var)
    again = form.moments(*form.tilts(mean, var, order, field, precision))
    np.testing.assert_allclose((mean, var), again, atol=1e-11)
    expected = form.log_partition(mean, var, order, field, precision)
    assert result.log_partition == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("order", [1, 2])
def test_two_states_are_binary_units(order):
    rng = np.random.default_rng(3)
    weights, field, hidden = rng.normal(size=(5, 4)) / 2, rng.normal(size=5), rng.normal(size=4)
    binary = mf.RBM(weights, mf.Bernoulli(field), mf.Bernoulli(hidden))
    both = np.zeros((5, 2, 4))
    both[:, 1] = weights
    pairs = mf.RBM(both, mf.Categorical(np.stack([0 * field, field], 1)), mf.Bernoulli(hidden))
    options = {"order": order, "tol": 1e-13}
    expected, found = mf.tap(binary, **options), mf.tap(pairs, **options)
    assert found.log_partition == pytest.approx(expected.log_partition, abs=1e-12)
    np.testing.assert_allclose(found.mean[0][1::2], expected.mean[0], atol=1e-12)
    np.testing.assert_allclose(found.mean[1], expected.mean[1], atol=1e-12)
    # In the zero-sum gauge they are Ising units.
    spins = mf.RBM(weights, mf.Ising(field), mf.Ising(hidden))
    pairs = mf.RBM(
        np.stack([-weights, weights], 1),
        mf.Categorical(np.stack([-field, field], 1)),
        mf.Ising(hidden),
    )
    expected, found = mf.tap(spins, **options), mf.tap(pairs, **options)
    assert found.log_partition == pytest.approx(expected.log_partition, abs=1e-12)
    np.testing.assert_allclose(2 * found.mean[0][1::2] - 1, expected.mean[0], atol=1e-12)


def test_labels_start_and_clamp():
    model = MODELS["bernoulli"]
    labels = np.array([[2, 0, 1, 4], [0, 3, -1, 1]])
    flat = FOUR.one_hot(np.maximum(labels, 0))
    flat[1, 7:9] = FOUR.moments(0.0, 0.0)[0][7:9]
    found, expected = mf.tap(model, labels), mf.tap(model, flat)
    np.testing.assert_array_equal(found.mean[0], expected.mean[0])
    clamped = mf.tap(model, clamp=labels)
    np.testing.assert_array_equal(clamped.mean[0][0], flat[0])
    np.testing.assert_array_equal(clamped.mean[0][1, :7], flat[1, :7])
    assert 0 < clamped.mean[0][1, 7] < 1
    b = flat[0] @ model.weights
    np.testing.assert_allclose(clamped.mean[1][0], model.hidden.moments(b, 0.0)[0], atol=1e-12)
    exact = model.visible.log_prob(flat[0]).sum() + model.hidden.log_partition(b, 0.0).sum()
    assert clamped.log_partition[0] == pytest.approx(exact, abs=1e-11)


def test_bad_rows_are_named():
    model = MODELS["bernoulli"]
    with pytest.raises(ValueError, match="labels of group 1 must be integers from 0 to 3"):
        mf.tap(model, [0, 4, 0, 0])
    with pytest.raises(ValueError, match="one column for each group"):
        mf.tap(model, np.zeros(5))
    with pytest.raises(ValueError, match="outside the support"):
        mf.tap(model, clamp=np.where(np.arange(14) == 1, 0.0, np.nan))
    with pytest.raises(ValueError, match="got booleans"):
        mf.tap(model, clamp=np.arange(14) == 1)


def test_third_order_needs_third_cumulants():
    for hidden in (
        mf.Gaussian(np.zeros(6), 2.0),
        mf.Concatenated(mf.Gaussian(np.zeros(1), 2.0), FOUR),
    ):
        n_hidden = len(hidden.moments(0.0, 0.0)[0])
        with pytest.raises(ValueError, match="order=3 needs binary units"):
            mf.tap(mf.RBM(np.zeros((14, n_hidden)), FOUR, hidden), order=3)


def test_tilts_do_not_depend_on_the_log_partition():
    for model in MODELS.values():
        for order in (1, 2):
            options = {"order": order, "tol": 1e-13, "max_iter": 5000}
            found = mf.tap(model, log_partition=False, **options)
            expected = mf.tap(model, **options)
            for tilt in ("b", "a"):
                here, there = joined(getattr(found, tilt)), joined(getattr(expected, tilt))
                np.testing.assert_allclose(here, there, atol=1e-10)


def test_solvers_with_one_variance_a_unit_refuse():
    for solver in (mf.relaxed_bp, mf.adaptive_tap):
        with pytest.raises(ValueError, match=f"{solver.__name__} takes no categorical units"):
            solver(MODELS["bernoulli"])
    with pytest.raises(ValueError, match="takes no categorical units"):
        mf.SparseLinearModel(np.eye(4), np.ones(4), 1.0, units(2, 2))


def random_labels(n):
    return np.random.default_rng(0).integers(0, 2, (n, len(FOUR.starts))).astype(float)


def test_extreme_models_end_with_a_status():
    strong = mf.RBM(50 * normal(14, 6), FOUR, mf.Bernoulli(normal(6)))
    result = mf.tap(strong, random_labels(20), max_iter=300)
    assert np.isfinite(result.mean[0]).all()
    assert all(isinstance(message, str) and message for message in result.message)
    sums = np.add.reduceat(result.mean[0], FOUR.starts, axis=1)
    np.testing.assert_allclose(sums, 1, atol=1e-9)
    single = mf.RBM(MODELS["bernoulli"].weights.astype(np.float32), FOUR, mf.Bernoulli(normal(6)))
    assert mf.tap(single, random_labels(3)).mean[0].dtype == np.float32


def test_the_layout_of_a_model_is_made_once():
    models = [random_dbm((50, 7)) for _ in range(2)]
    first = layout_of(models[0], 2, "blocked")
    assert layout_of(models[0], 2, "blocked") is first
    assert layout_of(models[1], 2, "blocked") is not first


# --- mean-field solutions of deep machines: those of the same machine written as an RBM -----------


SIZES = 30, 26, 9
FOUR_LAYERS = *SIZES, 5  # compiled anew


def random_dbm(sizes=SIZES, scale=2.0, seed=0):
    rng = np.random.default_rng(seed)
    weights = tuple(scale * rng.normal(size=(n, m)) / np.sqrt(n + m) for n, m in pairwise(sizes))
    return mf.DBM(weights, tuple(mf.Bernoulli(rng.normal(size=n)) for n in sizes))


def sides(parts):
    return [np.concatenate(parts[side::2], axis=-1) for side in (0, 1)]


@pytest.mark.parametrize("sizes", [SIZES, pytest.param(FOUR_LAYERS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("schedule", ["blocked", "sequential"])
def test_solutions_are_those_of_the_rbm(order, schedule, sizes):
    dbm = random_dbm(sizes)
    deep = mf.tap(dbm, order=order, schedule=schedule, tol=1e-12)
    wide = mf.tap(dbm.bipartite(), order=order, schedule=schedule, tol=1e-12)
    assert deep.converged and wide.converged
    assert deep.log_partition == pytest.approx(wide.log_partition, abs=1e-9)
    for name in ("mean", "var", "b", "a"):
        for found, expected in zip(sides(getattr(deep, name)), getattr(wide, name), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-9)


def test_two_layers_are_an_rbm():
    dbm = random_dbm((20, 10))
    rbm = mf.RBM(dbm.weights[0], *dbm.layers)
    X = (np.random.default_rng(0).random((7, 20)) < 0.5).astype(float)
    deep, plain = mf.tap(dbm, X), mf.tap(rbm, X)
    np.testing.assert_array_equal(deep.n_iter, plain.n_iter)
    np.testing.assert_array_equal(deep.log_partition, plain.log_partition)
    for found, expected in zip(deep.mean, plain.mean, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_data_held_at_the_bottom():
    """The posterior over the hidden layers, and log p~(x): Tramel et al. (2018), Appendix E."""
    dbm = random_dbm((5, 4, 3), scale=0.5)
    X = (np.random.default_rng(0).random((6, 5)) < 0.5).astype(float)
    held = mf.tap(dbm, X, clamp=X)
    assert held.converged.all()
    np.testing.assert_array_equal(held.mean[0], X)
    hidden = mf.RBM(dbm.weights[1], *dbm.layers[1:])
    for r, x in enumerate(X):
        field = dbm.layers[1].field + x @ dbm.weights[0]
        posterior = mf.exact(mf.RBM(hidden.weights, mf.Bernoulli(field), hidden.hidden))
        np.testing.assert_allclose(held.mean[1][r], posterior.mean[0], atol=5e-3)
        expected = posterior.log_partition + x @ dbm.layers[0].field
        assert held.log_partition[r] == pytest.approx(expected, abs=2e-3)
        # The same equations without the visible layer.
        above = mf.tap(hidden, field=x @ dbm.weights[0], tol=1e-10)
        np.testing.assert_allclose(held.mean[1][r], above.mean[0], atol=1e-6)
