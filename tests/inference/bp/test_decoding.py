"""Decoded assignments of small machines against enumeration."""

import functools
import itertools

import numpy as np
import pytest
from bp_models import SOLVERS, loopy

import fastmf as mf
from fastmf.inference.bp import belief_propagation as module
from fastmf.inference.bp.belief_propagation import best_assignments
from fastmf.inference.bp.rbm import BinaryUnits

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


@functools.cache
def values(model, algorithm):
    """The objective of every visible assignment, and the assignments."""
    v = np.array(list(itertools.product((0, 1), repeat=len(model.weights))))
    on = v @ model.weights + model.hidden.field
    hidden = np.maximum(0, on) if algorithm == "max" else np.logaddexp(0, on)
    return v @ model.visible.field + hidden.sum(1), v


@functools.cache
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


# --- most probable assignments of RBMs, against all states of both layers -------------------------


def strong_machine(n, m, strength, seed, prior=mf.Bernoulli, dtype=np.float64):
    """Random weights, and fields that leave the values of all units open."""
    rng = np.random.default_rng([seed, n, m])
    W = strength * rng.normal(size=(n, m))
    fields = rng.normal(size=n), rng.normal(size=m)
    if prior is mf.Bernoulli:
        fields = fields[0] - W.sum(1) / 2, fields[1] - W.sum(0) / 2
    return mf.RBM(W.astype(dtype), *(prior(f.astype(dtype)) for f in fields))


def best_of_all(model, joint, field=None):
    """The largest exponent of all states of both layers, or of log p(v) without log Z."""
    low, high = model.visible.support
    n, m = model.weights.shape
    v, h = (np.array(list(itertools.product((low, high), repeat=k)), float) for k in (n, m))
    W, b, c = (np.asarray(x, float) for x in (model.weights, *(p.field for p in model.layers)))
    b = b if field is None else b + field
    exponents = (v @ W) @ h.T + (v @ b)[:, None] + h @ c
    return exponents.max() if joint else np.logaddexp.reduce(exponents, axis=1).max()


@pytest.mark.parametrize("prior", [mf.Bernoulli, mf.Ising])
@pytest.mark.parametrize(("n", "m"), [(9, 5), (5, 9)])
@pytest.mark.parametrize("algorithm", ["max", "mixed"])
def test_machines_with_a_small_layer_are_decoded_exactly(algorithm, n, m, prior):
    for seed in range(12):
        model = strong_machine(n, m, (1.0, 3.0, 10.0)[seed % 3], seed, prior)
        found = SOLVERS[algorithm](model)
        best = best_of_all(model, algorithm == "max")
        assert found.objective == pytest.approx(best, rel=1e-12)
        assert found.local_maximum and found.reliable


def test_rows_of_fields_and_huge_fields():
    model = strong_machine(8, 6, 3.0, 0)
    fields = 3 * np.random.default_rng(0).normal(size=(4, 8))
    fields[3, :2] = 1e20, -1e20
    found = mf.most_probable(model, field=fields)
    for k in range(3):
        assert found.objective[k] == pytest.approx(best_of_all(model, True, fields[k]), rel=1e-12)
    v = found.assignment[0][3]
    assert v[:2].tolist() == [1, 0]
    rest = mf.RBM(
        model.weights[2:], mf.Bernoulli(model.visible.field[2:] + fields[3, 2:]),
        mf.Bernoulli(model.hidden.field + model.weights[0]),
    )  # fmt: skip
    joined = [part[3] for part in found.assignment]
    value = -rest.energy(joined[0][2:], joined[1])
    assert value == pytest.approx(best_of_all(rest, True), rel=1e-12)


@pytest.mark.parametrize("joint", [True, False])
def test_annealed_chains_find_what_enumeration_finds(joint, monkeypatch):
    missed = worse = 0
    for seed in range(20):
        model = strong_machine(14, 11, 1.5, seed, dtype=np.float32 if seed % 2 else np.float64)
        units, start = BinaryUnits(model, (None, None)), np.zeros((1, 14), bool)
        known = best_assignments(units, joint, start)
        monkeypatch.setattr(module, "MAX_LAYER_STATES", 0)
        found = best_assignments(units, joint, start)
        monkeypatch.undo()
        assert known.is_best and not found.is_best
        assert found.objective[0] <= known.objective[0] + 1e-6
        missed += found.objective[0] < known.objective[0] - 1e-6
        again = best_assignments(units, joint, known.visible)
        worse += (again.visible != known.visible).any()
        assert 1 <= found.n_agreeing[0] <= module.N_ANNEALED_CHAINS
    assert missed == 0 and worse == 0


@pytest.mark.parametrize("algorithm", ["max", "mixed"])
@pytest.mark.parametrize("turned", [False, True])
def test_planted_states_of_large_machines_are_found(algorithm, turned):
    """Weights and fields whose terms are all largest in one state, but for some that are turned."""
    n, m = (40, 100) if turned else (100, 40)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        s, t = rng.choice((-1.0, 1.0), n), rng.choice((-1.0, 1.0), m)
        W = (
            np.outer(s, t)
            * abs(rng.normal(size=(n, m)))
            * rng.choice((-1, 1), (n, m), p=(0.2, 0.8))
        )
        model = mf.RBM(W, mf.Ising(1e-3 * s), mf.Ising(1e-3 * t))
        found = SOLVERS[algorithm](model)
        # Each unit's field is far to its side: a state of few other units cannot be as good.
        assert (s * (W @ t) > 0).all() and (t * (W.T @ s) > 0).all()
        np.testing.assert_array_equal(found.assignment[0], s)
        assert found.reliable == found.converged


def test_glassy_machines_are_decoded_as_by_exact_sums_of_a_layer(monkeypatch):
    """Of 16 hidden units all states are compared; chains alone find the best of all, too."""
    monkeypatch.setattr(module, "MAX_LAYER_STATES", 0)
    for seed in range(6):
        model = strong_machine(80, 16, 3.0, seed)
        found = mf.most_probable(model)
        monkeypatch.setattr(module, "MAX_LAYER_STATES", 1 << 24)
        units, v = BinaryUnits(model, (None, None)), found.assignment[0][None] > 0
        known = best_assignments(units, True, v)
        monkeypatch.setattr(module, "MAX_LAYER_STATES", 0)
        assert known.is_best
        assert found.objective == pytest.approx(known.objective[0], rel=1e-12)


def test_a_best_state_that_few_chains_find_is_not_reliable(monkeypatch):
    """Of a large glassy machine with too few rounds each chain ends elsewhere."""
    rng = np.random.default_rng(0)
    model = mf.RBM(rng.normal(size=(200, 150)), mf.Ising(np.zeros(200)), mf.Ising(np.zeros(150)))
    monkeypatch.setattr(module, "MAX_ANNEALED_PRODUCTS", 2e8)
    monkeypatch.setattr(module, "MIN_ANNEALED_ROUNDS", 1)
    found = mf.most_probable(model, max_iter=2)
    assert not found.reliable
    assert "chains found it" in found.message or "more probable, by" in found.message


def test_poor_states_are_not_reliable(monkeypatch):
    """Without moves while solving, the check finds a better state, or there is none."""
    monkeypatch.setattr(module, "MAX_LAYER_STATES", 0)
    poor = flagged = false = 0
    for seed in range(20):
        model = strong_machine(20, 10, 3.0, seed)
        moves = module.MAX_ANNEALED_PRODUCTS
        monkeypatch.setattr(module, "MAX_ANNEALED_PRODUCTS", 0)
        found = mf.most_probable(model, sum_hidden=True)
        monkeypatch.setattr(module, "MAX_ANNEALED_PRODUCTS", moves)
        monkeypatch.setattr(module, "MAX_LAYER_STATES", 1 << 24)
        best = mf.most_probable(model, sum_hidden=True).objective
        monkeypatch.setattr(module, "MAX_LAYER_STATES", 0)
        is_poor = found.objective < best - 1e-6
        poor += is_poor
        flagged += is_poor and not found.reliable
        false += not is_poor and bool(found.converged) and not found.reliable
        if is_poor and found.converged:
            assert "another assignment is more probable" in found.message
    assert poor >= 5 and flagged == poor and false == 0


def test_large_layers_and_given_starts_are_left_alone(monkeypatch):
    model = strong_machine(12, 10, 3.0, 1)
    start = np.zeros((1, 12))
    one = mf.most_probable(model, sum_hidden=True, init=start, max_iter=1)
    assert one.local_maximum.all()
    monkeypatch.setattr(module, "MAX_LAYER_STATES", 0)
    monkeypatch.setattr(module, "MAX_ANNEALED_PRODUCTS", 0)
    assert mf.most_probable(model).reliable is None
