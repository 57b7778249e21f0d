"""Decoding of small machines beside their optimum by enumeration, of both objectives."""

import functools
import itertools

import numpy as np
import pytest

import fastmf as mf

SCALES = 0.5, 1.0, 2.0, 4.0, 8.0
BOTH = pytest.mark.parametrize("algorithm", ["max", "mixed"])


@functools.cache
def machines():
    """Of 8 to 12 visible and 6 to 10 hidden units, every second one with fields that centre it."""
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
    results = [mf.belief_propagation(x, algorithm=algorithm, **options) for x in machines()]
    best = [values(model, algorithm)[0].max() for model in machines()]
    return np.subtract(best, [r.objective for r in results]), results


@BOTH
def test_how_many_of_thirty_are_decoded_exactly(algorithm):
    """By default nearly all by max-product, with restarts at most two missed by either."""
    raw, _ = decoded(algorithm, polish=False)
    default, results = decoded(algorithm)
    searched, _ = decoded(algorithm, n_restarts=20, rng=0)
    # Polishing starts from the raw assignment, restarts keep the best.
    assert (default <= raw + 1e-9).all() and (searched <= default + 1e-9).all()
    exact = [(short < 1e-9).sum() for short in (raw, default, searched)]
    least = {"max": (27, 29), "mixed": (20, 28)}[algorithm]
    assert exact[1] >= least[0] and exact[2] >= least[1]
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
        result = mf.belief_propagation(model, algorithm="max", field=field, max_iter=5)
        raw = mf.belief_propagation(model, algorithm="max", field=field, max_iter=5, polish=False)
        assert (result.objective >= raw.objective * (1 - 1e-12)).all()
        assert result.local_maximum.any()
