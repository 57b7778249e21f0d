"""Converged rows against an independent undamped sweep, which changes nothing beyond `tol`."""

import numpy as np
import pytest
from bp_models import propagation

import fastmf as mf
from fastmf.inference.fixed_point import ending_of

SCALES = [0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 330.0, 1000.0]
SHAPES = [(3, 2), (4, 3), (6, 5), (12, 12), (30, 20)]


def weights_of(kind, shape, scale, rng):
    if kind == "normal":
        return scale * (rng.normal(size=shape) / 3).clip(-1, 1)
    signs = np.ones(shape) if kind == "aligned" else rng.choice([-1, 1], shape)
    return scale * signs * rng.uniform(0.9, 1, shape)


def machines(scale, dtype, n_rows=4, seed=0):
    """RBMs with fields that centre the units, fields of the size of the weights, or tiny ones."""
    rng = np.random.default_rng([seed, int(10 * scale)])
    for shape in SHAPES:
        for kind in ("normal", "signs", "aligned"):
            weights = weights_of(kind, shape, scale, rng).astype(dtype)
            fields = [rng.normal(size=(n_rows, n)) for n in shape]
            for k, field in enumerate(fields):
                field[0] -= weights.sum(1 - k) / 2
                field[1] *= 0.3 * scale
                field[2] *= 0.01
            priors = (mf.Bernoulli(np.zeros(n, dtype)) for n in shape)
            # The same numbers in both types.
            yield mf.RBM(weights, *priors), [field.astype(np.float32) for field in fields]


def softplus(x):
    return np.logaddexp(0, x)


def positive(x):
    return np.maximum(0, x)


def sweep(weights, fields, messages, part):
    """Log-odds of both layers and log-messages to hidden units; `part` is softplus or its limit."""
    cavity = fields[1] + messages.sum(0) - messages
    incoming = part(cavity + weights) - part(cavity)
    visible = fields[0] + incoming.sum(1)
    cavity = visible[:, None] - incoming
    messages = part(cavity + weights) - part(cavity)
    return visible, fields[1] + messages.sum(0), messages


def log_partition(weights, fields, messages):
    """Bethe log-partition of messages to hidden units."""
    hidden = fields[1] + messages.sum(0)
    incoming = softplus(hidden - messages + weights) - softplus(hidden - messages)
    visible = (fields[0] + incoming.sum(1))[:, None]
    pairs = softplus(visible - incoming) - softplus(visible)
    return softplus(visible).sum() + softplus(hidden).sum() + pairs.sum()


def pairs(weights, fields, messages):
    """Probabilities that both units of a pair are 1."""
    visible = sweep(weights, fields, messages, softplus)[0]
    cavity = fields[1] + messages.sum(0) - messages + weights
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-visible))[:, None] / (1 + np.exp(-cavity))


def change(old, new):
    """Largest change of a belief, and relative change of its log-odds."""
    with np.errstate(over="ignore"):
        beliefs = abs(1 / (1 + np.exp(-new)) - 1 / (1 + np.exp(-old)))
    return max(beliefs.max(), (abs(new - old) / (1 + (abs(old) + abs(new)) / 2)).max())


def check(model, fields, result, part, tol):
    """Check all rows that are reported as converged; returns their number."""
    weights, eps = model.weights.astype(float), np.finfo(model.dtype).eps
    # Rounding of the messages, which have both signs, and of their sums.
    rounding = 40 * eps * (1 + abs(weights).max()) * np.sqrt(max(weights.shape))
    rows, endings = np.flatnonzero(result.converged), ending_of(result)
    for row in rows:
        row_fields = [field[row].astype(float) for field in fields]
        reported = [b[row].astype(float) for b in result.b]
        messages = result.messages[row].astype(float)
        *now, after = sweep(weights, row_fields, messages, part)
        # Twice `tol`: with complex eigenvalues the residual may rise for a sweep.
        assert max(map(change, reported, now)) <= 2 * tol + rounding
        assert abs(after - messages).max() <= 2 * tol + rounding
        if part is softplus:
            values = [log_partition(weights, row_fields, x) for x in (messages, after)]
            for value in (values[1], result.log_partition[row]):
                assert abs(value - values[0]) <= (tol + rounding) * (1 + abs(value))
            moved = pairs(weights, row_fields, after) - pairs(weights, row_fields, messages)
            assert abs(moved).max() <= 2 * tol + rounding
        messages = after
        assert result.residual[row] <= tol + rounding
        if endings[row] != "converged":
            # The visible beliefs are those of the messages: a second sweep must give the same.
            then = sweep(weights, row_fields, messages, part)
            assert change(now[0], then[0]) <= tol + rounding
    return len(rows)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "scale",
    [pytest.param(s, marks=[] if s in (1, 30, 330) else pytest.mark.slow) for s in SCALES[:7]],
)
@pytest.mark.parametrize("damping", [None, 0.9])
def test_sum_product(scale, damping, dtype):
    n_converged = n_rows = 0
    options = {"damping": damping, "pairwise": True, "max_iter": 300}
    for model, fields in machines(scale, dtype):
        result = mf.belief_propagation(model, field=tuple(fields), **options)
        n_converged += check(model, fields, result, softplus, 1e-8)
        n_rows += len(result.converged)
        assert (np.char.startswith(ending_of(result), "converged") == result.converged).all()
    assert n_converged > n_rows / 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("damping", [None, 0.0, 0.5])
def test_max_product(scale, damping, dtype):
    n_converged = 0
    options = {"damping": damping, "messages": True, "max_iter": 300}
    for model, fields in machines(scale, dtype):
        result = propagation(model, "max", tuple(fields), **options)
        n_converged += check(model, fields, result, positive, 1e-8)
    assert n_converged > 20


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", SCALES[:-1])
def test_mixed_product(scale, dtype):
    """Every visible unit agrees with its log-odds given all others."""
    n_converged = 0
    for model, fields in machines(scale, dtype):
        options = {"sum_hidden": True, "search": False, "max_iter": 50}
        result = mf.most_probable(model, field=tuple(fields), **options)
        weights, rounding = model.weights.astype(float), 100 * np.finfo(dtype).eps * scale
        for row in np.flatnonzero(result.converged):
            v = result.b[0][row] > 0
            rest = fields[1][row] + v @ weights - v[:, None] * weights
            odds = fields[0][row] + (softplus(rest + weights) - softplus(rest)).sum(1)
            assert ((odds > 0) == v)[abs(odds) > rounding].all()
            hidden = fields[1][row] + v @ weights
            assert change(hidden, result.b[1][row].astype(float)) <= 1e-8 + rounding
            n_converged += 1
    assert n_converged > 20
