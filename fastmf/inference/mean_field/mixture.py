"""Mixtures of the distinct mean-field solutions that several starts lead to."""

from functools import partial
from types import SimpleNamespace

import numpy as np

from fastmf._common import arguments as check
from fastmf.inference.fixed_point import Question, ending_of, replaced, with_check, with_solutions
from fastmf.inference.mean_field._rows import start_and_tilt
from fastmf.inference.mean_field.discrete_units import extreme_starts, has_many_values
from fastmf.inference.mean_field.naive_bound import layout_of_checks, random_starts
from fastmf.inference.mean_field.solutions import distinct, solutions_of

# Standard deviations by which means are moved from solutions, which are then solved again.
SPREAD = 1e-2
# Starts of the mixtures with which answers are compared.
N_CHECKED_STARTS = 20
NAMES = "mean", "var", "b", "a"


def mixture_of_starts(solve, model, starts, tilts, options):
    """The `FixedPoint` of mixtures of the solutions of each row.

    Solutions are solved again from means a hundredth of a standard deviation away: those that these
    leave are unstable, and no answer.
    """
    init, n_starts, rng = starts
    if init is not None:
        raise ValueError("n_starts: not available with init.")
    n_starts, rng = check.count("n_starts", n_starts), check.generator(rng)
    tilts = dict(zip(("field", "precision", "clamp"), tilts, strict=True))
    if not options.get("log_partition", True) or options.get("history"):
        raise ValueError("n_starts: needs log_partition=True and history=False.")
    parts = [p for x in tilts.values() for p in (x if isinstance(x, tuple) else (x,))]
    lengths = {len(p) for p in parts if np.ndim(p) == 2}
    rows = []
    for k in range(max(lengths, default=1)):
        own = options | {name: _row(x, k) for name, x in tilts.items() if x is not None}
        rows.append(_mixed_row(partial(solve, model, **own), _starts(model, n_starts, rng), rng))
    found = _joined(rows) if lengths else rows[0][0]
    with_solutions(found, [row[1] for row in rows], not lengths)
    stable = [row[2] for row in rows]
    return with_check(found, Question(model, tilt_of(model, **tilts), True, stable=stable))


def mixture(solve, n_starts, model, **tilts):
    """The mixture of the solutions from random starts, of a solver with no options left."""
    tilts = [tilts.get(name) for name in ("field", "precision", "clamp")]
    return mixture_of_starts(solve, model, (None, n_starts, 0), tilts, {})


def tilt_of(model, field=None, precision=None, clamp=None):
    """The `Tilt` of tilts as users pass them, as a `Question` has it."""
    layout = layout_of_checks(model)
    return start_and_tilt(model, layout, None, field, precision, clamp, None)[1]


def _starts(model, n_starts, rng):
    """How many random starts; where units have more than two values, also some at extremes."""
    if not has_many_values(model.layers):
        return n_starts
    draws = random_starts(model, n_starts, rng)[:-1]
    return np.vstack([draws, extreme_starts(model.layers[0])]).astype(model.dtype)


def _row(x, k):
    if isinstance(x, tuple):
        return tuple(_row(part, k) for part in x)
    return x if np.ndim(x) < 2 else x[min(k, len(x) - 1)]


def _mixed_row(solve, starts, rng):
    """The mixture of a row, its `Solutions`, and whether one of them is stable."""
    first = solve(starts, rng=rng)
    kept, members = _stable_ones(first)
    if len(kept):
        means, variances = (_of(getattr(first, name), lambda x: x[kept]) for name in NAMES[:2])
        layered = isinstance(means, tuple)
        pairs = zip(*((means, variances) if layered else ((means,), (variances,))), strict=True)
        moved = tuple(moved_from(mean, var, rng) for mean, var in pairs)
        ends = solve((moved if layered else moved[0], variances))
        rows, then = _stable_ones(ends)
        if len(rows):
            members = np.where(members < 0, -1, then[members])
            found, solutions = _mixture(ends, rows, members)
            return found, solutions, True
    rows, members = np.zeros(1, int), np.full(len(first.converged), -1)
    return *_mixture(first, rows, members), False


def moved_from(mean, var, rng):
    """Means a hundredth of a standard deviation away, which leave an unstable solution."""
    noise = SPREAD * np.sqrt(np.maximum(var, 0)) * rng.standard_normal(mean.shape)
    return (mean + noise).astype(mean.dtype)


def _of(part, function):
    return tuple(map(function, part)) if isinstance(part, tuple) else function(part)


def _stable_ones(ends):
    """Distinct ones among converged ends, and the number of each end's own, -1 if none."""
    usable = np.flatnonzero(ends.converged & np.isfinite(ends.log_partition))
    members = np.full(len(ends.converged), -1)
    if len(usable):
        some = SimpleNamespace(
            mean=_of(ends.mean, lambda x: x[usable]),
            var=_of(ends.var, lambda x: x[usable]),
            log_partition=ends.log_partition[usable],
        )
        rows, members[usable] = distinct(some)
        return usable[rows], members
    return usable, members


def _mixture(ends, rows, members):
    """Moments of a mixture as a `FixedPoint` without rows, and its `Solutions`."""
    solutions, layered = solutions_of(ends, rows, members), isinstance(ends.mean, tuple)
    w = solutions.weights if len(rows) > 1 else np.ones(1)
    mean = _of(ends.mean, lambda x: np.asarray(w @ x[rows], x.dtype))
    square = _of(ends.mean, lambda x: w @ x[rows] ** 2 - (w @ x[rows]) ** 2)
    within = _of(ends.var, lambda x: w @ x[rows])
    total = (within, square) if layered else ((within,), (square,))
    var = tuple((x + y).astype(solutions.visible.dtype) for x, y in zip(*total, strict=True))
    one = len(rows) == 1
    found = replaced(
        ends,
        mean=mean,
        var=var if layered else var[0],
        # A mixture is no tilt of a unit.
        b=_of(ends.b, lambda x: x[rows[0]]) if one else None,
        a=_of(ends.a, lambda x: x[rows[0]]) if one else None,
        log_partition=np.logaddexp.reduce(solutions.log_partition),
        converged=ends.converged[rows[0]],
        n_iter=ends.n_iter[rows].max(),
        residual=ends.residual[rows].max(),
        message=ending_of(ends)[rows[0]],
    )
    return found, solutions


def _joined(rows):
    """The rows one after another."""

    def stack(name):
        parts = [getattr(found, name) for found, *_ in rows]
        if any(part is None for part in parts):
            return None
        if isinstance(parts[0], tuple):
            return tuple(map(np.stack, zip(*parts, strict=True)))
        return np.stack(parts)

    names = *NAMES, "log_partition", "converged", "n_iter", "residual"
    message = np.array([ending_of(found) for found, *_ in rows])
    return replaced(rows[0][0], **{name: stack(name) for name in names}, message=message)
