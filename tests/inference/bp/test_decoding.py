"""Decoded assignments of small machines against enumeration."""

import functools
import itertools

import numpy as np
import pytest
from bp_models import SOLVERS, loopy

import fastmf as mf

SCALES = 0.5, 1.0, 2.0, 4.0, 8.0
BOTH = pytest.mark.parametrize("algorithm", ["max", "mixed"])


@functools.cache
def machines():
    """RBMs of 8 to 12 visible and 6 to 10 hidden units; fields centre the units of half of them."""
    rng, found = np.random.default_rng(0), []
    for scale, k in itertools.product(SCALES, range(6)):
        n, m = rng.integers(8, 13), rng.integers(6, 11)
        weights = scale * rng.normal(size=(n, m))
        fields = [rng.normal(size=size) for size in (n, m)]
        if k % 2:
            fields = [f - weights.sum(axis) / 2 for f, axis in zip(fields, (1, 0), strict=True)]
        found.append(mf.RBM(weights, *map(mf.Bernoulli, fields)))
    return found


def values(model, algorithm):
    """The objective of every visible assignment, and the assignments."""
    v = np.array(list(itertools.product((0, 1), repeat=len(model.weights))))
    on = v @ model.weights + model.hidden.field
    hidden = np.maximum(0, on) if algorithm == "max" else np.logaddexp(0, on)
    return v @ model.visible.field + hidden.sum(1), v


def decoded(algorithm, **options):
    """Shortfall of each machine's decoded assignment, and its result."""
    results = [SOLVERS[algorithm](x, **options) for x in machines()]
    best = [values(model, algorithm)[0].max() for model in machines()]
    return np.subtract(best, [r.objective for r in results]), results


@BOTH
def test_how_many_of_thirty_are_decoded_exactly(algorithm):
    """By default nearly all by max-product, with restarts at most two missed by either."""
    raw, _ = decoded(algorithm, search=False)
    default, results = decoded(algorithm)
    searched, _ = decoded(algorithm, n_starts=21, rng=0)
    # Polishing starts from the raw assignment, restarts keep the best.
    assert (default <= raw + 1e-9).all() and (searched <= default + 1e-9).all()
    exact = [(short < 1e-9).sum() for short in (raw, default, searched)]
    min_exact = {"max": (27, 29), "mixed": (20, 28)}[algorithm]
    assert exact[1] >= min_exact[0] and exact[2] >= min_exact[1]
    assert all(result.local_maximum for result in results)


@BOTH
def test_the_default_is_the_best_of_its_single_flips(algorithm):
    """Of the objective that is asked for: hidden units maximised, or summed out."""
    for model, result in zip(machines(), decoded(algorithm)[1], strict=True):
        every, v = values(model, algorithm)
        flips = (v != result.assignment[0]).sum(1)
        assert result.objective == pytest.approx(every[flips == 0][0], abs=1e-9)
        assert result.objective >= every[flips == 1].max() - 1e-9


def test_polishing_ends_where_weights_differ_by_many_orders():
    rng = np.random.default_rng(1)
    for _ in range(5):
        weights = rng.normal(size=(40, 20)) * 10.0 ** rng.uniform(-4, 15, size=(40, 20))
        model = mf.RBM(weights, *(mf.Bernoulli(np.zeros(n)) for n in (40, 20)))
        field = rng.normal(size=(10, 40)) * 10.0 ** rng.uniform(-4, 15, size=(10, 40))
        result = mf.most_probable(model, field=field, max_iter=5)
        raw = mf.most_probable(model, field=field, max_iter=5, search=False)
        assert (result.objective >= raw.objective * (1 - 1e-12)).all()
        assert result.local_maximum.any()


@pytest.mark.parametrize("prior", [mf.Bernoulli, mf.Ising])
@BOTH
def test_a_polished_assignment_is_a_local_maximum(prior, algorithm):
    low, high = prior.support
    n_better = 0
    for seed in range(12):
        model = loopy(seed=seed, prior=prior, scale=1.5)
        rough = SOLVERS[algorithm](model, max_iter=2, search=False)
        result = SOLVERS[algorithm](model, max_iter=2)
        assert result.local_maximum and rough.local_maximum is None

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


@BOTH
def test_restarts_find_better_assignments_and_keep_them(algorithm):
    """With enough of them the best of all, by enumeration, in every row."""
    prior = mf.Ising
    model = loopy(8, 6, prior=prior, scale=1.5)
    field = np.random.default_rng(2).normal(size=(6, 8))
    visible = np.array(list(itertools.product((-1, 1), repeat=8)))
    on = visible @ model.weights + model.hidden.field
    values = (abs(on) if algorithm == "max" else np.logaddexp(on, -on)).sum(1)
    best = (values[:, None] + visible @ (model.visible.field + field).T).max(0)
    solve, options = SOLVERS[algorithm], {"field": field, "max_iter": 20}
    once = solve(model, search=False, **options)
    result = solve(model, n_starts=31, rng=0, **options)
    assert result.objective.shape == (6,) and result.mean[0].shape == (6, 8)
    np.testing.assert_allclose(result.objective, best, atol=1e-10)
    assert (result.objective > once.objective + 1e-9).any()
    again = solve(model, n_starts=31, rng=0, n_threads=1, **options)
    np.testing.assert_array_equal(again.objective, result.objective)
    single = solve(model, n_starts=31, rng=0, max_iter=20)
    assert single.objective == pytest.approx((values + visible @ model.visible.field).max())
    assert single.mean[0].shape == (8,) and single.local_maximum
    # Starts are the same for each row.
    rough = {"n_starts": 3, "rng": 0, "search": False, "max_iter": 1}
    rows = solve(model, field=field, **rough)
    few = solve(model, field=field[4:], **rough)
    np.testing.assert_array_equal(rows.objective[4:], few.objective)
    with pytest.raises(ValueError, match="rng"):
        solve(model, n_starts=3)
    with pytest.raises(ValueError, match="n_starts: not available with init"):
        solve(model, n_starts=3, rng=0, init=np.ones(8))


def test_sequential_mixed_product_is_a_local_search():
    """One sweep and polish: every unit then agrees with its log-odds given all others."""
    model = loopy(60, 30, scale=1.0)
    result = mf.most_probable(model, sum_hidden=True, max_iter=1)
    v, w = result.assignment[0], model.weights
    for i in range(60):
        rest = np.delete(v, i) @ np.delete(w, i, 0) + model.hidden.field
        odds = model.visible.field[i] + np.logaddexp(0, rest + w[i]).sum()
        odds -= np.logaddexp(0, rest).sum()
        assert v[i] == (odds > 0)
