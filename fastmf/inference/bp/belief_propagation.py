"""Sum-product, and most probable assignments by max- and mixed-product: the public functions.

They choose between the kernels of RBMs and of graphs. Assignments of two layers of binary units are
improved by a search. If one layer has few states, they are enumerated, each with the best state of
the other layer, so that the best assignment is found. Otherwise chains of single flips are
annealed, with the units of the other layer maximised or summed out at each flip. If they are
maximised, the smaller layer is flipped.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from fastmf._common import arguments as check
from fastmf._outcomes import CONVERGED, INFEASIBLE, LOG_EPSILON
from fastmf._threads.workers import in_parallel, one_blas_thread, workers_for
from fastmf.inference.bp._options import MAX_LOG_OF_PRODUCT, BPOptions
from fastmf.inference.bp.beliefs import Beliefs, beliefs_of, margin_of, reasons
from fastmf.inference.bp.graphs.layers import needs_graph, propagate_on_layers
from fastmf.inference.bp.graphs.propagation import (
    Solved,
    all_right,
    graph_beliefs,
    propagate_on_graph,
    propagate_units,
    radius_of_layers,
    spectral_radius,
)
from fastmf.inference.bp.graphs.starts import HOT
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.inference.bp.rbm import (
    BinaryUnits,
    checked_fields,
    checked_init,
    messages_of,
    propagate,
    propagated,
)
from fastmf.inference.bp.solutions import (
    MAX_CHECK_SWEEPS,
    mixture_of_checks,
    mixtures,
    starts_of_layers,
)
from fastmf.inference.fixed_point import Question, with_changes, with_check
from fastmf.inference.mean_field.solutions import N_CHECKED_STARTS
from fastmf.kernels.bp.local_search import ClimbSettings, climb
from fastmf.kernels.bp.messages import BPProblem, BPRecord
from fastmf.kernels.mean_field.units import Tilt
from fastmf.models import RBM, BoltzmannMachine
from fastmf.models._graph_sums import MAX_ENTRIES, is_small
from fastmf.models.boltzmann import machine_of_layers
from fastmf.models.exact import MAX_LAYER_STATES
from fastmf.priors import Categorical
from fastmf.priors._queries import two_values


@check.refusing_overflow
def belief_propagation(
    model,
    *,
    algorithm="sum",
    field=None,
    clamp=None,
    init=None,
    damping=None,
    tol=1e-8,
    max_iter=1000,
    pairwise=False,
    n_threads=None,
):
    """Compute marginals and the log-partition by sum-product belief propagation.

    Parameters
    ----------
    model : RBM or BoltzmannMachine
        An RBM or a graph (dense or sparse couplings) of discrete units.
    algorithm : {"sum", "auto", "max"}, default "sum"
        "auto": exact sums by elimination where they take some seconds at most, otherwise
        sum-product, from 20 starts if a row is not reliable; see `Beliefs.method`.
        "max": the same as `most_probable`.
    field : array or pair of arrays, optional
        Additional fields of the visible units, or of (visible, hidden) units, each (n_units,) or
        (n_rows, n_units) or None. One array for a graph.
    clamp : array or pair of arrays, optional
        Values of clamped units, NaN where free.
    init : "up", array or Beliefs, optional
        Starting log-messages, as in `messages` of the result; "up": computed from all units at
        their largest values. By default neutral messages, which do not depend on which value of a
        unit is called 1.
    damping : float in [0, 1), optional
        Weight of the old message. By default 0, until the residual of a row has not fallen for 16
        sweeps; only that row is then damped, by 1/2, 3/4 and so on.
    tol : float, default 1e-8
        Largest change of a belief, a log-odds or log-message x (relative to 1 + abs(x)) in an
        undamped sweep of a converged row; at least the rounding error. 0: always `max_iter` sweeps.
    max_iter : int, default 1000
    pairwise : bool or "mean", default False
        Compute expected products <v_i h_j>, of each row or their average; on a graph for the
        edges, or tables of probabilities. True also returns the messages.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.

    Returns
    -------
    Beliefs
        `GraphBeliefs` for a graph. Rows that have not converged raise no error.

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        If arguments have wrong shapes, types or ranges, weights of {0, 1} units are beyond ±340, or
        numbers overflow.
    MemoryError
        If the messages do not fit in memory; the error says how much they need.

    Notes
    -----
    Ping and Ihler (2017), Eqs. 8-18, with messages as ratios; the guide to graphs and the page on
    the theory of belief propagation describe starts and memory. `mixture` takes several starts.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> weights = np.random.default_rng(0).normal(size=(6, 4)) / 4
    >>> model = mf.RBM(weights, mf.Bernoulli(np.zeros(6)), mf.Bernoulli(np.zeros(4)))
    >>> bool(mf.belief_propagation(model).log_partition - mf.exact(model).log_partition < 1e-3)
    True
    """
    check.one_of("algorithm", algorithm, ("sum", "auto", "max"))
    if isinstance(init, str):
        check.one_of("init", init, ("up",))
    if algorithm == "max":
        if pairwise or damping is not None:
            raise ValueError("pairwise and damping: not available with algorithm='max'.")
        return most_probable(
            model, field=field, clamp=clamp, init=init, max_iter=max_iter, n_threads=n_threads
        )
    options = BPOptions(
        damping=damping,
        tol=tol,
        max_iter=max_iter,
        pairwise=pairwise,
        messages=pairwise is True,
        n_threads=n_threads,
    )
    if algorithm == "auto":
        if init is not None:
            raise ValueError("init: not available with algorithm='auto'.")
        return _solved(options, model, field, clamp, on_graph=automatic)
    return _solved(options, model, field, clamp, init)


def mixture_of_messages(model, n_starts, rng, *, field=None, clamp=None, init=None, **options):
    """Mix the distinct stable fixed points reached from several messages, as `Beliefs`."""
    if init is not None:
        raise ValueError("init: not available in mixtures.")
    return _solved(BPOptions(n_starts=n_starts, rng=rng, **options), model, field, clamp)


# `mixture` calls this instead of the solver, because the starts are messages.
belief_propagation.mixture = mixture_of_messages


def _solved(options, model, field=None, clamp=None, init=None, on_graph=propagate_on_graph):
    """Solve a model by the kernels for RBMs or for graphs, and return its `Beliefs`."""
    if isinstance(model, BoltzmannMachine):
        return on_graph(options, model, field, clamp, init)
    if not isinstance(model, RBM):
        raise TypeError(
            f"model must be an RBM or a BoltzmannMachine, got {type(model).__name__}: fastmf.tap "
            "takes all layered machines, fastmf.relaxed_bp and adaptive_tap those without "
            "categorical units."
        )
    is_grouped = isinstance(model.layers[0], Categorical)
    kernel_lacks = is_grouped and options.n_starts is not None
    if on_graph is automatic or kernel_lacks or needs_graph(options, model, clamp):
        return propagate_on_layers(options, model, field, clamp, init, on_graph)
    fields, n_rows = checked_fields(model, field)
    if is_grouped:
        if init is not None:
            raise ValueError("init: not available with categorical visible units.")
        return _checked(options, propagate(options, model, fields, n_rows), model, fields)
    if options.n_starts is not None:
        return _mixture_of_layers(options, model, fields, n_rows)
    units = BinaryUnits(model, fields)
    if init is not None:
        if isinstance(init, str):  # messages of visible units at their upper values
            init = model.weights * units.factor
        init, n_rows = checked_init(messages_of(init), model.weights.shape, n_rows)
    ends = propagated(options, units, n_rows or 1, init)
    return _checked(options, beliefs_of(options, units, ends, n_rows is None), model, fields)


def _checked(options, result, model, fields, stable=None):
    """Attach the `Question` of `reliable`, and the function of `spectral_radius`, to `Beliefs`."""
    result.__dict__["_radius"] = partial(_radius, model)
    n, n_units = model.n_visible, sum(model.weights.shape)
    field = np.zeros((check.common_rows(zip("vh", fields, strict=True)) or 1, n_units))
    field[:, :n], field[:, n:] = (0 if part is None else part for part in fields)
    tilt = Tilt(field, np.zeros((1, n_units)), np.zeros((1, n_units), bool))
    mixed = partial(mixture_of_checks, _solved, options) if stable is None else None
    return with_check(result, Question(model, tilt, True, mixed, stable))


def _radius(model):
    pairs, n_edges = list(map(two_values, model.layers)), np.count_nonzero(model.weights)
    # The dense form is 15 times as fast; it does not recognise forests, which have few edges.
    if all(pairs) and n_edges >= sum(model.weights.shape):
        (low_v, high_v), (low_h, high_h) = pairs
        return radius_of_layers(model.weights * ((high_v - low_v) * (high_h - low_h)))
    return spectral_radius(GraphUnits(machine_of_layers(model.weights, model.layers)))


def _mixture_of_layers(options, model, fields, n_rows):
    """Return the `Beliefs` of an RBM of binary units with several starts."""

    def of_row(k):
        row = [f if f is None or f.ndim == 1 else f[min(k, len(f) - 1)] for f in fields]
        units = BinaryUnits(model, row)

        def solve(options, messages):
            return beliefs_of(options, units, propagated(options, units, len(messages), messages))

        return solve, partial(starts_of_layers, units)

    result, stable = mixtures(options, model.visible, n_rows, of_row)
    return _checked(options, result, model, fields, stable)


@one_blas_thread()
def automatic(options, model, field, clamp, init=None):
    """Return the `GraphBeliefs` of algorithm="auto"."""
    units = GraphUnits(model, field, clamp)
    if not units.layout.is_forest:
        exact = _exact(units, units.n_rows or 1)
        if exact is not None:
            result = graph_beliefs(options, units, exact, None, units.n_rows is None)
            ended = np.where(result.converged, "exact, by elimination", result.message)
            return with_check(
                with_changes(result, method="elimination", message=ended[()]), all_right
            )
    one = propagate_units(options, units)
    if one.reliable is None or np.all(one.reliable):  # None: also too large for more starts
        return one
    sweeps = min(options.max_iter, MAX_CHECK_SWEEPS)
    options = replace(options, n_starts=N_CHECKED_STARTS, rng=0, max_iter=sweeps, messages=False)
    several = propagate_units(options, units)
    if not np.any(several.converged & ~np.atleast_1d(one.reliable)):
        return one
    several.__dict__["method"] = "several starts"
    return several


def _exact(units, n_rows):
    """Solve rows by elimination within some seconds; None if their tables are large."""
    if not is_small(units.graph):
        return None
    rows = units.marginals(range(n_rows), 8 * MAX_ENTRIES / n_rows)
    if rows is None:
        return None
    zeros, values = np.zeros(n_rows), [row.log_partition for row in rows]
    record = {
        "status": np.where(np.isneginf(values), INFEASIBLE, CONVERGED),
        "n_iter": zeros.astype(np.int64), "residual": zeros, "damping": zeros,
        "history": np.zeros((0, 0)),
    }  # fmt: skip
    values, beliefs, pairs = map(np.array, zip(*rows, strict=True))
    return Solved(record, beliefs, values, pairs, None, None, None, None)


@check.refusing_overflow
def most_probable(
    model,
    *,
    sum_hidden=False,
    search=True,
    bound=False,
    field=None,
    clamp=None,
    init=None,
    n_starts=None,
    rng=None,
    max_iter=1000,
    n_threads=None,
):
    """Find the most probable assignment by max-product belief propagation and a search.

    Parameters
    ----------
    model : RBM or BoltzmannMachine
        An RBM or a graph (dense or sparse couplings) of discrete units.
    sum_hidden : bool, default False
        Find the visible assignment of largest probability with the hidden units summed out
        (marginal MAP, by mixed-product; with categorical visible units by sum-product and moves of
        single groups). Needs two-valued or categorical visible and two-valued hidden units of an
        RBM, and no `clamp`.
    search : bool, default True
        Improve the decoded assignment; see Notes. False: return the best assignment of all sweeps,
        as in the paper.
    bound : bool, default False
        Compute `bound`, a certified upper bound of the score of all assignments, by tree-reweighted
        max-product. Where it equals the score, the assignment is proved to be the best one.
    field, clamp : array or pair of arrays, optional
        Additional fields, and values of clamped units, as in `belief_propagation`.
    init : array or Beliefs, optional
        Starting assignment of the visible units of an RBM or of all units of a graph; or an earlier
        result with such an assignment.
    n_starts : int, optional
        Run an RBM of two-valued units from this many starts: the default start, and random
        assignments, which are the same for each row. Useful if `reliable` is False.
    rng : numpy.random.Generator or int, optional
        Generator of the random starts, or its seed; needed with `n_starts`.
    max_iter : int, default 1000
        Largest number of sweeps.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.

    Returns
    -------
    Beliefs
        With `assignment`, `score`, `reliable` and optionally `bound`; `GraphBeliefs` for a graph.

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        For arguments of wrong shapes, types or ranges, unsupported options, and overflow.

    Notes
    -----
    Ping and Ihler (2017), Eqs. 8-18. The search flips single visible units of an RBM; then, without
    `init`, it compares all states of a small layer, or anneals chains of flips. On a graph, the
    answer is exact for a forest, or if elimination is quick; otherwise the search makes single
    moves and, in rows with ties or without convergence, annealed moves of random forests. It takes
    most of the time: some hundred times the sweeps of a single row. `bound` holds for any messages;
    if they converge, it is the maximum over the local polytope (Wainwright, Jaakkola and Willsky
    2005).

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> chain = np.diag([1.0, -2.0], 1) + np.diag([1.0, -2.0], -1)
    >>> machine = mf.BoltzmannMachine(chain, mf.Ising([0.5, 0.0, 0.0]))
    >>> best = mf.most_probable(machine, bound=True)
    >>> best.assignment, best.score, best.bound.round(6)
    (array([ 1.,  1., -1.]), np.float64(3.5), np.float64(3.5))
    """
    sum_hidden, search = check.flag("sum_hidden", sum_hidden), check.flag("search", search)
    if check.flag("bound", bound) and sum_hidden:
        raise ValueError("bound: not available with sum_hidden.")
    options = BPOptions(
        algorithm="mixed" if sum_hidden else "max",
        search=search,
        bound=bound,
        n_starts=n_starts,
        rng=rng,
        max_iter=max_iter,
        n_threads=n_threads,
    )
    if options.n_starts is not None and options.n_starts > 1 and init is not None:
        raise ValueError("n_starts: not available with init.")
    is_graph = isinstance(model, BoltzmannMachine)
    if not is_graph and not isinstance(model, RBM):
        raise TypeError(f"model must be an RBM or a BoltzmannMachine, got {type(model).__name__}.")
    if is_graph or needs_graph(options, model, clamp):
        if sum_hidden:
            raise ValueError(
                "sum_hidden: needs two-valued or Categorical visible units, two-valued hidden "
                f"units of an RBM and no clamp, got {model}."
            )
        _refuse_starts(options)
        if is_graph:
            return propagate_on_graph(options, model, field, clamp, init)
        return propagate_on_layers(options, model, field, clamp, init)
    fields, n_rows = checked_fields(model, field)
    if isinstance(model.layers[0], Categorical):
        _refuse_starts(options)
        if init is not None:
            raise ValueError("init: not available with categorical visible units.")
        return propagate(options, model, fields, n_rows)
    units = BinaryUnits(model, fields)
    if init is not None:
        init = init.assignment[0] if isinstance(init, Beliefs) else init
        init, n_rows = checked_init(init, model.weights.shape[:1], n_rows)
        init = units.is_one(init)
    result = _decoded(options, units, n_rows, init)
    if not bound:
        return result
    bounds = propagate_on_layers(replace(options, search=False), model, field, clamp).bound
    result.__dict__["bound"] = bounds = np.maximum(bounds, result.score)
    proved = (bounds - result.score <= margin_of(bounds)).all()
    return with_check(result, all_right) if proved else result


def _refuse_starts(options):
    if options.n_starts is not None and options.n_starts > 1:
        raise ValueError("n_starts: available for an RBM of two-valued units without clamp only.")


def _decoded(options, units, n_rows, init):
    """Return the `Beliefs` of an RBM of binary units with the best assignment of all starts."""
    n_starts, joint = options.n_starts or 1, options.algorithm == "max"
    assignments = ()
    if n_starts > 1:
        rng = check.generator(options.rng)
        assignments = rng.random((n_starts - 1, len(units.model.weights))) < 0.5
    ends = propagated(options, units, n_rows or 1, init, assignments)
    record, optimal, is_best = ends.record, None, False
    if options.search:
        rows = np.arange(len(record.best)) // n_starts
        optimal = _polish(options, units.of_rows(rows), record)
    if n_starts > 1:
        record, optimal = best_of(record, optimal, n_starts)
    if options.search and init is None:
        better = best_assignments(units, joint, record.best)
        if better is not None:
            record.best[:], is_best = better.visible, better.is_best
            optimal = _polish(options, units, record)
    result = beliefs_of(options, units, ends._replace(record=record), n_rows is None, optimal)
    if not options.search:
        return result
    return with_check(result, all_right if is_best else partial(search_again, units, joint))


def _polish(options, units, record):
    """Climb from the best assignment of each row to a local maximum, in float64."""
    joint, n_threads = options.algorithm == "max", options.n_threads
    problem = units.weights(), units.fields, joint, record.best
    record.objective[:], optimal = climbed(*problem, n_threads=n_threads)
    return optimal


def best_of(record, optimal, n_starts):
    """Select the best of each `n_starts` rows of a record, and whether it is a local maximum."""
    first = np.arange(0, len(record.objective), n_starts)
    best = first + record.objective.reshape(-1, n_starts).argmax(1)
    record = BPRecord(*(part[best] if len(part) else part for part in record))
    return record, None if optimal is None else optimal[best]


# Chains of each row, their rounds for each unit, and the minimum number of rounds, for speed: with
# half of these, tests find the same assignments.
N_ANNEALED_CHAINS, ROUNDS_PER_UNIT, MIN_ANNEALED_ROUNDS = 16, 4, 100
# Random numbers shared by all chains; 8 times this many units are annealed together at most.
N_RANDOM = 1 << 17
# Maximum number of products in all chains, which limits the rounds.
MAX_ANNEALED_PRODUCTS = 2e9
# Chains by which a check searches better assignments, and the minimum number of chains that must
# end at the best one for it to be reliable.
CHECKED_CHAINS, MIN_AGREEING = 64, 4
FEW = f"%d of {CHECKED_CHAINS} annealed chains found it, so that a more probable one may exist"
# Temperatures and random numbers of a local search without annealing.
CLIMB_ONLY = np.empty(0), np.zeros(1)


class Assignments(NamedTuple):
    """Visible {0, 1} units of rows, and whether all states of a layer were compared."""

    visible: np.ndarray
    objective: np.ndarray
    is_best: bool
    n_agreeing: np.ndarray | None = None  # number of chains that ended at this objective


@one_blas_thread()
def best_assignments(units, joint, visible, chains=N_ANNEALED_CHAINS, rng=0):
    """Search assignments at least as probable as given ones; None if that takes too long."""
    weights, fields = problem_of(units, len(visible))
    n_rows, given = len(visible), objective_of(weights, fields, joint, visible)
    result = _enumerated(weights, fields, joint)
    if result is not None:
        # Given assignments that are equally probable stay.
        no_better = result.objective <= given + margin_of(given) / 1000
        return result._replace(visible=np.where(no_better[:, None], visible, result.visible))
    rounds = _rounds(weights, joint, chains * n_rows)
    if rounds < MIN_ANNEALED_ROUNDS:
        return None
    best, objective, n_agreeing = visible.copy(), given.copy(), np.zeros(n_rows, int)
    step = max(1, 8 * N_RANDOM // (chains * sum(weights.shape)))
    for first in range(0, n_rows, step):
        rows = slice(first, first + step)
        given_fields = [f[rows] for f in fields]
        new = _annealed(weights, given_fields, joint, (chains, rounds), np.random.default_rng(rng))
        values = objective_of(weights, [f[:, None] for f in given_fields], joint, new)
        top = values.argmax(1)[:, None]
        highest = np.take_along_axis(values, top, 1)[:, 0]
        better = highest > objective[rows]
        best[rows][better] = np.take_along_axis(new, top[:, :, None], 1)[better, 0]
        objective[rows][better] = highest[better]
        lowest = objective[rows] - margin_of(objective[rows])
        n_agreeing[rows] = (values >= lowest[:, None]).sum(1)
    return Assignments(best, objective, False, n_agreeing)


def problem_of(units, n_rows):
    """Return the weights of {0, 1} units, and fields of all rows.

    Fields that determine a unit, whatever its neighbours, are clipped, so that sums keep the digits
    of the weights.
    """
    weights, fields = units.weights(), []
    for axis, field in enumerate(units.fields):
        decisive = 2 * abs(weights).sum(1 - axis) - LOG_EPSILON
        clipped = np.clip(field, -decisive, decisive)
        fields.append(np.broadcast_to(clipped, (n_rows, field.shape[1])))
    return weights, fields


def objective_of(weights, fields, joint, visible):
    """Compute the exponent of visible and best hidden states, or log p(v) without its constant."""
    b = fields[1] + visible @ weights
    return (visible * fields[0]).sum(-1) + _of_hidden(b, joint)


def _of_hidden(b, joint):
    return np.maximum(b, 0).sum(-1) if joint else np.logaddexp(0, b).sum(-1)


def _enumerated(weights, fields, joint):
    """Find the best `Assignments` by all states of one layer; None if there are too many."""
    n, m = weights.shape
    n_rows = len(fields[0])
    by_hidden = joint and m < n
    size = m if by_hidden else n
    if n_rows * 2.0 ** min(size, 64) * (n + m) > MAX_LAYER_STATES:
        return None
    states = ((np.arange(2**size)[:, None] >> np.arange(size)) & 1).astype(np.float64)
    sums = states @ (weights.T if by_hidden else weights)
    best = np.empty((n_rows, n), bool)
    for k in range(n_rows):
        given, summed = (f[k] for f in (fields[::-1] if by_hidden else fields))
        top = (states @ given + _of_hidden(sums + summed, joint)).argmax()
        best[k] = sums[top] + summed > 0 if by_hidden else states[top] > 0
    return Assignments(best, objective_of(weights, fields, joint, best), True)


def _rounds(weights, joint, n_chains):
    """Return the number of rounds of chains over all units that time allows; 0 without weights."""
    if not weights.size:
        return 0
    units = min(weights.shape) if joint else len(weights)
    n_rounds = max(ROUNDS_PER_UNIT * units, MIN_ANNEALED_ROUNDS)
    return min(n_rounds, int(MAX_ANNEALED_PRODUCTS / (n_chains * weights.size)))


def _annealed(weights, fields, joint, size, rng):
    """Anneal chains and return their last visible units, (n_rows, n_chains, n_visible)."""
    (chains, rounds), (n, m), n_rows = size, weights.shape, len(fields[0])
    hot = HOT * np.sqrt((weights**2).sum() / min(n, m))
    by_hidden = joint and m < n
    flipped, summed = fields[::-1] if by_hidden else fields
    states = rng.random((n_rows * chains, flipped.shape[1])) < 0.5
    climbed(
        np.ascontiguousarray(weights.T) if by_hidden else weights,
        (np.repeat(flipped, chains, axis=0), np.repeat(summed, chains, axis=0)),
        joint,
        states,
        annealing=(hot * (1 - np.arange(rounds) / rounds), np.log1p(-rng.random(N_RANDOM))),
    )
    if by_hidden:
        states = states @ weights.T + np.repeat(summed, chains, axis=0) > 0
    return states.reshape(n_rows, chains, n)


def climbed(weights, fields, joint, visible, *, annealing=CLIMB_ONLY, n_threads=None):
    """Flip single units, in place, until no flip raises the objective of a row."""
    (n, m), n_rows, sums = weights.shape, len(visible), abs(weights).sum(1)
    problem = BPProblem(
        weights=weights,
        exponentials=np.exp(weights[:0] if joint else weights),
        starts=weights[:0],
        row_sums=weights.sum(1),
        visible_field=np.ascontiguousarray(fields[0]),
        hidden_field=np.ascontiguousarray(fields[1]),
    )
    max_weight = max(0.1, abs(weights).max(initial=0))
    max_factors = max(1, int(MAX_LOG_OF_PRODUCT[weights.dtype] / max_weight))
    settings = ClimbSettings(joint, max_factors, 1 + sums, *annealing)
    objective, optimal = np.empty(n_rows), np.zeros(n_rows, bool)
    n_rounds = 10 + len(annealing[0])
    n_workers = workers_for(n_rows, 2 * n_rounds * n_rows * n * m, n_threads)
    memory, queue = np.empty((n_workers, 3, m)), np.zeros(2, np.int64)
    in_parallel(climb, (settings, problem, memory, visible, objective, optimal, queue), n_workers)
    return objective, optimal


def search_again(units, joint, result):
    """Search more probable assignments; return why each row is not reliable, "" if it is.

    Return None if the layers are large.
    """
    bits = units.is_one(np.atleast_2d(result.assignment[0]))
    better = best_assignments(units, joint, bits, CHECKED_CHAINS, rng=1)
    if better is None:
        return None
    given = objective_of(*problem_of(units, len(bits)), joint, bits)
    n, why = better.n_agreeing, reasons(given, better.objective, "n_starts=20")
    rare = np.where(n < MIN_AGREEING, np.char.mod(FEW, n), "")
    return [reason or doubt for reason, doubt in zip(why, rare, strict=True)]
