"""Sum-, max- and mixed-product belief propagation in RBMs of binary units, and on graphs.

The equations of messages, cavities, beliefs and the Bethe free energy of an RBM are at the head of
`fastmf.kernels.bp.belief_propagation`; here options and arrays are prepared, the kernels run, and
rows that cycle are marked. Graphs are those of `graphs`.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from fastmf._common.memory import borrowed
from fastmf._outcomes import RUNNING
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.bp._binary_units import BinaryUnits
from fastmf.inference.bp._cycles import mark_cycles
from fastmf.inference.bp._decoding import (
    assigned_rows,
    set_assignments,
    with_assignment_check,
)
from fastmf.inference.bp._groups import propagate
from fastmf.inference.bp._kernel_arguments import (
    message_dtype,
    message_layout,
    new_workspaces,
    prepared,
)
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.bp._starts import checked_fields, checked_init, checked_restarts, set_start
from fastmf.inference.bp.beliefs import beliefs_of, decoded, log_messages, pair_products
from fastmf.inference.bp.graphs.layers import needs_graph, propagate_on_layers
from fastmf.inference.bp.graphs.propagation import propagate_on_graph
from fastmf.inference.bp.layer_loops import LayerLoops
from fastmf.inference.bp.layer_solutions import propagate_from_starts
from fastmf.inference.bp.solutions import MAX_CHECK_SWEEPS
from fastmf.inference.fixed_point import Question, with_check, with_solutions
from fastmf.inference.mean_field.mixture import N_CHECKED_STARTS
from fastmf.kernels.bp import arguments as bp_types
from fastmf.kernels.bp import belief_propagation as bp_kernels
from fastmf.kernels.mean_field.arguments import Tilt
from fastmf.models import RBM, BoltzmannMachine
from fastmf.priors import Categorical
from fastmf.special import sigmoid_pair


def belief_propagation(
    model,
    *,
    algorithm="sum",
    field=None,
    clamp=None,
    init=None,
    schedule=None,
    damping=None,
    tol=1e-8,
    max_iter=1000,
    history=False,
    messages=False,
    pairwise=False,
    log_partition=True,
    polish=None,
    n_restarts=0,
    starts=None,
    n_starts=None,
    rng=None,
    spectral_radius=False,
    n_threads=None,
):
    """Marginals, log-partition or most probable assignment by belief propagation.

    Iterates the messages for many rows of fields at once.

    Parameters
    ----------
    model : RBM or BoltzmannMachine
        An RBM of Bernoulli or Ising units, whose visible ones may be Categorical; or a graph, a
        BoltzmannMachine of any discrete units with dense or sparse couplings.
    algorithm : {"sum", "max", "mixed", "tree_reweighted", "auto"}, default "sum"
        Sum-product: marginals and log-partition. Max-product: the most probable joint assignment.
        Mixed-product, of an RBM: the visible assignment of largest probability, hidden units summed
        out. Tree-reweighted: an upper bound of the log-partition, converged or not.
        Auto: exact sums by elimination where they take a second or less, otherwise sum-product,
        from 20 starts if one gives a row that is not reliable; see `method` of the result.
    field : array or pair of arrays, optional
        Extra fields of the visible units, or of (visible, hidden) units, each (n_units,) or
        (n_rows, n_units) or None: conditional biases, or a loss that decomposes over units. One
        array for a graph.
    clamp : array or pair of arrays, optional
        Values of clamped units, NaN where free.
    schedule : {"sequential", "parallel"}, optional
        Order of updates on a graph, by default sequential; see Notes. An RBM has one of its own,
        unless it is given.
    init : None, array or Beliefs
        Messages to start from, as in the result's `messages`; for mixed-product a visible
        assignment. None: messages without preference, halfway between their bounds, 0 and the
        weight of {0, 1} units: those of spins of mean 0. They do not depend on which value of a
        unit is called 1, and neither do results. Mixed-product starts from the visible values that
        they suggest. An earlier result must have its messages.
    damping : float in [0, 1), optional
        Weight of the old value in the average of the normalised messages of spins. None: undamped,
        until the residual of a row has not fallen for 16 sweeps; then only that row is damped, by
        1/2, 3/4 and so on. Must be None or 0 for mixed-product, whose messages are hard decisions.
    tol : float, default 1e-8
        A row has converged when an undamped sweep changes nothing that is returned by more: no
        belief (probability), no log-odds x of a belief, relative to 1 + abs(x), and no log-message.
        A damped row makes an undamped sweep when its beliefs change by less than
        tol * (1 - d) / (1 + d), for damping d; that sweep must change it by no more than this,
        because the fixed point may be stable only with damping. At least the change that rounding
        causes: 4 eps * sqrt(largest degree), for max-product times the largest weight of {0, 1}
        units, and for large weights the rounding of their sum in float64. 0: always do `max_iter`
        sweeps, as in the training of conditional RBMs.
    max_iter : int, default 1000
    history : bool, default False
        Keep the residual of every sweep.
    messages : bool, default False
        Keep the messages: n_rows * n_visible * n_hidden numbers.
    pairwise : bool or "mean", default False
        Compute expected products <v_i h_j>, of each row or their average; on a graph those of the
        edges, or tables of probabilities, as in `GraphBeliefs`. (Not of max- and mixed-product.)
    log_partition : bool, default True
        Compute the log-partition of sum-product, which costs about as much as a sweep.
    polish : bool, optional
        Improve the best assignment of max- or mixed-product by flipping one visible unit after
        another until no single flip raises `objective`, in double precision; the hidden units are
        maximised for max-product, summed out for mixed-product. For mixed-product this is the
        sequential form of the algorithm, whose fixed points are exactly the local maxima (with
        max_iter=1 it alone is done). None: done for both. False: the best assignment of all sweeps
        is returned. See Notes for the cost.
    n_restarts : int, default 0
        Number of additional runs from random assignments; the run of largest `objective` is
        returned. (Max- and mixed-product only.)
    starts : array of shape (n_starts, n_visible), optional
        In place of `n_restarts`, the assignments of the additional runs, the same for each row.
    n_starts : int, optional
        Sum-product from so many messages: those without preference, then random ones, those of
        naive mean-field solutions and of states of low energy. Marginals and log-partition are
        those of the mixture of the distinct stable fixed points, which are kept in `solutions`;
        see Notes. Needs `rng`.
    rng : numpy.random.Generator or int, optional
        Random numbers of the random assignments and messages.
    spectral_radius : bool, default False
        Compute an upper bound of the spectral radius of Mooij and Kappen (2007), below which one
        fixed point is guaranteed.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.

    Returns
    -------
    Beliefs
        Beliefs of layers, or of a graph `GraphBeliefs`.

    Raises
    ------
    ValueError, TypeError
        For arguments of wrong shapes, types or ranges, fields beyond ±3.4e30 in float32 (1.8e300 in
        float64) and, but for max-product, weights beyond ±340 (of {0, 1} units). Not converging is
        no error: the result reports it for each row.
    MemoryError
        If the messages do not fit in the machine's memory; the text gives the size they need.

    Notes
    -----
    Ping and Ihler (2017), Eqs. 8-18, with messages as ratios m(1) / m(0), so that no exponential or
    logarithm of a message is computed (see `fastmf.kernels.bp.belief_propagation`). A sweep updates
    all messages to visible units, then all messages to hidden units. A float32 model with weights
    beyond ±40 is computed in float64. Memory: exp(weights) and one array of messages for each row
    if they are kept, or otherwise for each thread and one to start from; one in all for a single
    row: 0.15 GiB beside the weights for a row of 10,000 x 2,000 units in float32, 0.75 GiB for one
    of 100,000 x 1,000.

    Decoding: max- and mixed-product are heuristics; a polished assignment is a local maximum under
    single flips. Without `init` it is compared with all states of a layer, where these are few
    (2^24 numbers for all rows together), and is the most probable one then; elsewhere, of layers
    that are not large, with 16 annealed chains of single flips. Reading `reliable` anneals 64 for
    longer; it is False if one ends higher, or fewer than 4 as high. Of 40 machines of 100 x 40
    units 40 (max) and 39 (mixed) were solved, none poor and reliable; 200 x 100: 1 of 18 (max) was.
    Polishing costs about five sweeps, and the memory of the weights in float64 (for mixed-product
    twice); a restart as much as decoding without one.

    With Categorical visible units means and variances are flat and the visible assignment consists
    of labels, (n_rows, n_groups). Their messages are computed in float64; `init`, `messages`,
    restarts and `spectral_radius` are not available.

    Graphs are computed in float64. Forests are recognised and exact after two sweeps, from the last
    unit in breadth-first order to the first and back; all other solves begin with these. Sequential
    sweeps continue in that way, parallel ones send all messages at once. `tol` is relative to
    1 + abs(x) for log-messages x, too, which are damped as such where units have more than two
    states; weights below the rounding error of probabilities may fall further. The assignment of
    max-product is exact on forests, and the most probable one where elimination is quick (tables of
    2^23 entries). Otherwise units are decoded one after another given those before, after some of
    the sweeps, and moved singly while that helps. Rows that have ties, or do not converge (they end
    where they stall at the largest damping), are then annealed by moves of random forests (up to
    500,000 edges). `n_restarts` and `starts` are not available. An RBM is solved as a graph if it
    has `clamp`, `schedule`, tree-reweighted messages, pair beliefs of Categorical units, or
    algorithm="auto".

    Several starts: fixed points that agree in all probabilities within 0.01 are one. Each is solved
    again from messages close to its own, and left out if these leave it, as at a maximum of the
    Bethe free energy, or if it is stable with damping only and others without. The others have
    weights proportional to exp(log_partition), which is right for phases that hardly overlap; of
    phases that do, too much is counted, up to the logarithm of their number. Time and memory are
    those of `n_starts` rows with messages for a row, one row after another.
    A fixed point without preference, as of a ferromagnet without a field, need not be stable.

    Reading `reliable` or `message` of the result of sum-product compares converged rows with exact
    sums or other methods: see `FixedPoint.reliable`, and `Beliefs.unique`.

    Damping averages probabilities, as in the paper. Damped saturated messages go on changing long
    after the beliefs have stopped; the undamped sweep that confirms convergence sets them to their
    final value.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> weights = np.random.default_rng(0).normal(size=(6, 4)) / 4
    >>> model = mf.RBM(weights, mf.Bernoulli(np.zeros(6)), mf.Bernoulli(np.zeros(4)))
    >>> beliefs = mf.belief_propagation(model)
    >>> bool(beliefs.converged), beliefs.mean[0].shape
    (True, (6,))
    >>> bool(abs(beliefs.log_partition - mf.exact(model).log_partition) < 1e-3)
    True
    """
    options = BPOptions(
        algorithm=algorithm,
        damping=damping,
        tol=tol,
        max_iter=max_iter,
        history=history,
        messages=messages,
        pairwise=pairwise,
        log_partition=log_partition,
        polish=polish,
        n_restarts=n_restarts,
        spectral_radius=spectral_radius,
        schedule=schedule,
        n_starts=n_starts,
        rng=rng,
        n_threads=n_threads,
    )
    if n_starts is not None and (init is not None or starts is not None):
        raise ValueError("n_starts: not available with init or starts.")
    if isinstance(model, BoltzmannMachine):
        if starts is not None:
            raise ValueError("starts: available for an RBM only.")
        return propagate_on_graph(options, model, field, clamp, init)
    if not isinstance(model, RBM):
        raise TypeError(
            f"model must be an RBM or a BoltzmannMachine, got {type(model).__name__}: fastmf.tap "
            "takes all layered machines, fastmf.relaxed_bp and adaptive_tap those without "
            "categorical units."
        )
    if needs_graph(options, model, clamp):
        if starts is not None:
            raise ValueError("starts: not available with clamp, schedule or other trees.")
        return propagate_on_layers(options, model, field, clamp, init)
    fields, n_rows = checked_fields(model, field)
    if isinstance(model.layers[0], Categorical):
        if n_starts is not None:
            return propagate_on_layers(options, model, field, clamp, init)
        if init is not None or starts is not None:
            raise ValueError("init and starts: not available with categorical visible units.")
        return _checked(propagate(options, model, fields, n_rows), model, fields)
    if n_starts is not None:
        return _from_starts(options, model, fields, n_rows)
    units = BinaryUnits(model, fields)
    n_restarts, starts = checked_restarts(options, starts, units, rng, init is not None)
    init, n_rows = checked_init(init, algorithm, units, n_rows)
    single, n_starts = n_rows is None, n_restarts + 1
    n_rows, moves = (n_rows or 1) * n_starts, init is None

    restarts = n_starts, starts, rng
    *ends, pairs, kept = _propagated(options, units, n_rows, init, restarts)
    record, optimal, is_best = assigned_rows(options, units, ends, n_starts, moves)
    found = beliefs_of(
        options, units, record, single, messages=kept, pairwise=pairs, local_maximum=optimal
    )
    if found.objective is not None:  # decoded
        return with_assignment_check(found, options, units, is_best)
    return _checked(found, model, fields)


def _checked(found, model, fields, stable=None):
    """The same `Beliefs` with what is computed when it is read."""
    mixed = partial(belief_propagation, n_starts=N_CHECKED_STARTS, max_iter=MAX_CHECK_SWEEPS, rng=0)
    found.__dict__["_loops"] = LayerLoops(model)
    sizes = model.weights.shape
    parts = [np.zeros(n) if f is None else f for f, n in zip(fields, sizes, strict=True)]
    n_rows = max(len(np.atleast_2d(part)) for part in parts)
    field = np.hstack([np.broadcast_to(f, (n_rows, n)) for f, n in zip(parts, sizes, strict=True)])
    tilt = Tilt(
        field.astype(np.float64), np.zeros((1, sum(sizes))), np.zeros((1, sum(sizes)), bool)
    )
    mixed = mixed if stable is None else None
    return with_check(found, Question(model, tilt, True, mixed, stable))


def _from_starts(options, model, fields, n_rows):
    """The `Beliefs` of an RBM of binary units with several starts."""
    units, record, pairs, solutions, stable = propagate_from_starts(
        options, model, fields, n_rows, _propagated
    )
    found = beliefs_of(
        options,
        units,
        record,
        n_rows is None,
        messages=None,
        pairwise=pairs,
        local_maximum=None,
    )
    with_solutions(found, solutions, n_rows is None)
    return _checked(found, model, fields, stable)


def _propagated(options, units, n_rows, init=None, restarts=(1, None, None)):
    """Iterate messages to the ends of all rows.

    Parameters
    ----------
    options : BPOptions
    units : BinaryUnits
    n_rows : int
    init : array or None
        Checked.
    restarts : tuple (n_starts, starts, rng)
        Runs for each row of `units`, and the assignments from which all but the first start.

    Returns
    -------
    BPSettings, BPProblem, BPRecord
    pairs, messages : array or None
        Results that `options` ask for.
    """
    dtype = message_dtype(options, units)
    n_starts, starts, rng = restarts
    layout = message_layout(options, units, n_rows, init is not None)
    n_messages, *pair_shape = layout.shape
    # Beside the exponentials; rows with messages of their own start from them, others from a copy.
    n_arrays = 1 + n_messages + layout.n_segments + (n_messages != n_rows)
    with borrowed((n_arrays, *pair_shape), dtype) as memory:
        ratios, sums = memory[1:][:n_messages], memory[1 + n_messages :][: layout.n_segments]
        start = memory[1 if n_messages == n_rows else -1]
        settings, problem, record = prepared(
            options, units.repeated(n_starts), dtype, n_rows, (memory[0], start)
        )
        if n_starts > 1:
            set_assignments(units, record, starts, n_starts, rng)
        set_start(options, units, init, ratios, record, n_starts)
        _solve(settings, problem, ratios, record, layout, sums, options.n_threads)
        if record.history.size:
            mark_cycles(record)
        pairs = kept = None
        if options.pairwise:
            pairs = pair_products(options, units, problem, ratios, record, sums)
        if options.messages:
            kept = log_messages(options, units, ratios)
    return settings, problem, record, pairs, kept


class BatchBeliefs(NamedTuple):
    """Result of `beliefs_of_batch`.

    Parameters
    ----------
    visible, hidden : array of shape (n_rows, n_units)
        Sum-product: probabilities of 1. Max- and mixed-product: the best visible assignment of all
        sweeps, and of max-product the best hidden one given it.
    pairs : array of shape (n_visible, n_hidden) or None
        Mean over rows of the probabilities that both units are 1, if asked for.
    residual : array of shape (n_rows,)
    n_iter : int array of shape (n_rows,)
    """

    visible: np.ndarray
    hidden: np.ndarray
    pairs: np.ndarray | None
    residual: np.ndarray
    n_iter: np.ndarray


def beliefs_of_batch(model, fields, **options):
    """Results of `belief_propagation` for learning, in half of the time around the kernels.

    Parameters
    ----------
    model
        With `weights` between {0, 1} units and their `dtype`.
    fields : pair of arrays of shape (n_rows, n_visible) and (n_rows, n_hidden)
        Finite; all of the units' fields.
    **options
        Options as for `BPOptions`; assignments are not polished.

    Returns
    -------
    BatchBeliefs
    """
    options = BPOptions(log_partition=False, **options)
    units = BinaryUnits.of_bits(model, fields)
    _, _, record, pairs, _ = _propagated(options, units, len(fields[0]))
    if options.algorithm == "sum":
        log_odds = record.visible, record.hidden[:, : model.weights.shape[1]]
        layers = [expit(x.astype(model.dtype)) for x in log_odds]
    else:
        layers = decoded(units, record)
    layers = (x.astype(model.dtype, copy=False) for x in layers)
    return BatchBeliefs(*layers, pairs, record.residual, record.n_iter)


def _solve(settings, problem, messages, record, layout, sums, n_threads):
    """Iterate all rows to their ends, by the kernels."""
    if layout.shared:
        _solve_shared(settings, problem, messages, record, n_threads)
        return
    n_workers = layout.n_workers
    workspaces = new_workspaces(n_workers, record, messages.dtype, settings.algorithm)
    arguments = settings, problem, messages, record, workspaces, sums, np.zeros(2, np.int64)
    in_parallel(bp_kernels.belief_propagation, arguments, n_workers)


def _solve_shared(settings, problem, messages, record, n_threads):
    """Iterate a single row, each sweep shared between the threads."""
    n_blocks = -(-record.visible.shape[1] // bp_types.BLOCK_UNITS)
    n_workers = workers_for(n_blocks, record.visible.size * record.hidden.size * 10, n_threads)
    workspaces = new_workspaces(1, record, messages.dtype, settings.algorithm, n_workers)
    log_odds = record.hidden[0]
    workspaces.beliefs[0] = *sigmoid_pair(log_odds), log_odds
    queue = np.zeros(2, np.int64)
    arguments = settings, problem, messages, record, workspaces, queue

    def sweep():
        queue[:] = 0
        in_parallel(bp_kernels.sweep_blocks, arguments, n_workers)
        bp_kernels.conclude_sweep(settings, problem, record, workspaces)

    while record.status[0] <= RUNNING:
        sweep()
    if settings.bethe:
        sweep()  # the row has ended: this computes the Bethe log-partition
