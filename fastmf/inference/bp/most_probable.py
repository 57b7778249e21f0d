"""Most probable assignments: max- and mixed-product, and the search that follows."""

from dataclasses import replace
from functools import partial

import numpy as np

from fastmf._common import arguments as check
from fastmf.inference.bp._assignments import best_assignments, climbed, margin_of, search_again
from fastmf.inference.bp._binary_units import BinaryUnits
from fastmf.inference.bp._groups import propagate
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.bp.beliefs import Beliefs, beliefs_of
from fastmf.inference.bp.graphs.layers import needs_graph, propagate_on_layers
from fastmf.inference.bp.graphs.propagation import propagate_on_graph
from fastmf.inference.bp.graphs.results import all_right
from fastmf.inference.bp.rbm import checked_fields, checked_init, propagated
from fastmf.inference.fixed_point import with_check
from fastmf.kernels.bp.messages import BPRecord
from fastmf.models import RBM, BoltzmannMachine
from fastmf.priors import Categorical


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
        single groups). Of an RBM with two-valued hidden units and without `clamp`.
    search : bool, default True
        Improve the decoded assignment; see Notes. False: the best assignment of all sweeps, as in
        the paper.
    bound : bool, default False
        Compute `bound`, a certified upper bound of the score of all assignments, by tree-reweighted
        max-product. Where it equals the score, the assignment is proved to be the best one.
    field, clamp : array or pair of arrays, optional
        Extra fields, and values of clamped units, as in `belief_propagation`.
    init : array or Beliefs, optional
        Assignment to start from, of the visible units of an RBM or of all units of a graph; or the
        assignment of an earlier result.
    n_starts : int, optional
        Run an RBM of two-valued units from this many starts: the default start, and random
        assignments, which are the same for each row. Useful where `reliable` is False.
    rng : numpy.random.Generator or int, optional
        Random numbers of the starts, needed with `n_starts`.
    max_iter : int, default 1000
        Largest number of sweeps.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.

    Returns
    -------
    Beliefs
        With `assignment`, `score`, `reliable` and perhaps `bound`; `GraphBeliefs` for a graph.

    Raises
    ------
    ValueError, TypeError
        For arguments of wrong shapes, types or ranges, or options that the model does not have.

    Notes
    -----
    Ping and Ihler (2017), Eqs. 8-18. Search in an RBM: single flips of visible units; then, without
    `init`, all states of a layer where these are few, and annealed chains of flips elsewhere. On a
    graph: the exact answer of a forest, or by elimination where that is quick; elsewhere single
    moves and, in rows with ties or that do not converge, annealed moves of random forests. The
    search takes most of the time: some hundred times the sweeps of a single row. `bound` holds at
    all messages, and is the maximum over the local polytope where they converge (Wainwright,
    Jaakkola and Willsky 2005).

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
            raise ValueError("sum_hidden: needs an RBM of two-valued hidden units, and no clamp.")
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
    """The `Beliefs` of an RBM of binary units with the best assignment of all starts."""
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
    """Make the best assignment of each row a local maximum, all in float64."""
    joint, n_threads = options.algorithm == "max", options.n_threads
    problem = units.weights(), units.fields, joint, record.best
    record.objective[:], optimal = climbed(*problem, n_threads=n_threads)
    return optimal


def best_of(record, optimal, n_starts):
    """The record of the best of each `n_starts` rows, and whether it is a local maximum."""
    first = np.arange(0, len(record.objective), n_starts)
    best = first + record.objective.reshape(-1, n_starts).argmax(1)
    record = BPRecord(*(part[best] if len(part) else part for part in record))
    return record, None if optimal is None else optimal[best]
