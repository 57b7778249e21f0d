"""Belief propagation against enumeration, an edge-by-edge implementation, and calculus."""

import itertools
import sys

import numpy as np
import pytest

import fastmf as mf

KINDS = pytest.mark.parametrize("prior", [mf.Bernoulli, mf.Ising])


def tree(n, m, rng, scale=2.0, forest=False):
    """Weights of a random tree (or forest) over both layers."""
    weights, inside, outside = np.zeros((n, m)), [(0, 0)], []
    outside = [(0, i) for i in range(1, n)] + [(1, j) for j in range(m)]
    rng.shuffle(outside)
    outside = [tuple(map(int, x)) for x in outside]
    while outside:
        k = next(k for k, x in enumerate(outside) if any(y[0] != x[0] for y in inside))
        x = outside.pop(k)
        others = [y for y in inside if y[0] != x[0]]
        y = others[rng.integers(len(others))]
        i, j = (x[1], y[1]) if x[0] == 0 else (y[1], x[1])
        if not (forest and rng.random() < 0.3):
            weights[i, j] = scale * rng.normal()
        inside.append(x)
    return weights


def machine(weights, rng, prior=mf.Bernoulli, dtype=float, scale=1.0):
    n, m = weights.shape
    fields = scale * rng.normal(size=n), scale * rng.normal(size=m)
    return mf.RBM(weights.astype(dtype), *(prior(f.astype(dtype)) for f in fields))


def loopy(n=9, m=7, scale=0.7, seed=0, **options):
    rng = np.random.default_rng(seed)
    return machine(scale * rng.normal(size=(n, m)), rng, **options)


def log_odds_by_edges(model, n_sweeps, field=None):
    """Sum-product with a dictionary of messages, one edge at a time, units {0, 1}."""
    w = model.weights
    n, m = w.shape
    b = model.visible.field + (0 if field is None else field), model.hidden.field
    to_visible = dict.fromkeys(itertools.product(range(n), range(m)), 0.0)
    to_hidden = dict.fromkeys(itertools.product(range(n), range(m)), 0.0)
    for _ in range(n_sweeps):
        for i, j in to_visible:
            x = b[1][j] + sum(to_hidden[k, j] for k in range(n) if k != i)
            to_visible[i, j] = np.logaddexp(0, x + w[i, j]) - np.logaddexp(0, x)
        for i, j in to_hidden:
            x = b[0][i] + sum(to_visible[i, k] for k in range(m) if k != j)
            to_hidden[i, j] = np.logaddexp(0, x + w[i, j]) - np.logaddexp(0, x)
    visible = [b[0][i] + sum(to_visible[i, j] for j in range(m)) for i in range(n)]
    hidden = [b[1][j] + sum(to_hidden[i, j] for i in range(n)) for j in range(m)]
    return np.array(visible), np.array(hidden)


@KINDS
@pytest.mark.parametrize("forest", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_exact_on_trees(prior, forest, seed):
    rng = np.random.default_rng(seed)
    model = machine(tree(7, 5, rng, forest=forest), rng, prior)
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


def test_edge_by_edge():
    model = loopy()
    result = mf.belief_propagation(model, tol=1e-14)
    for found, log_odds in zip(result.mean, log_odds_by_edges(model, 60), strict=True):
        np.testing.assert_allclose(found, 1 / (1 + np.exp(-log_odds)), atol=1e-8)


def test_a_fixed_number_of_sweeps_and_fields_of_rows():
    model, rng = loopy(scale=2.0), np.random.default_rng(2)
    field = rng.normal(size=(3, 9))
    result = mf.belief_propagation(model, field=field, max_iter=4, tol=0, history=True)
    assert (result.n_iter == 4).all() and result.history.shape == (3, 4)
    for row in range(3):
        expected = log_odds_by_edges(model, 4, field[row])
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
        slope = (value(w, b + d) - value(w, b - d)) / (2 * step)
        assert slope == pytest.approx(result.mean[0][i], abs=1e-8)
        d = step * np.outer(np.eye(4)[i], np.eye(3)[i % 3])
        slope = (value(w + d, b) - value(w - d, b)) / (2 * step)
        assert slope == pytest.approx(result.pairwise[i, i % 3], abs=1e-8)


@KINDS
@pytest.mark.parametrize("seed", range(5))
def test_max_product_is_exact_on_trees(prior, seed):
    rng = np.random.default_rng(seed)
    model = machine(tree(6, 5, rng), rng, prior)
    states = np.array(list(itertools.product(prior.support, repeat=11)))
    best = -model.energy(states[:, :6], states[:, 6:]).min()
    result = mf.belief_propagation(model, algorithm="max")
    assert result.objective == pytest.approx(best, abs=1e-10)
    assert -model.energy(*result.assignment) == pytest.approx(best, abs=1e-10)


def test_mixed_product_on_trees():
    """The exact marginal MAP on nearly all of them, and the objective is what it says."""
    visible = np.array(list(itertools.product((0, 1), repeat=6)))
    n_exact = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        model = machine(tree(6, 5, rng, scale=1.0), rng)
        values = visible @ model.visible.field
        values = values + model.hidden.log_partition(visible @ model.weights, 0.0).sum(1)
        result = mf.belief_propagation(model, algorithm="mixed")
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
        model = machine(weights.clip(-50, 50), rng, dtype=dtype, scale=30.0)
        kept = {"messages": algorithm != "mixed"}
        result = mf.belief_propagation(model, algorithm=algorithm, max_iter=50, **kept)
        messages = () if result.messages is None else (result.messages,)
        for part in (*result.mean, *result.var, *result.b, *messages):
            assert np.isfinite(part).all() and part.dtype == dtype
        assert np.isfinite(result.log_partition)
        assert result.converged == (result.message == "converged")


@KINDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("held_by", [1e9, 1e20, 1e30])
def test_units_held_by_huge_fields(held_by, dtype, prior):
    """The others are those of the tree that is left: its MAP, and its marginals."""
    rng = np.random.default_rng(7)
    low, high = prior.support
    for _ in range(5):
        model = machine(tree(6, 5, rng), rng, prior, dtype)
        fields = [np.zeros(6), np.zeros(5)]
        for field, size in zip(fields, (6, 5), strict=True):
            field[rng.permutation(size)[:2]] = held_by * rng.choice([-1, 1], 2)
        states = np.array(list(itertools.product(prior.support, repeat=11)))
        wanted = np.concatenate(fields)
        states = states[((wanted == 0) | (states == np.where(wanted > 0, high, low))).all(1)]
        values = -model.energy(states[:, :6], states[:, 6:])

        found = mf.belief_propagation(model, algorithm="max", field=tuple(fields))
        assert found.converged
        np.testing.assert_array_equal(np.concatenate(found.assignment), states[values.argmax()])
        found = mf.belief_propagation(model, field=tuple(fields))
        weights = np.exp(values - values.max())
        np.testing.assert_allclose(
            np.concatenate(found.mean), weights @ states / weights.sum(), atol=1e-5
        )


@pytest.mark.parametrize("damping", [None, 0.5])
def test_saturated_beliefs_are_exact_on_trees(damping):
    rng = np.random.default_rng(4)
    for dtype, close in (("float64", 1e-10), ("float32", 1e-5)):
        model = machine(tree(7, 6, rng, scale=25.0).clip(-50, 50), rng, dtype=dtype, scale=20.0)
        truth, result = mf.exact(model), mf.belief_propagation(model, damping=damping)
        np.testing.assert_allclose(
            np.concatenate(result.mean), np.concatenate(truth.mean), atol=close
        )
        assert result.log_partition == pytest.approx(truth.log_partition, rel=close)


def test_float32_is_close_to_float64_at_degree_1000():
    single = loopy(1000, 100, scale=0.03, dtype="float32")
    double = mf.RBM(single.weights.astype(float), *single.layers)
    a, b = mf.belief_propagation(single), mf.belief_propagation(double)
    assert a.converged and b.converged and a.mean[0].dtype == "float32"
    for x, y in zip(a.mean, b.mean, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_a_warm_start_has_nothing_to_do():
    model = loopy()
    first = mf.belief_propagation(model, messages=True)
    again = mf.belief_propagation(model, init=first)
    assert again.n_iter <= 2
    np.testing.assert_allclose(again.mean[0], first.mean[0], atol=1e-8)
    mixed = mf.belief_propagation(model, algorithm="mixed")
    assert mf.belief_propagation(model, algorithm="mixed", init=mixed).n_iter <= 2


def test_a_warm_start_beyond_the_range_of_float32():
    """Ratios of messages up to e^100 between spins with couplings of 25."""
    weights = np.full((1, 3), 25.0, np.float32)
    model = mf.RBM(weights, mf.Ising([200.0]), mf.Ising([1.0, -0.5, 2.0]))
    first = mf.belief_propagation(model, messages=True)
    assert first.messages.dtype == "float32" and first.messages.max() > 90
    again = mf.belief_propagation(model, init=first.messages)
    assert again.converged
    assert again.log_partition == pytest.approx(mf.exact(model).log_partition, rel=1e-6)


def test_oscillation_is_reported_undamped_and_cured_by_damping():
    rng = np.random.default_rng(1)
    model = machine(rng.normal(size=(12, 12)) / 2, rng, mf.Ising, scale=0.1)
    rough = mf.belief_propagation(model, damping=0.0, max_iter=300)
    assert not rough.converged and "not converged" in rough.message and rough.residual > 1e-3
    smooth = mf.belief_propagation(model)
    assert smooth.converged and smooth.damping > 0


def test_pairs_averaged_over_rows():
    model, rng = loopy(prior=mf.Ising), np.random.default_rng(2)
    field = rng.normal(size=(5, 9)), rng.normal(size=(5, 7))
    each = mf.belief_propagation(model, field=field, pairwise=True).pairwise
    mean = mf.belief_propagation(model, field=field, pairwise="mean").pairwise
    assert each.shape == (5, 9, 7)
    np.testing.assert_allclose(mean, each.mean(0), atol=1e-12)


@pytest.mark.parametrize("algorithm", ["sum", "max", "mixed"])
def test_threads_and_sharing_do_not_matter(algorithm, monkeypatch):
    model = loopy(700, 300, scale=0.03)
    options = {"algorithm": algorithm, "max_iter": 5, "tol": 0}
    alone = mf.belief_propagation(model, n_threads=1, **options)
    monkeypatch.setattr(sys.modules["fastmf.inference.bp.belief_propagation"], "SHARED", 0)
    one, two, three = (mf.belief_propagation(model, n_threads=k, **options) for k in (1, 2, 3))
    for x, y, z, expected in zip(one.mean, two.mean, three.mean, alone.mean, strict=True):
        np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(x, z)
        np.testing.assert_allclose(x, expected, atol=1e-12)
    assert one.log_partition == two.log_partition == three.log_partition
    assert one.log_partition == pytest.approx(alone.log_partition, rel=1e-12)


@pytest.mark.parametrize(
    "options, error",
    [
        ({"algorithm": "min"}, "algorithm"),
        ({"field": np.zeros(4)}, "field"),
        ({"field": np.full(9, np.nan)}, "field"),
        ({"field": np.full(9, -1e301)}, "field"),
        ({"field": (np.zeros((2, 9)), np.zeros((3, 7)))}, "rows"),
        ({"damping": 1.0}, "damping"),
        ({"damping": 0.5, "algorithm": "mixed"}, "damping"),
        ({"max_iter": 0}, "max_iter"),
        ({"init": np.zeros((2, 2))}, "init"),
        ({"init": np.full((9, 7), np.inf)}, "init"),
        ({"pairwise": True, "algorithm": "max"}, "pairwise"),
        ({"polish": True}, "polish"),
        ({"n_restarts": 2}, "n_restarts"),
        ({"n_restarts": 2, "algorithm": "max"}, "rng"),
        ({"n_restarts": 2, "algorithm": "max", "rng": -1}, "rng must be"),
        ({"n_restarts": 2, "algorithm": "mixed", "init": np.zeros(9)}, "n_restarts"),
        ({"starts": np.zeros((2, 9))}, "starts"),
        ({"starts": np.zeros((2, 8)), "algorithm": "max"}, "starts must have shape"),
        ({"starts": np.zeros(9), "algorithm": "max"}, "starts must have shape"),
        ({"starts": np.zeros((2, 9)), "algorithm": "max", "n_restarts": 1}, "one of them"),
    ],
)
def test_bad_input(options, error):
    with pytest.raises(ValueError, match=error):
        mf.belief_propagation(loopy(), **options)


def test_models_that_are_not_binary():
    with pytest.raises(TypeError, match="Bernoulli or Ising"):
        mf.belief_propagation(
            mf.RBM(np.ones((2, 2)), mf.Gaussian(np.zeros(2), np.ones(2)), mf.Ising(np.zeros(2)))
        )
    with pytest.raises(TypeError, match="RBM"):
        mf.belief_propagation(mf.BoltzmannMachine(np.zeros((2, 2)), mf.Ising(np.zeros(2))))
    with pytest.raises(ValueError, match="weights"):
        mf.belief_propagation(loopy(scale=1e4))
    with pytest.raises(ValueError, match="field"):
        mf.belief_propagation(loopy(dtype="float32"), algorithm="max", field=np.full(9, 1e31))


@KINDS
@pytest.mark.parametrize("algorithm", ["max", "mixed"])
def test_a_polished_assignment_is_a_local_maximum(prior, algorithm):
    low, high = prior.support
    n_better = 0
    for seed in range(6):
        model = loopy(seed=seed, prior=prior, scale=1.5)
        rough = mf.belief_propagation(model, algorithm=algorithm, max_iter=2, polish=False)
        result = mf.belief_propagation(model, algorithm=algorithm, max_iter=2)
        assert result.local_maximum and rough.local_maximum is None
        assert "no flip of one visible unit" in result.message or result.converged

        def value(v, model=model):
            field = v @ model.weights
            if algorithm == "mixed":
                return v @ model.visible.field + model.hidden.log_partition(field, 0.0).sum()
            field = field + model.hidden.field
            return v @ model.visible.field + np.maximum(low * field, high * field).sum()

        v = result.assignment[0]
        assert result.objective == pytest.approx(value(v), abs=1e-10)
        assert result.objective >= rough.objective - 1e-12
        n_better += result.objective > rough.objective + 1e-9
        for i in range(len(v)):
            flipped = v.copy()
            flipped[i] = low + high - v[i]
            assert value(flipped) <= result.objective + 1e-9
    assert n_better > 0


def test_certificate():
    """The bound is the largest eigenvalue of the edge-to-edge matrix; trees get less than 1."""
    model = loopy(4, 3, prior=mf.Ising, scale=0.4)
    edges = list(itertools.product(range(4), range(3)))
    both = [(("v", i), ("h", j)) for i, j in edges] + [(("h", j), ("v", i)) for i, j in edges]
    strength = dict(zip(edges, np.tanh(abs(model.weights)).ravel(), strict=True))
    matrix = np.zeros((24, 24))
    for a, (source, target) in enumerate(both):
        i, j = (source[1], target[1]) if source[0] == "v" else (target[1], source[1])
        for b, (first, second) in enumerate(both):
            if second == source and first != target:
                matrix[a, b] = strength[i, j]
    expected = abs(np.linalg.eigvals(matrix)).max()
    result = mf.belief_propagation(model, certificate=True)
    assert result.spectral_radius >= expected - 1e-9
    assert result.spectral_radius == pytest.approx(expected, rel=1e-3)
    zero = mf.RBM(np.zeros((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    assert mf.belief_propagation(zero, certificate=True).spectral_radius < 1


@pytest.mark.parametrize("algorithm", ["max", "mixed"])
def test_restarts_find_better_assignments_and_keep_them(algorithm):
    """With enough of them the best of all, by enumeration, in every row."""
    prior, n_better = mf.Ising, 0
    model = loopy(8, 6, prior=prior, scale=1.5)
    field = np.random.default_rng(2).normal(size=(6, 8))
    visible = np.array(list(itertools.product((-1, 1), repeat=8)))
    on = visible @ model.weights + model.hidden.field
    values = (abs(on) if algorithm == "max" else np.logaddexp(on, -on)).sum(1)
    best = (values[:, None] + visible @ (model.visible.field + field).T).max(0)
    options = {"field": field, "algorithm": algorithm, "max_iter": 20}
    once = mf.belief_propagation(model, polish=False, **options)
    result = mf.belief_propagation(model, n_restarts=30, rng=0, polish=True, **options)
    assert result.objective.shape == (6,) and result.mean[0].shape == (6, 8)
    np.testing.assert_allclose(result.objective, best, atol=1e-10)
    n_better = (result.objective > once.objective + 1e-9).sum()
    assert n_better > 0
    again = mf.belief_propagation(model, n_restarts=30, rng=0, polish=True, n_threads=1, **options)
    np.testing.assert_array_equal(again.objective, result.objective)
    single = mf.belief_propagation(
        model, algorithm=algorithm, n_restarts=30, rng=0, polish=True, max_iter=20
    )
    field = visible @ model.visible.field
    assert single.objective == pytest.approx((values + field).max(), abs=1e-10)
    assert single.mean[0].shape == (8,) and single.local_maximum
    # Starts that are given are those that might have been drawn, the same for each row.
    drawn = 2.0 * (np.random.default_rng(0).random((31, 8)) < 0.5) - 1
    given = mf.belief_propagation(model, algorithm=algorithm, starts=drawn[1:], max_iter=20)
    assert given.objective == single.objective
    rows = mf.belief_propagation(model, starts=drawn[1:4], **options)
    few = mf.belief_propagation(
        model, starts=drawn[1:4], **(options | {"field": options["field"][4:]})
    )
    np.testing.assert_array_equal(rows.objective[4:], few.objective)


def test_sequential_mixed_product_is_a_local_search():
    """One sweep and polish: every unit then agrees with its log-odds given all others."""
    model = loopy(60, 30, scale=1.0)
    result = mf.belief_propagation(model, algorithm="mixed", max_iter=1, polish=True)
    v, w = result.assignment[0], model.weights
    for i in range(60):
        rest = np.delete(v, i) @ np.delete(w, i, 0) + model.hidden.field
        odds = model.visible.field[i] + np.logaddexp(0, rest + w[i]).sum()
        odds -= np.logaddexp(0, rest).sum()
        assert v[i] == (odds > 0)


def test_messages_that_do_not_fit_in_memory(monkeypatch):
    workspace = sys.modules["fastmf._common.memory"]
    assert workspace.memory_of_the_machine() > 1e8
    monkeypatch.setattr(workspace, "memory_of_the_machine", lambda: 1e6)
    model, field = loopy(), np.zeros((1000, 9))
    assert mf.belief_propagation(model, field=field).converged.all()
    # 1000 rows of 9 x 32 (padded) messages of 8 bytes.
    with pytest.raises(MemoryError, match=r"needs 0.00215 GiB.*\(1000, 9, 32\).*fewer rows"):
        mf.belief_propagation(model, field=field, pairwise=True)


@pytest.mark.parametrize("damping", [None, 0.5, 0.9])
@pytest.mark.parametrize("dtype, largest", [("float32", 39.9), ("float64", 339.0)])
def test_exact_on_a_star_of_the_largest_weights(dtype, largest, damping):
    """Where four factors no longer fit in the type of the messages, nor in a float64."""
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


@pytest.mark.parametrize("scale, damping", [(5.0, None), (60.0, None), (60.0, 0.0), (60.0, 0.5)])
def test_one_undamped_sweep_confirms_what_has_converged(scale, damping):
    """Also where beliefs are saturated, and log-odds could move for long without being seen."""
    n_confirmed = n_damped = 0
    for seed in range(20):
        model, tol = loopy(12, 12, seed=seed, scale=scale), 1e-8
        result = mf.belief_propagation(model, damping=damping, tol=tol, messages=True)
        if not result.converged:
            continue
        w, b, s = model.weights, [prior.field for prior in model.layers], result.messages
        cavity = b[1] + s.sum(0) - s
        r = np.logaddexp(0, cavity + w) - np.logaddexp(0, cavity)
        visible = b[0] + r.sum(1)
        cavity = visible[:, None] - r
        s = np.logaddexp(0, cavity + w) - np.logaddexp(0, cavity)
        for found, log_odds in zip(result.mean, (visible, b[1] + s.sum(0)), strict=True):
            np.testing.assert_allclose(found, 1 / (1 + np.exp(-log_odds)), atol=3 * tol)
        later = mf.belief_propagation(model, init=s, damping=0.0, tol=0, max_iter=3)
        assert result.log_partition == pytest.approx(later.log_partition, rel=1e-5)
        n_confirmed += 1
        n_damped += result.damping > 0
    assert n_confirmed >= 10 and (n_damped > 0 or not (damping or scale == 5))
