"""Sum-product belief propagation: the public function, and which part of the package solves it."""

from functools import partial

import numpy as np

from fastmf._common import arguments as check
from fastmf.inference.bp._binary_units import BinaryUnits
from fastmf.inference.bp._groups import propagate
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.bp.beliefs import beliefs_of
from fastmf.inference.bp.graphs.automatic import automatic
from fastmf.inference.bp.graphs.layers import (
    machine_of_layers,
    needs_graph,
    propagate_on_layers,
)
from fastmf.inference.bp.graphs.propagation import propagate_on_graph
from fastmf.inference.bp.graphs.radius import radius_of_layers, spectral_radius
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.inference.bp.most_probable import most_probable
from fastmf.inference.bp.rbm import checked_fields, checked_init, messages_of, propagated
from fastmf.inference.bp.solutions import mixtures, options_of_checks, starts_of_layers
from fastmf.inference.fixed_point import Question, with_check
from fastmf.kernels.mean_field.units import Tilt
from fastmf.models import RBM, BoltzmannMachine
from fastmf.priors import Categorical
from fastmf.priors._queries import two_values


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
        Extra fields of the visible units, or of (visible, hidden) units, each (n_units,) or
        (n_rows, n_units) or None. One array for a graph.
    clamp : array or pair of arrays, optional
        Values of clamped units, NaN where free.
    init : "up", array or Beliefs, optional
        Log-messages to start from, as in the result's `messages`; "up": of units at their largest
        values. By default messages without preference, which do not depend on which value of a unit
        is called 1.
    damping : float in [0, 1), optional
        Weight of the old message. By default 0, until the residual of a row has not fallen for 16
        sweeps; only that row is then damped, by 1/2, 3/4 and so on.
    tol : float, default 1e-8
        Largest change of a belief, a log-odds or log-message x (relative to 1 + abs(x)) in an
        undamped sweep of a converged row; at least the rounding error. 0: always `max_iter` sweeps.
    max_iter : int, default 1000
    pairwise : bool or "mean", default False
        Compute expected products <v_i h_j>, of each row or their average; on a graph for the
        edges, or tables of probabilities. True also keeps the messages.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.

    Returns
    -------
    Beliefs
        `GraphBeliefs` for a graph. Rows that have not converged raise no error.

    Raises
    ------
    ValueError, TypeError
        For arguments of wrong shapes, types or ranges, and weights beyond ±340 of {0, 1} units.
    MemoryError
        If the messages do not fit in the machine's memory; the text gives the size they need.

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
    """The `Beliefs` of the mixture of the distinct stable fixed points from several messages."""
    if init is not None:
        raise ValueError("init: not available in mixtures.")
    options = BPOptions(n_starts=n_starts, rng=rng, **options)
    return _solved(options, model, field, clamp)


# What `mixture` calls in the place of the solver, which has starts of its own.
belief_propagation.mixture = mixture_of_messages  # type: ignore[attr-defined]


def _solved(options, model, field=None, clamp=None, init=None, on_graph=propagate_on_graph):
    """The `Beliefs` of a model, by the kernels that it has."""
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
    """The same `Beliefs` with the question of `reliable`, and its radius."""
    result.__dict__["_radius"] = partial(_radius, model)
    sizes = model.weights.shape
    parts = [np.zeros(n) if f is None else f for f, n in zip(fields, sizes, strict=True)]
    n_rows = max(len(np.atleast_2d(part)) for part in parts)
    field = np.hstack([np.broadcast_to(f, (n_rows, n)) for f, n in zip(parts, sizes, strict=True)])
    tilt = Tilt(
        field.astype(np.float64), np.zeros((1, sum(sizes))), np.zeros((1, sum(sizes)), bool)
    )
    mixed = partial(_solved, options_of_checks(options)) if stable is None else None
    return with_check(result, Question(model, tilt, True, mixed, stable))


def _radius(model):
    pairs, n_edges = list(map(two_values, model.layers)), np.count_nonzero(model.weights)
    # The dense form is 15 times as fast; it does not see forests, which have few edges.
    if all(pairs) and n_edges >= sum(model.weights.shape):
        (low_v, high_v), (low_h, high_h) = pairs
        return radius_of_layers(model.weights * ((high_v - low_v) * (high_h - low_h)))
    return spectral_radius(GraphUnits(machine_of_layers(model.weights, model.layers)))


def _mixture_of_layers(options, model, fields, n_rows):
    """The `Beliefs` of an RBM of binary units with several starts."""

    def of_row(k):
        row = [f if f is None or f.ndim == 1 else f[min(k, len(f) - 1)] for f in fields]
        units = BinaryUnits(model, row)

        def solve(options, messages):
            return beliefs_of(options, units, propagated(options, units, len(messages), messages))

        return solve, partial(starts_of_layers, units)

    result, stable = mixtures(options, n_rows, of_row)
    return _checked(options, result, model, fields, stable)
