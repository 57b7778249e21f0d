"""Belief propagation against enumeration, sweeps by their definition, and calculus."""

import itertools
import sys

import numpy as np
import pytest
from bp_models import binary_rbm, loopy, propagation, tree

import fastmf as mf
from fastmf.inference.bp import rbm
from tests.inference.bp.test_converged_rows import softplus, sweep

KINDS = pytest.mark.parametrize("prior", [mf.Bernoulli, mf.Ising])


@KINDS
@pytest.mark.parametrize("forest", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_exact_on_trees(prior, forest, seed):
    rng = np.random.default_rng(seed)
    model = binary_rbm(tree(7, 5, rng, forest=forest), rng, prior)
    truth = mf.exact(model)
    result = mf.belief_propagation(model, tol=1e-14, pairwise=True)
    assert result.converged
    assert result.log_partition == pytest.approx(truth.log_partition, abs=1e-10)
    for found, expected in zip((*result.mean, *result.var), (*truth.mean, *truth.var), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-10)
    edges = model.weights != 0
    np.testing.assert_allclose(result.pairwise[edges], truth.pairwise[edges], atol=1e-10)


def test_mixed_kinds_of_units():
    rng = np.random.default_rng(5)
    fields = rng.normal(size=6), rng.normal(size=4)
    weights = tree(6, 4, rng)
    for kinds in ((mf.Bernoulli, mf.Ising), (mf.Ising, mf.Bernoulli)):
        model = mf.RBM(weights, *(k(f) for k, f in zip(kinds, fields, strict=True)))
        truth, result = mf.exact(model), mf.belief_propagation(model, pairwise=True)
        assert result.log_partition == pytest.approx(truth.log_partition, abs=1e-10)
        np.testing.assert_allclose(result.mean[1], truth.mean[1], atol=1e-10)
        edges = weights != 0
        np.testing.assert_allclose(result.pairwise[edges], truth.pairwise[edges], atol=1e-10)


def test_a_fixed_number_of_sweeps_and_fields_of_rows():
    model, rng = loopy(scale=2.0), np.random.default_rng(2)
    field = rng.normal(size=(3, 9))
    result = mf.belief_propagation(model, field=field, max_iter=4, tol=0)
    assert (result.n_iter == 4).all() and result.history.shape == (3, 4)
    for row in range(3):
        messages = model.weights / 2  # no preference for spins of these units
        for _ in range(4):
            fields = model.visible.field + field[row], model.hidden.field
            *expected, messages = sweep(model.weights, fields, messages, softplus)
        for found, log_odds in zip(result.mean, expected, strict=True):
            np.testing.assert_allclose(found[row], 1 / (1 + np.exp(-log_odds)), atol=1e-10)


@KINDS
def test_log_partition_is_stationary(prior):
    """Its derivatives through re-converged messages are the beliefs."""
    model, step = loopy(4, 3, prior=prior, scale=0.4), 1e-5
    result = mf.belief_propagation(model, tol=1e-15, pairwise=True)

    def value(weights, field):
        moved = mf.RBM(weights, prior(field), model.hidden)
        return mf.belief_propagation(moved, tol=1e-15).log_partition

    w, b = model.weights, model.visible.field
    for i in range(4):
        d = step * np.eye(4)[i]
        derivative = (value(w, b + d) - value(w, b - d)) / (2 * step)
        assert derivative == pytest.approx(result.mean[0][i], abs=1e-8)
        d = step * np.outer(np.eye(4)[i], np.eye(3)[i % 3])
        derivative = (value(w + d, b) - value(w - d, b)) / (2 * step)
        assert derivative == pytest.approx(result.pairwise[i, i % 3], abs=1e-8)


@KINDS
@pytest.mark.parametrize("seed", range(5))
def test_max_product_is_exact_on_trees(prior, seed):
    rng = np.random.default_rng(seed)
    model = binary_rbm(tree(6, 5, rng), rng, prior)
    states = np.array(list(itertools.product(prior.support, repeat=11)))
    best = -model.energy(states[:, :6], states[:, 6:]).min()
    result = mf.most_probable(model)
    assert result.objective == pytest.approx(best, abs=1e-10)
    assert -model.energy(*result.assignment) == pytest.approx(best, abs=1e-10)


def test_mixed_product_on_trees():
    """The exact marginal MAP on nearly all of them, and the objective is what it says."""
    visible = np.array(list(itertools.product((0, 1), repeat=6)))
    n_exact = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        model = binary_rbm(tree(6, 5, rng, scale=1.0), rng)
        values = visible @ model.visible.field
        values = values + model.hidden.log_partition(visible @ model.weights, 0.0).sum(1)
        result = mf.most_probable(model, sum_hidden=True)
        v = result.assignment[0]
        own = v @ model.visible.field + model.hidden.log_partition(v @ model.weights, 0.0).sum()
        assert result.objective == pytest.approx(own, abs=1e-10)
        n_exact += abs(result.objective - values.max()) < 1e-10
    assert n_exact >= 36


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("algorithm", ["sum", "max", "mixed"])
def test_large_weights_saturate_without_harm(algorithm, dtype):
    rng = np.random.default_rng(3)
    signs = rng.choice([-1.0, 1.0], (40, 30))
    row, column = 50 * rng.normal(size=(1, 9)), rng.normal(size=(9, 1))
    for weights in (50 * signs, np.full((1, 1), 50.0), np.zeros((3, 2)), row, column):
        model = binary_rbm(weights.clip(-50, 50), rng, dtype=dtype, scale=30.0)
        result = propagation(model, algorithm, max_iter=50, messages=algorithm != "mixed")
        messages = () if result.messages is None else (result.messages,)
        for part in (*result.mean, *result.var, *result.b, *messages):
            assert np.isfinite(part).all() and part.dtype == dtype
        assert np.isfinite(result.log_partition)
        assert result.converged == (result.message == "converged")


@KINDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size_of_field", [1e9, 1e20, 1e30])
def test_units_clamped_by_huge_fields(size_of_field, dtype, prior):
    """The MAP and the marginals of the other units are those of the tree without clamped ones."""
    rng = np.random.default_rng(7)
    low, high = prior.support
    for _ in range(5):
        model = binary_rbm(tree(6, 5, rng), rng, prior, dtype)
        fields = [np.zeros(6), np.zeros(5)]
        for field, size in zip(fields, (6, 5), strict=True):
            field[rng.permutation(size)[:2]] = size_of_field * rng.choice([-1, 1], 2)
        states = np.array(list(itertools.product(prior.support, repeat=11)))
        wanted = np.concatenate(fields)
        states = states[((wanted == 0) | (states == np.where(wanted > 0, high, low))).all(1)]
        values = -model.energy(states[:, :6], states[:, 6:])

        found = mf.most_probable(model, field=tuple(fields))
        assert found.converged
        np.testing.assert_array_equal(np.concatenate(found.assignment), states[values.argmax()])
        found = mf.belief_propagation(model, field=tuple(fields))
        weights = np.exp(values - values.max())
        np.testing.assert_allclose(
            np.concatenate(found.mean), weights @ states / weights.sum(), atol=1e-5
        )


def test_float32_is_close_to_float64_at_degree_1000():
    single = loopy(1000, 100, scale=0.03, dtype="float32")
    double = mf.RBM(single.weights.astype(float), *single.layers)
    a, b = mf.belief_propagation(single), mf.belief_propagation(double)
    assert a.converged and b.converged and a.mean[0].dtype == "float32"
    for x, y in zip(a.mean, b.mean, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_a_warm_start_converges_at_once():
    model = loopy()
    first = mf.belief_propagation(model, pairwise=True)
    again = mf.belief_propagation(model, init=first)
    assert again.n_iter <= 2
    np.testing.assert_allclose(again.mean[0], first.mean[0], atol=1e-8)
    mixed = mf.most_probable(model, sum_hidden=True)
    assert mf.most_probable(model, sum_hidden=True, init=mixed).n_iter <= 2


def test_a_warm_start_beyond_the_range_of_float32():
    """Ratios of messages up to e^100 between spins with couplings of 25."""
    weights = np.full((1, 3), 25.0, np.float32)
    model = mf.RBM(weights, mf.Ising([200.0]), mf.Ising([1.0, -0.5, 2.0]))
    first = mf.belief_propagation(model, pairwise=True)
    assert first.messages.dtype == "float32" and first.messages.max() > 90
    again = mf.belief_propagation(model, init=first.messages)
    assert again.converged
    assert again.log_partition == pytest.approx(mf.exact(model).log_partition, rel=1e-6)


def test_oscillation_is_reported_undamped_and_cured_by_damping():
    rng = np.random.default_rng(1)
    model = binary_rbm(rng.normal(size=(12, 12)) / 2, rng, mf.Ising, scale=0.1)
    rough = mf.belief_propagation(model, damping=0.0, max_iter=300)
    assert not rough.converged and "not converged" in rough.message and rough.residual > 1e-3
    smooth = mf.belief_propagation(model)
    assert smooth.converged and smooth.damping > 0


def test_pairs_averaged_over_rows(monkeypatch):
    """Also where rows are solved two at a time, as their messages do not fit in memory."""
    model, rng = loopy(prior=mf.Ising), np.random.default_rng(2)
    field = rng.normal(size=(5, 9)), rng.normal(size=(5, 7))
    each = mf.belief_propagation(model, field=field, pairwise=True).pairwise
    assert each.shape == (5, 9, 7)
    together = mf.belief_propagation(model, field=field, pairwise="mean")
    monkeypatch.setattr(rbm, "MAX_BYTES", 2 * 8 * 9 * 7)
    in_chunks = mf.belief_propagation(model, field=field, pairwise="mean")
    for result in (together, in_chunks):
        np.testing.assert_allclose(result.pairwise, each.mean(0), atol=1e-12)
    for mean, expected in zip(in_chunks.mean, together.mean, strict=True):
        np.testing.assert_array_equal(mean, expected)
    np.testing.assert_array_equal(in_chunks.history, together.history)


@pytest.mark.parametrize("n_rows", [33, 100])
def test_average_of_pairs_of_many_rows_is_the_same_for_all_threads(n_rows):
    model, rng = loopy(40, 35, scale=0.3), np.random.default_rng(2)
    options = {"field": (rng.normal(size=(n_rows, 40)), None), "tol": 0, "max_iter": 4}
    each = mf.belief_propagation(model, pairwise=True, **options).pairwise
    one = mf.belief_propagation(model, pairwise="mean", n_threads=1, **options).pairwise
    np.testing.assert_allclose(one, each.mean(0), atol=1e-14)
    for n_threads in (2, 3):
        many = mf.belief_propagation(model, pairwise="mean", n_threads=n_threads, **options)
        np.testing.assert_array_equal(many.pairwise, one)


@pytest.mark.parametrize("options, error", [
    ({"algorithm": "min"}, "algorithm"), ({"field": np.zeros(4)}, "field"),
    ({"field": np.full(9, np.nan)}, "field"), ({"field": np.full(9, -1e301)}, "field"),
    ({"field": (np.zeros((2, 9)), np.zeros((3, 7)))}, "rows"), ({"damping": 1.0}, "damping"),
    ({"max_iter": 0}, "max_iter"), ({"init": np.zeros((2, 2))}, "init"),
    ({"init": np.full((9, 7), np.inf)}, "init"),
    ({"pairwise": True, "algorithm": "max"}, "pairwise"),
    ({"damping": 0.5, "algorithm": "max"}, "damping"),
])  # fmt: skip
def test_bad_input(options, error):
    with pytest.raises(ValueError, match=error):
        mf.belief_propagation(loopy(), **options)


def test_messages_that_do_not_fit_in_memory(monkeypatch):
    memory = sys.modules["fastmf._common.memory"]
    assert memory.memory_of_the_machine() > 1e8
    monkeypatch.setattr(memory, "memory_of_the_machine", lambda: 1e6)
    model, field = loopy(), np.zeros((1000, 9))
    assert mf.belief_propagation(model, field=field).converged.all()
    # 1000 rows of 9 x 16 (padded) messages of 8 bytes, and the exponentials of the weights.
    with pytest.raises(MemoryError, match=r"\(1001, 9, 16\).* needs 0.00107 GiB.*fewer rows"):
        mf.belief_propagation(model, field=field, pairwise=True)


@pytest.mark.parametrize("damping", [None, 0.5, 0.9])
@pytest.mark.parametrize("dtype, largest", [("float32", 39.9), ("float64", 339.0)])
def test_exact_on_a_star_of_the_largest_weights(dtype, largest, damping):
    """Where products of four messages overflow in their type, and in float64."""
    rng = np.random.default_rng(0)
    weights = (largest * np.array([1, -1, 1, -1, 1, 0.5, -0.3])[:, None]).astype(dtype)
    fields = -np.maximum(weights[:, 0], 0) * rng.random(7)
    model = mf.RBM(weights, mf.Bernoulli(fields), mf.Bernoulli(np.array([0.3])))
    found, exact = mf.belief_propagation(model, damping=damping, tol=1e-10), mf.exact(model)
    close = {"float32": 2e-5, "float64": 1e-9}[dtype]
    assert found.converged
    np.testing.assert_allclose(found.log_partition, exact.log_partition, rtol=close, atol=close)
    for beliefs, mean in zip(found.mean, exact.mean, strict=True):
        np.testing.assert_allclose(beliefs, mean, atol=close)


def test_any_number_of_sweeps_may_be_allowed():
    result = mf.belief_propagation(loopy(scale=0.4), max_iter=10**15)
    assert result.converged and result.history is None
