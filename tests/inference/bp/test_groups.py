from itertools import product

import numpy as np
import pytest
from bp_models import SOLVERS

import fastmf as mf

SIZES = (3, 4, 2, 5)


def units(seed=0):
    rng = np.random.default_rng(seed)
    return mf.Categorical([rng.normal(size=q) for q in SIZES])


def tree(hidden, seed=0, dtype=np.float64):
    """The first hidden unit is joined with all groups, the others with one each."""
    rng = np.random.default_rng(seed)
    W = np.zeros((14, 4))
    W[:, 0] = 2 * rng.normal(size=14)
    W[:3, 1], W[7:9, 2], W[9:, 3] = (rng.normal(size=q) for q in (3, 2, 5))
    visible = mf.Categorical(units(seed).field.astype(dtype), units().state)
    return mf.RBM(W.astype(dtype), visible, hidden(rng.normal(size=4).astype(dtype)))


def loopy(scale, seed=0, n_hidden=5):
    rng = np.random.default_rng(seed)
    W = scale * rng.normal(size=(14, n_hidden))
    return mf.RBM(W, units(seed), mf.Bernoulli(rng.normal(size=n_hidden)))


def every_assignment(model):
    """Labels of all visible states, and for each the log-weights of all hidden states."""
    labels = np.array(list(product(*map(range, SIZES))))
    x = model.layers[0].one_hot(labels)
    hidden = np.array(list(product(model.layers[1].support, repeat=model.weights.shape[1])))
    return labels, np.stack([-model.energy(x, np.tile(h, (len(x), 1))) for h in hidden], axis=1)


@pytest.mark.parametrize("hidden", [mf.Bernoulli, mf.Ising])
@pytest.mark.parametrize("dtype, close", [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_a_tree_is_exact(hidden, dtype, close):
    model = tree(hidden, dtype=dtype)
    found, exact = mf.belief_propagation(model), mf.exact(model)
    assert found.converged and found.n_iter < 20
    assert found.log_partition == pytest.approx(float(exact.log_partition), rel=close)
    for name in ("mean", "var"):
        for part, expected in zip(getattr(found, name), getattr(exact, name), strict=True):
            np.testing.assert_allclose(part, expected, atol=close)
            assert part.dtype == dtype
    moments = [
        prior.moments(b, a) for prior, b, a in zip(model.layers, found.b, found.a, strict=True)
    ]
    for (mean, _), part in zip(moments, found.mean, strict=True):
        np.testing.assert_allclose(mean, part, atol=close)


def test_fields_of_rows():
    model, rng = tree(mf.Ising), np.random.default_rng(1)
    visible, hidden = rng.normal(size=(3, 14)), rng.normal(size=(3, 4))
    found = mf.belief_propagation(model, field=(visible, hidden))
    assert found.mean[0].shape == (3, 14) and found.assignment[0].shape == (3, 4)
    for k in range(3):
        other = mf.RBM(
            model.weights,
            mf.Categorical(model.layers[0].field + visible[k], model.layers[0].state),
            mf.Ising(model.layers[1].field + hidden[k]),
        )
        exact = mf.exact(other)
        assert found.log_partition[k] == pytest.approx(float(exact.log_partition), rel=1e-12)
        np.testing.assert_allclose(found.mean[0][k], exact.mean[0], atol=1e-12)


def test_groups_of_two_are_bernoulli_units():
    """With loops: the same fixed point, sweep by sweep."""
    rng = np.random.default_rng(2)
    W, b, c = rng.normal(size=(7, 5)), rng.normal(size=7), mf.Bernoulli(rng.normal(size=5))
    whole = np.zeros((14, 5))
    whole[1::2] = W
    groups = mf.RBM(whole, mf.Categorical(np.stack([0 * b, b], axis=1)), c)
    binary = mf.RBM(W, mf.Bernoulli(b), c)
    for algorithm in ("sum", "max"):
        one, two = SOLVERS[algorithm](groups), SOLVERS[algorithm](binary)
        assert one.converged == two.converged
        assert one.log_partition == pytest.approx(float(two.log_partition), rel=1e-9)
        np.testing.assert_allclose(one.mean[0][1::2], two.mean[0], atol=1e-7)
        np.testing.assert_allclose(one.mean[1], two.mean[1], atol=1e-7)
        np.testing.assert_array_equal(one.assignment[0], two.assignment[0])


def test_a_gauge_changes_nothing():
    model, rng = loopy(0.7), np.random.default_rng(3)
    shift = 30 * rng.normal(size=(len(SIZES), 5))
    other = mf.RBM(
        model.weights + np.repeat(shift, SIZES, axis=0),
        model.layers[0],
        mf.Bernoulli(model.layers[1].field - shift.sum(0)),
    )
    one, two = mf.belief_propagation(model), mf.belief_propagation(other)
    assert one.converged and two.converged
    assert one.log_partition == pytest.approx(float(two.log_partition), abs=1e-9)
    np.testing.assert_allclose(one.mean[0], two.mean[0], atol=1e-8)


def test_means_are_derivatives_of_the_bethe_log_partition():
    model, step = loopy(0.8), 1e-5
    found = mf.belief_propagation(model, tol=1e-13)
    fields = step * np.concatenate([np.eye(14), -np.eye(14)])
    values = mf.belief_propagation(model, field=fields, tol=1e-13).log_partition
    np.testing.assert_allclose((values[:14] - values[14:]) / (2 * step), found.mean[0], atol=1e-8)
    assert abs(found.log_partition - mf.exact(model).log_partition) > 1e-4  # there are loops


@pytest.mark.parametrize("algorithm", ["max", "mixed"])
@pytest.mark.parametrize("search", [True, False])
def test_objectives_are_those_of_the_assignments(algorithm, search):
    for seed in range(6):
        model = loopy(1.0, seed)
        found = SOLVERS[algorithm](model, search=search)
        labels, weights = every_assignment(model)
        values = weights.max(1) if algorithm == "max" else np.logaddexp.reduce(weights, axis=1)
        of = {tuple(row): value for row, value in zip(labels.tolist(), values, strict=True)}
        assert found.objective == pytest.approx(of[tuple(found.assignment[0].tolist())], rel=1e-10)
        x = model.layers[0].one_hot(found.assignment[0])
        fields = model.layers[1].field + x @ model.weights
        np.testing.assert_array_equal(found.assignment[1], fields > 0)
        if search:
            best = [
                of[tuple(np.r_[found.assignment[0][:i], a, found.assignment[0][i + 1 :]])]
                for i, q in enumerate(SIZES) for a in range(q)
            ]  # fmt: skip
            assert found.local_maximum and max(best) <= found.objective + 1e-9


@pytest.mark.parametrize("algorithm", ["max", "mixed"])
def test_most_decoded_assignments_are_optimal(algorithm):
    n_optimal = 0
    for seed in range(10):
        model = loopy(1.0, seed)
        _, weights = every_assignment(model)
        values = weights.max(1) if algorithm == "max" else np.logaddexp.reduce(weights, axis=1)
        found = SOLVERS[algorithm](model)
        assert found.score <= values.max() + 1e-9
        is_optimal = found.score > values.max() - 1e-9
        assert found.reliable == (is_optimal if algorithm == "max" else None)
        n_optimal += is_optimal
    assert n_optimal >= 7


def test_large_weights_and_rows_that_do_not_converge_are_told():
    model = loopy(60.0)
    found = mf.belief_propagation(model, field=np.random.default_rng(0).normal(size=(8, 14)))
    assert np.isfinite(found.mean[0]).all() and np.isfinite(found.log_partition).all()
    assert all(message.startswith(("converged", "not converged")) for message in found.message)
    short = mf.belief_propagation(loopy(1.0), max_iter=2)
    assert not short.converged and "raise max_iter" in short.message
    with pytest.raises(ValueError, match="may differ by 680 at most"):
        mf.belief_propagation(loopy(600.0))
    assert np.isfinite(mf.most_probable(loopy(600.0)).objective)


def test_options_that_need_binary_units():
    for solve in (mf.belief_propagation, mf.most_probable):
        with pytest.raises(ValueError, match="init: not available"):
            solve(loopy(1.0), init=np.zeros(3))
    with pytest.raises(ValueError, match="n_starts: available for"):
        mf.most_probable(loopy(1.0), n_starts=3, rng=0)


def test_other_hidden_units_make_a_graph():
    visible = mf.Categorical(np.zeros((2, 3)))
    with pytest.raises(TypeError, match="needs discrete units"):
        mf.belief_propagation(mf.RBM(np.zeros((6, 6)), visible, mf.Gaussian(np.zeros(6), 1.0)))
    for model in (
        mf.RBM(np.eye(6) / 2, visible, visible),
        mf.RBM(np.eye(2, 6), mf.Bernoulli(np.zeros(2)), visible),
        mf.RBM(np.eye(2), mf.Binomial(np.zeros(2), 3), mf.Bernoulli(np.zeros(2))),
    ):
        found, exact = mf.belief_propagation(model), mf.exact(model)
        assert abs(found.log_partition - exact.log_partition) < 1e-2
        with pytest.raises(ValueError, match=r"sum_hidden: .* Categorical visible .* got RBM"):
            mf.most_probable(model, sum_hidden=True)


@pytest.mark.parametrize("algorithm", ["sum", "max", "mixed"])
def test_states_that_do_not_occur(algorithm):
    """The same beliefs as without these states."""
    rng = np.random.default_rng(11)
    fields, kept = [[0.3, -np.inf, 0.1], [0.0, 0.2, 0.4]], [0, 2, 3, 4, 5]
    weights, hidden = rng.normal(size=(6, 4)), mf.Ising(rng.normal(size=4) / 3)
    machine = mf.RBM(weights, mf.Categorical(fields), hidden)
    smaller = mf.RBM(weights[kept], mf.Categorical([[0.3, 0.1], fields[1]]), hidden)
    found, expected = map(SOLVERS[algorithm], (machine, smaller))
    np.testing.assert_allclose(found.mean[0], np.insert(expected.mean[0], 1, 0), atol=1e-8)
    np.testing.assert_allclose(found.mean[1], expected.mean[1], atol=1e-8)
    np.testing.assert_allclose(found.log_partition, expected.log_partition, rtol=1e-10)
    assert np.isfinite(found.b[0]).all()
