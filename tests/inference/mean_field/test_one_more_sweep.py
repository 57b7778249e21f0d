"""Rows that say converged are fixed points: one more undamped sweep changes nothing.

Models of all priors and both floating types, with random fields, starts, schedules and dampings;
half of them are symmetric about zero: their means are 0 from the start, and only variances move.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from group_models import MatrixForm

import fastmf as mf
from fastmf.priors._protocol import has_third_cumulant

TOL = {"float64": 1e-8, "float32": 3e-5}
# How many times `tol` one more sweep may change: twice that of the last one, near to divergence; in
# float32 that of a few rounding errors which damping holds back.
SLOPE = {"float64": 4, "float32": 16}
N_ROWS, N_ABOVE = 12, 6


def symmetric(kind, n, rng):
    """Units symmetric about zero."""
    zero, one, bound = np.zeros(n), np.ones(n), 1 + 2 * rng.random(n)
    return {
        "ising": lambda: mf.Ising(zero),
        "gaussian": lambda: mf.Gaussian(zero, one + rng.random(n)),
        "truncated": lambda: mf.TruncatedGaussian(zero, one, -bound, bound),
        "spiked": lambda: mf.GaussBernoulli(zero, one + rng.random(n), rng.normal(size=n)),
        "spiked_truncated": lambda: mf.TruncatedGaussBernoulli(
            zero, one, rng.normal(size=n), -bound, bound
        ),
    }[kind]()


def asymmetric(kind, n, rng):
    """Units of random fields."""
    field, one, bound = rng.normal(size=n), np.ones(n), 1 + 2 * rng.random(n)
    odds = 2 * rng.normal(size=n)
    return {
        "bernoulli": lambda: mf.Bernoulli(2 * field),
        "ising": lambda: mf.Ising(field / 2),
        "binomial": lambda: mf.Binomial(field, rng.integers(1, 9, n)),
        "gaussian": lambda: mf.Gaussian(field, one + rng.random(n)),
        "truncated": lambda: mf.TruncatedGaussian(field, one, -bound, 2 * bound),
        "rectified": lambda: mf.TruncatedGaussian(field, one, 0 * one, np.full(n, np.inf)),
        "spiked": lambda: mf.GaussBernoulli(field, one + rng.random(n), odds),
        "spiked_truncated": lambda: mf.TruncatedGaussBernoulli(field, one, odds, 0 * one, bound),
        "groups": lambda: mf.Categorical(rng.normal(size=(n // 3, 3))),
        "mixed": lambda: mf.Concatenated(
            mf.Categorical(rng.normal(size=(n // 6, 3))), mf.Bernoulli(field[n // 6 * 3 :])
        ),
    }[kind]()


GROUPED = ["groups", "mixed"]
KINDS = {
    symmetric: ["ising", "gaussian", "truncated", "spiked", "spiked_truncated"],
    asymmetric: ["bernoulli", "ising", "binomial", "gaussian", "truncated", "rectified", "spiked",
                 "spiked_truncated", *GROUPED],
}  # fmt: skip


class Case(NamedTuple):
    """A model, starts and fields of its first layer (or None), and options of `tap`."""

    model: object
    init: object
    field: np.ndarray | None
    options: dict


def random_case(rng, dtype, grouped=True):
    """A random model with options."""
    family = symmetric if rng.random() < 0.5 else asymmetric
    model = random_model(
        rng, dtype, family, [k for k in KINDS[family] if grouped or k not in GROUPED]
    )
    first = model.layers[0]
    n = len(model.couplings) if isinstance(model, mf.BoltzmannMachine) else model.sizes[0]
    # Fields that leave symmetric units symmetric, or nearly.
    scale = rng.choice([0.0, 1e-7, 0.3]) if family is symmetric else 0.3
    field = scale * rng.normal(size=(N_ROWS, n)) if rng.random() < 0.8 else None
    means, variances = rng.random((2, N_ROWS, n))
    init = [None, means, (means / 10, 9 * variances)][rng.integers(3)]
    if init is means and isinstance(first, mf.Categorical | mf.Concatenated):
        init = None
    third = all(map(has_third_cumulant, model.layers))
    return Case(model, init, field, {
        "order": int(rng.choice([1, 2, 2, 3] if third else [1, 2, 2])),
        "schedule": str(rng.choice(["blocked", "sequential"])),
        "acceleration": bool(rng.random() < 0.7),
        "damping": rng.choice([None, None, 0.0, 0.5, 0.9, 0.95]),
        "tol": TOL[dtype],
    })  # fmt: skip


def random_model(rng, dtype, family, kinds):
    """An RBM, a DBM or a fully visible machine."""
    sizes = [*rng.choice([6, 12, 18], 2), N_ABOVE]
    layers = [family(rng.choice(kinds), n, rng) for n in sizes]
    strength = rng.choice([0.1, 0.5, 1.0, 2.0]) / np.sqrt(sum(sizes[:2]))
    weights = [(strength * rng.normal(size=pair)).astype(dtype) for pair in pairwise(sizes)]
    shape = rng.choice(["rbm", "rbm", "dbm", "fully visible"])
    if shape == "rbm":
        return mf.RBM(weights[0], *layers[:2])
    if shape == "dbm":
        return mf.DBM(weights, layers)
    upper = np.triu(strength * rng.normal(size=(sizes[0], sizes[0])), 1).astype(dtype)
    # States of one group are not coupled.
    ungrouped = [kind for kind in kinds if kind not in GROUPED]
    return mf.BoltzmannMachine(upper + upper.T, family(rng.choice(ungrouped), sizes[0], rng))


def joined(parts):
    """The arrays of all layers in one, a row each; of rows that have not converged, finite."""
    parts = parts if isinstance(parts, tuple) else (parts,)
    return np.concatenate([np.nan_to_num(np.atleast_2d(part)) for part in parts], axis=1)


def one_more_sweep(case, found):
    """Means, variances and log-partitions after one more undamped sweep."""
    order = case.options["order"]
    if not any(isinstance(layer, mf.Categorical | mf.Concatenated) for layer in case.model.layers):
        once = {"max_iter": 1, "damping": 0.0, "acceleration": False, "tol": 0.0}
        once |= {"order": order, "schedule": case.options["schedule"]}
        again = mf.tap(case.model, found, field=case.field, **once)
        return joined(again.mean), joined(again.var), np.atleast_1d(again.log_partition)
    # Sweeps of groups begin without the fields of their states: all units at once, in matrix form.
    form, mean, var = MatrixForm(case.model), *map(joined, (found.mean, found.var))
    field = np.zeros(mean.shape)
    if case.field is not None:
        field[:, : case.field.shape[1]] = case.field
    rows = [
        (*form.moments(*form.tilts(*row, 0.0)), form.log_partition(*row))
        for row in ((m.astype(float), v.astype(float), order, f)
                    for m, v, f in zip(mean, var, field, strict=True))
    ]  # fmt: skip
    return map(np.stack, zip(*rows, strict=True))


def changes(found, new_mean, new_var, values):
    """Largest changes of each row: mean, variance, log-partition, all relative to their scale."""
    mean, var = joined(found.mean), joined(found.var)
    scale, size = np.maximum(1, var), np.maximum(mean.shape[1], abs(values))
    return np.stack([
        (abs(new_mean - mean) / np.sqrt(scale)).max(1), (abs(new_var - var) / scale).max(1),
        abs(values - found.log_partition) / size,
    ])  # fmt: skip


def check_models(rng, dtype, n_models):
    """Solve so many models, and test all rows that say converged; the share of them."""
    n_rows = n_converged = 0
    for k in range(n_models):
        case = random_case(rng, dtype)
        found = mf.tap(case.model, case.init, field=case.field, max_iter=2000, **case.options)
        converged = np.atleast_1d(found.converged)
        with np.errstate(over="ignore", invalid="ignore"):  # rows that have not converged
            again = one_more_sweep(case, found)
            beyond = changes(found, *again)[:, converged] / TOL[dtype]
        assert beyond.max(initial=0) <= SLOPE[dtype], (k, case)
        n_rows, n_converged = n_rows + len(converged), n_converged + converged.sum()
    return n_converged / n_rows


@pytest.mark.parametrize("dtype", TOL)
def test_one_more_sweep_of_tap_changes_nothing(dtype):
    assert check_models(np.random.default_rng(0), dtype, 50) > 0.7


def check_messages(rng, dtype, n_models):
    """The same for rows of relaxed belief propagation, which start anew with one sweep more."""
    n_converged = 0
    for k in range(n_models):
        case = random_case(rng, dtype, grouped=False)
        init = case.init
        if init is not None:
            init = tuple(part[0] for part in init) if isinstance(init, tuple) else init[0]
        field = None if case.field is None else case.field[0]
        options = {"field": field, "damping": case.options["damping"]}
        found = mf.relaxed_bp(case.model, init, **options, tol=TOL[dtype], max_iter=300)
        if found.converged:
            n_converged += 1
            again = mf.relaxed_bp(case.model, init, **options, tol=0, max_iter=found.n_iter + 1)
            parts = joined(again.mean), joined(again.var), np.atleast_1d(again.log_partition)
            assert changes(found, *parts).max() <= SLOPE[dtype] * TOL[dtype], (k, case)
    return n_converged / n_models


@pytest.mark.parametrize("dtype", TOL)
def test_one_more_sweep_of_relaxed_bp_changes_nothing(dtype):
    assert check_messages(np.random.default_rng(2), dtype, 40) > 0.5


# --- cases of their own ---------------------------------------------------------------------------


def symmetric_rbm(scale=1.0, dtype="float64"):
    """Truncated units symmetric about zero, in units of any scale."""
    weights = 0.45 * np.random.default_rng(0).normal(size=(6, 4)) / scale**2
    visible, hidden = (
        mf.TruncatedGaussian(
            np.zeros(n), np.full(n, scale**-2.0), np.full(n, -3 * scale), np.full(n, 3 * scale)
        )
        for n in (6, 4)
    )
    return mf.RBM(weights.astype(dtype), visible, hidden)


@pytest.mark.parametrize("dtype", TOL)
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_units_symmetric_about_zero_have_the_variances_of_the_fixed_point(scale, dtype):
    model = symmetric_rbm()
    squares, v, h = model.weights**2, np.zeros(6), np.zeros(4)
    for _ in range(100):  # all means are 0
        h = model.hidden.moments(np.zeros(4), -v @ squares)[1]
        v = model.visible.moments(np.zeros(6), -squares @ h)[1]
    onsager = -squares @ h, -v @ squares
    expected = v @ squares @ h / 2
    for prior, a, var in zip(model.layers, onsager, (v, h), strict=True):
        expected += (prior.log_partition(0 * a, a) + a * var / 2).sum()
    found = mf.tap(symmetric_rbm(scale, dtype))
    close = 1e-7 if dtype == "float64" else 1e-5
    assert found.converged
    np.testing.assert_allclose(found.var[0] / scale**2, v, rtol=max(close, 1e-4 * (scale < 1)))
    np.testing.assert_allclose(found.log_partition - 10 * np.log(scale), expected, rtol=close)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_relaxed_messages_symmetric_about_zero_converge_too(scale):
    expected = mf.relaxed_bp(symmetric_rbm(), tol=1e-13, max_iter=5000)
    found = mf.relaxed_bp(symmetric_rbm(scale))
    assert found.converged and expected.n_iter > 10
    tilted = symmetric_rbm(scale).visible.moments(found.b[0], found.a[0])[1]
    np.testing.assert_allclose(found.var[0], tilted, rtol=1e-12)
    value = found.log_partition - 10 * np.log(scale)
    assert value == pytest.approx(expected.log_partition, abs=1e-5)


@pytest.mark.parametrize("options", [{}, {"schedule": "sequential"}, {"damping": 0.9},
                                     {"acceleration": False}])  # fmt: skip
def test_spins_without_means_have_variance_one(options):
    """Below the transition TAP has the solution m = 0, with this log-partition for any start."""
    rng = np.random.default_rng(0)
    n, temperature = 200, 0.3
    upper = np.triu(rng.normal(size=(n, n)) / np.sqrt(n), 1) / temperature
    model = mf.BoltzmannMachine(upper + upper.T, mf.Ising(np.zeros(n)))
    found = mf.tap(model, rng.choice([-1.0, 1.0], (10, n)), **options)
    assert found.converged.all() and abs(found.mean).max() < 1e-6
    np.testing.assert_allclose(found.var, 1, atol=1e-7)
    expected = n * np.log(2) + (upper**2).sum() / 2
    np.testing.assert_allclose(found.log_partition, expected, rtol=1e-9)


@pytest.mark.parametrize("solver", ["tap", "relaxed_bp"])
@pytest.mark.parametrize("max_iter", [7, 5000])
@pytest.mark.parametrize("damping", [None, 0.5, 0.9, 0.95])
def test_variances_are_those_of_the_tilts(damping, max_iter, solver):
    """Of damped rows, too, and of rows whose iterations have run out."""
    rng = np.random.default_rng(3)
    priors = mf.Bernoulli(rng.normal(size=30)), mf.Bernoulli(rng.normal(size=20))
    model = mf.RBM(rng.normal(size=(30, 20)) / 6, *priors)
    start = (rng.random((3, 30)), np.full((3, 30), 9.0))
    options = {"damping": damping, "tol": 1e-10, "max_iter": max_iter}
    found = getattr(mf, solver)(model, start, **options)
    assert found.converged.all() == (max_iter > 7)
    for prior, mean, var, b, a in zip(
        model.layers, found.mean, found.var, found.b, found.a, strict=True
    ):
        tilted = prior.moments(b, a)
        np.testing.assert_allclose(var, tilted[1], atol=1e-14)
        last_change = 1e-10 if max_iter > 7 else found.residual + 1e-14
        assert (abs(mean - tilted[0]).max(1) <= last_change).all()


def test_the_residual_is_the_largest_change_of_a_mean_or_variance():
    model = symmetric_rbm()
    before, after = (mf.tap(model, max_iter=k, acceleration=False) for k in (2, 3))
    change = np.concatenate(after.var) - np.concatenate(before.var)
    relative = abs(change) / np.maximum(1, np.concatenate(after.var))
    assert after.residual == pytest.approx(relative.max(), rel=1e-12)
