"""Mixtures of the distinct solutions that several starts lead to."""

from functools import partial

import numpy as np

from fastmf._common import arguments as check
from fastmf.inference.fixed_point import (
    Question,
    average,
    ending_of,
    some_rows,
    stacked,
    with_changes,
    with_check,
    with_solutions,
)
from fastmf.inference.mean_field._layouts import layout_of_checks
from fastmf.inference.mean_field._rows import drawn_starts, start_and_tilt
from fastmf.inference.mean_field.discrete_units import extreme_starts, has_many_values
from fastmf.inference.mean_field.solutions import distinct_solutions
from fastmf.models.boltzmann import check_machine

# Standard deviations by which means are moved from solutions, which are then solved again.
SPREAD = 1e-2
# Starts of the mixtures with which answers are compared.
N_CHECKED_STARTS = 20
# Options that may have a row for each row of the result.
TILTS = "field", "precision", "clamp"


def mixture(solver, model, n_starts=20, *, rng=0, **options):
    """Mix the distinct stable solutions that a solver reaches from random starts.

    Parameters
    ----------
    solver : callable
        `tap`, `relaxed_bp`, `adaptive_tap` or `belief_propagation`.
    model : RBM, DBM or BoltzmannMachine
    n_starts : int, default 20
        Number of samples of the uncoupled units of the first layer, from which the solver starts;
        where units have more than two values, also states of all units at their lowest and highest
        values. `belief_propagation` starts from messages of random states.
    rng : numpy.random.Generator or int, default 0
        None: a generator with a seed of its own.
    **options
        Options of the solver, without `init`.

    Returns
    -------
    FixedPoint
        `solutions` has the distinct stable solutions and their weights, exp(log_partition); means
        and variances are moments of their mixture, and `log_partition` is the log of the sum of the
        weights. `b` and `a` are None if there are several solutions.

    Raises
    ------
    ValueError, TypeError
        If arguments have wrong shapes, types or ranges.

    Notes
    -----
    A solution is solved again from means a hundredth of a standard deviation away: if it is left,
    it is not stable, and not in the mixture. Weights are right for phases that hardly overlap.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> ferromagnet = mf.BoltzmannMachine(3 * (1 - np.eye(50)) / 50, mf.Ising(np.zeros(50)))
    >>> result = mf.mixture(mf.tap, ferromagnet)
    >>> result.solutions.weights.round(3), bool(abs(result.mean).max() < 1e-6)
    (array([0.5, 0.5]), True)
    """
    check_machine(model)
    n_starts, rng = check.count("n_starts", n_starts), check.generator(rng, optional=True)
    if hasattr(solver, "mixture"):  # it has starts of its own
        return solver.mixture(model, n_starts, rng, **options)
    if not options.get("log_partition", True) or options.get("history"):
        raise ValueError("mixture: needs log_partition=True and history=False.")
    if options.get("init") is not None:
        raise ValueError("init: not available in mixtures.")
    tilts = {name: options[name] for name in TILTS if options.get(name) is not None}
    parts = [p for x in tilts.values() for p in (x if isinstance(x, tuple) else (x,))]
    n_rows = max((len(p) for p in parts if np.ndim(p) == 2), default=None)
    rows, move = [], partial(_moved, rng)
    for k in range(n_rows or 1):
        solve = partial(solver, model, **options | {name: _row(x, k) for name, x in tilts.items()})
        rows.append(mixed_row(solve, solve, _starts(model, n_starts, rng), move))
    answer, stable = joined_rows(rows, n_rows is None)
    layout = layout_of_checks(model)
    tilt = start_and_tilt(model, layout, None, *(tilts.get(name) for name in TILTS))[1]
    return with_check(answer, Question(model, tilt, True, stable=stable))


def _starts(model, n_starts, rng):
    """Random starts; where units have more than two values, also some at extremes."""
    draws = drawn_starts(model, n_starts, rng)
    if not has_many_values(model.layers):
        return draws
    return np.vstack([draws, extreme_starts(model.layers[0])]).astype(model.dtype)


def _row(x, k):
    if isinstance(x, tuple):
        return tuple(_row(part, k) for part in x)
    return x if np.ndim(x) < 2 else x[min(k, len(x) - 1)]


def mixed_row(solve, solve_again, starts, move):
    """The mixture of a row, its `Solutions`, and whether one of them is stable.

    Solutions from `starts` are solved again from where `move` takes them.
    """
    reached = _stable(solve(starts))
    if reached is not None:
        ends = solve_again(move(reached.fixed_points))
        # A fixed point that is left without damping is hardly a state.
        settled = _stable(ends, getattr(ends, "damping", 0) == 0) or _stable(ends)
        if settled is not None:
            members = np.where(reached.members < 0, -1, settled.members[reached.members])
            settled = settled._replace(members=members)
            return _mixture(settled), settled, True
    only = distinct_solutions(solve_again(starts[:1]))
    only = only._replace(members=np.full(len(starts), -1))
    return _mixture(only), only, False


def joined_rows(rows, single):
    """The `FixedPoint` of the rows of `mixed_row`, and whether each has a stable solution."""
    parts, solutions, stable = zip(*rows, strict=True)
    answer = stacked(*parts)
    answer = some_rows(answer, 0) if single else answer
    return with_solutions(answer, list(solutions), single), list(stable)


def _moved(rng, points):
    """Starts near some solutions."""
    means = _by_layers(lambda mean, var: moved_from(mean, var, rng), points.mean, points.var)
    return means, points.var


def moved_from(mean, var, rng):
    """Means a hundredth of a standard deviation away, which leave an unstable solution."""
    noise = SPREAD * np.sqrt(np.maximum(var, 0)) * rng.standard_normal(mean.shape)
    return (mean + noise).astype(mean.dtype)


def _by_layers(function, *parts):
    """A function of arrays, or of each layer."""
    if isinstance(parts[0], tuple):
        return tuple(map(function, *parts))
    return function(*parts)


def _stable(ends, usable=True):
    """The `Solutions` among converged ends, None if there are none."""
    usable = usable & ends.converged & np.isfinite(ends.log_partition)
    return distinct_solutions(ends, usable=usable)


def _mixture(solutions):
    """The mixture of some solutions as a `FixedPoint` with one row."""
    points, w, best = solutions.fixed_points, solutions.weights, slice(0, 1)
    alone = len(w) == 1
    w = np.ones(1) if alone else w

    def variance(mean, var):
        return average(w, var + (mean - average(w, mean)) ** 2)

    return with_changes(
        points,
        mean=_by_layers(partial(average, w), points.mean),
        var=_by_layers(variance, points.mean, points.var),
        # A mixture of several is no tilt of a unit.
        b=points.b if alone else None,
        a=points.a if alone else None,
        log_partition=np.logaddexp.reduce(solutions.log_partition, keepdims=True),
        converged=points.converged[best],
        n_iter=points.n_iter.max(keepdims=True),
        residual=points.residual.max(keepdims=True),
        message=ending_of(points)[best],
        history=None,
        **points._mixed(w),
    )
