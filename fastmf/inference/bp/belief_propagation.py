"""Sum-, max- and mixed-product belief propagation in machines of two layers of binary units."""

import functools

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.arguments import iteration
from fastmf._common.memory import borrowed
from fastmf._outcomes import RUNNING
from fastmf._threads import in_parallel, workers_for
from fastmf.inference.bp._binary_units import Bits
from fastmf.inference.bp._decoding import best_of, polish_rows, scatter, spectral_radius
from fastmf.inference.bp._fallbacks import mark_cycles, minimise
from fastmf.inference.bp._starts import checked_fields, checked_restarts, checked_start, set_start
from fastmf.inference.bp.beliefs import beliefs_of
from fastmf.inference.bp.bethe import StationaryPoint
from fastmf.kernels import belief_propagation as kernels
from fastmf.kernels import bp_types
from fastmf.kernels.bp_types import Partial, Problem, Record, Settings
from fastmf.models import RBM
from fastmf.priors import Bernoulli
from fastmf.special import sigmoid_pair

ALGORITHMS = {"sum": bp_types.SUM, "max": bp_types.MAX, "mixed": bp_types.MIXED}
# Largest |weight| between {0, 1} units for which all ratios are normal numbers of the type.
LARGEST = {np.dtype(np.float32): 40.0, np.dtype(np.float64): 340.0}
# Field of padding units: 0 to all purposes, and still finite.
NEVER = -1e4
# A single row of fewer pairs is swept by one thread: waking another takes as long as the sweep.
SHARED = 2_000_000
# Local maxima of log p(v) that sum-product starts from where nothing has settled; its sweeps there.
N_MAXIMA, SWEEPS = 16, 200
# Residuals beyond this number are not kept unless asked for; cycles are then not told.
LONGEST_HISTORY = 2**26


def belief_propagation(
    model,
    *,
    algorithm="sum",
    field=None,
    init=None,
    damping=None,
    tol=1e-8,
    max_iter=1000,
    history=False,
    messages=False,
    pairwise=False,
    polish=None,
    n_restarts=0,
    starts=None,
    rng=None,
    certificate=False,
    on_failure="report",
    n_threads=None,
):
    """Iterate the messages of belief propagation, for many rows of fields at once.

    Parameters
    ----------
    model : RBM
        With Bernoulli or Ising units.
    algorithm : {"sum", "max", "mixed"}, default "sum"
        Sum-product: marginals and log-partition. Max-product: the most probable joint assignment.
        Mixed-product: the visible assignment of largest probability, hidden units summed out.
    field : array or pair of arrays, optional
        Extra fields of the visible units, or of (visible, hidden) units, each (n_units,) or
        (n_rows, n_units) or None: conditional biases, or a loss that decomposes over units.
    init : None, array or Beliefs
        Messages to start from, as in the result's `messages`; for mixed-product a visible
        assignment. None: no message. An earlier result must have its messages.
    damping : float in [0, 1), optional
        Share of the old value in the normalised messages. None: undamped, until the residual of a
        row has not improved for 16 sweeps; then just that row is damped by 1/2, 3/4, ... Has no
        meaning for mixed-product, whose messages are hard decisions.
    tol : float, default 1e-8
        A row has converged when no belief (probability) changes by more in an undamped sweep, nor
        the square of the relative change of its log-odds, which go on where a probability is
        saturated; damped rows make such a sweep when they seem to be there, and it may change
        less: tol * (1 - d) / (1 + d) for damping d, as far from a fixed point that only damping
        holds as keeps the next sweep within tol. At least eps * sqrt(largest degree), what rounding
        leaves moving in float32. 0: always do `max_iter`
        sweeps, as conditional RBMs are trained with.
    max_iter : int, default 1000
    history : bool, default False
        Keep the residual of every sweep.
    messages : bool, default False
        Keep the messages: n_rows * n_visible * n_hidden numbers.
    pairwise : bool or "mean", default False
        Compute expected products <v_i h_j>, of each row or their average (sum-product only).
    polish : bool, optional
        Improve the best assignment of max- or mixed-product by flipping one visible unit after
        another until no single flip raises `objective`, in double precision; the hidden units are
        maximised for max-product, summed out for mixed-product. For that it is the sequential form
        (with max_iter=1, that alone), whose fixed points are exactly the local maxima. None: done
        for both. False: the best assignment of all sweeps as it is. See Notes for what it costs.
    n_restarts : int, default 0
        Decode so many more times, from random assignments, and keep the best by `objective`; all
        that is returned is of that start. (Max- and mixed-product only.)
    starts : array of shape (n_starts, n_visible), optional
        In place of `n_restarts`, the assignments to decode from in addition, the same for each row.
    rng : numpy.random.Generator or int, optional
        For restarts.
    certificate : bool, default False
        Bound the spectral radius of Mooij and Kappen (2007).
    on_failure : {"report", "minimise"}, default "report"
        What becomes of rows of sum-product that have not converged. Report: they are given as they
        are. Minimise: they are replaced by a stationary point of the Bethe free energy, found by
        minimising it directly or, where weights are too large for that, by sweeps from decoded
        assignments or Newton steps on the messages; their message says so. They count as converged
        if an undamped sweep from the messages, in float64, changes them by no more than `tol`, in
        the units of `tol`. One row after another,
        in float64, some twenty times the memory of the weights; less than a second at 784 x 256,
        half a minute where all of it fails. A stationary point is no promise: where large weights
        are at odds with each other, the Bethe log-partition of a minimum is far above the true one.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.

    Returns
    -------
    Beliefs

    Raises
    ------
    ValueError, TypeError
        For arguments of wrong shapes, types or ranges, |fields| above 3.4e30 in float32 (1.8e300 in
        float64) and, but for max-product, |weights| above 340 (of {0, 1} units). Not converging is
        no error: it is said row by row in the result.
    MemoryError
        If the messages do not fit in the machine's memory; says how much they need.

    Notes
    -----
    Ping and Ihler (2017), Eqs. 8-18, in odds form: no exponential or logarithm of a message. A
    sweep is all hidden beliefs, then all visible ones. A float32 model with |weights| above 40 is
    computed in float64. Memory: exp(weights) and one array of messages for each thread (a single
    large row has one), or for each row if they are kept: 0.15 GiB beside the weights for a row of
    10,000 x 2,000 units in float32, 0.75 GiB for one of 100,000 x 1,000.

    Decoding: the assignment of max- and mixed-product is a heuristic, by default (polished) an
    optimum of single flips. Polishing costs about as much as five sweeps, and the weights in
    float64 (for mixed-product twice); a restart costs as much as decoding without one. Of 60
    machines of 8 x 6 to 12 x 10 units mixed-product found the optimum of 37 without polishing, of
    45 with it, of 58 with 4 restarts and of 59 with 8; max-product of 59 from the start.

    Damping averages probabilities, as in the paper. A saturated message then arrives by a share of
    its probability in each sweep, long after beliefs have stopped changing; the undamped sweep that
    ends a row takes it there at once.
    """
    check.one_of("algorithm", algorithm, tuple(ALGORITHMS))
    kind = ALGORITHMS[algorithm]
    damping, tol, max_iter, n_threads = iteration(damping, tol, max_iter, n_threads)
    if damping and algorithm == "mixed":
        raise ValueError("damping must be None or 0 for mixed-product: decisions are hard.")
    check.one_of("pairwise", pairwise, (False, True, "mean"))
    if polish and algorithm == "sum":
        raise ValueError("polish needs algorithm='max' or 'mixed'.")
    if pairwise and algorithm != "sum":
        raise ValueError("pairwise needs algorithm='sum'.")
    check.one_of("on_failure", on_failure, ("report", "minimise"))
    if on_failure == "minimise" and (algorithm != "sum" or not tol):
        raise ValueError("on_failure='minimise' needs algorithm='sum' and tol above 0.")
    if messages and algorithm == "mixed":
        raise ValueError("messages are not there for mixed-product: start it from an assignment.")
    fields, n_rows = checked_fields(model, field)
    bits = Bits(model, fields)
    n, m = model.weights.shape
    dtype = model.dtype if bits.largest <= LARGEST[np.dtype(np.float32)] else np.dtype(np.float64)
    if bits.largest > LARGEST[dtype] and algorithm != "max":
        raise ValueError(
            f"weights must be at most {LARGEST[dtype] / bits.factor:g} in absolute value, "
            f"got {bits.largest / bits.factor:g}."
        )
    allowed = algorithm != "sum" and init is None and not messages
    n_restarts, starts = checked_restarts(n_restarts, starts, bits, n, rng, allowed)
    n_starts = n_restarts + 1
    init, n_rows = checked_start(init, algorithm, bits, n, m, n_rows)
    single, n_rows = n_rows is None, (n_rows or 1) * n_starts

    # Cycles are told by the residuals of all sweeps (memory that is not touched costs nothing).
    told = tol and n_rows * max_iter <= LONGEST_HISTORY
    n_history = max_iter if history or told else 0
    settings, problem, record = prepared(
        kind,
        model,
        bits.repeated(n_starts),
        dtype,
        n_rows,
        damping,
        tol,
        max_iter,
        n_history,
        n_threads,
    )
    if n_restarts:
        scatter(model, bits, record, starts, n_starts, rng)
    n_padded = record.hidden.shape[1]
    shared = n_rows == 1 and n * m > SHARED
    n_workers = workers_for(n_rows, n_rows * n * m * 10, n_threads)
    keep = bool(messages or pairwise or init is not None) and algorithm != "mixed"
    n_seats = n_rows if keep or shared else n_workers
    if algorithm == "mixed":
        shape = n_seats, n, 0
    else:
        shape = n_seats, n, n_padded
    with borrowed(shape, dtype) as ratios:
        set_start(kind, model, bits, init, ratios, record)
        if shared:
            _solve_shared(settings, problem, ratios, record, n_threads)
        else:
            n_blocks = -(-n // bp_types.BLOCK)
            partial = seats(n_workers, n_blocks, n_padded, dtype, kind)
            queue = np.zeros(2, np.int64)
            arguments = settings, problem, ratios, record, partial, queue
            in_parallel(kernels.belief_propagation, arguments, n_workers)
        if n_history:
            mark_cycles(record)
        if on_failure == "minimise":
            search = functools.partial(_from_assignments, n_threads=n_threads)
            minimise(model, bits, record, ratios, settings.tol, search)
        pairs = _pairwise(pairwise, single, model, bits, problem, ratios, record, n_threads)
        kept = None
        if messages:
            kept = ratios[:, :, :m].copy()
            if algorithm == "sum":
                np.log(kept, out=kept)
            kept = kept.astype(model.dtype, copy=False)
    optimal = None
    if polish or (polish is None and algorithm != "sum"):
        joint = algorithm == "max"
        optimal = polish_rows(model, bits, problem, record, joint, settings.chunk, n_threads)
    if n_restarts:
        record, optimal = best_of(record, optimal, n_starts)
    radius = spectral_radius(model.weights * bits.factor) if certificate else None
    return beliefs_of(algorithm, model, bits, record, history, single, kept, pairs, radius, optimal)


def prepared(
    kind, model, bits, dtype, n_rows, damping, tol, max_iter, n_history, n_threads=None
):  # fmt: skip
    """Settings, problem and fresh record for the kernels."""
    largest = max(0.1, bits.largest)
    limit = 80 if dtype == np.float32 else 690
    floor = np.finfo(dtype).eps * np.sqrt(max(model.weights.shape))
    settings = Settings(
        algorithm=kind,
        adaptive=damping is None and kind != bp_types.MIXED,
        tol=max(tol, floor) if tol else -1.0,
        rounding=floor if tol else -1.0,
        max_iter=max_iter,
        fold=4 * largest < limit,
        chunk=max(1, int(690 / largest)),
        flush=max(1, int(limit / largest)),
        refresh=max(1, int(690 / largest)),
    )
    problem = _problem(kind, model, bits, dtype, n_threads)
    n, n_padded = len(model.weights), problem.hidden_field.shape[1]
    record = _record(n_rows, n, n_padded, n_history, damping)
    record.hidden[:] = problem.hidden_field
    return settings, problem, record


def _problem(kind, model, bits, dtype, n_threads):
    n, m = model.weights.shape
    n_padded = -(-m // bp_types.PADDING) * bp_types.PADDING
    factor = dtype.type(bits.factor)
    weights = exponentials = np.zeros((0, n_padded), dtype)
    if kind != bp_types.SUM:
        weights = np.zeros((n, n_padded), dtype)
        np.multiply(model.weights, factor, out=weights[:, :m], casting="same_kind")
    if kind != bp_types.MAX:
        exponentials = np.empty((n, n_padded), dtype)
        arguments = model.weights, float(bits.factor), np.zeros(1, np.int64), exponentials
        n_workers = workers_for(-(-n // bp_types.BLOCK), 4 * n * m, n_threads)
        in_parallel(kernels.exponentials, arguments, n_workers)
    hidden = np.full((len(bits.fields[1]), n_padded), NEVER)
    hidden[:, :m] = bits.fields[1]
    sums = weights.sum(1, dtype=np.float64) if kind == bp_types.MIXED else np.zeros(0)
    return Problem(weights, exponentials, sums, bits.fields[0], hidden)


def _record(n_rows, n, n_padded, n_history, damping):
    return Record(
        visible=np.zeros((n_rows, n)),
        hidden=np.zeros((n_rows, n_padded)),
        best=np.zeros((n_rows, n), bool),
        objective=np.full(n_rows, -np.inf),
        bethe=np.zeros(n_rows),
        status=np.zeros(n_rows, np.int64),
        n_iter=np.zeros(n_rows, np.int64),
        residual=np.zeros(n_rows),
        damping=np.full(n_rows, damping or 0.0),
        smallest=np.full(n_rows, np.inf),
        since=np.zeros(n_rows, np.int64),
        history=np.zeros((n_rows, n_history) if n_history else (0, 0)),
    )


def seats(n_seats, n_blocks, n_padded, dtype, kind):
    """Fresh `Partial` of so many seats."""
    fields = n_seats if kind == bp_types.MAX else 0
    return Partial(
        beliefs=np.zeros((n_seats, 3, n_padded), dtype),
        logs=np.zeros((n_seats, n_blocks, n_padded)),
        fields=np.zeros((fields, n_blocks, n_padded)),
        change=np.zeros((n_seats, n_blocks)),
        value=np.zeros((n_seats, n_blocks)),
    )


def _solve_shared(settings, problem, ratios, record, n_threads):
    """Sweep a single row, all threads at it."""
    n, n_padded = record.visible.shape[1], record.hidden.shape[1]
    n_blocks = -(-n // bp_types.BLOCK)
    n_workers = workers_for(n_blocks, n * n_padded * 10, n_threads)
    partial = seats(1, n_blocks, n_padded, ratios.dtype, settings.algorithm)
    log_odds = record.hidden[0]
    partial.beliefs[0] = *sigmoid_pair(log_odds), log_odds
    queue = np.zeros(1, np.int64)
    arguments = settings, problem, ratios, record, partial, queue
    while record.status[0] <= RUNNING:
        queue[0] = 0
        in_parallel(kernels.sweep_blocks, arguments, n_workers)
        kernels.conclude_sweep(settings, problem, record, partial)
    if settings.algorithm == bp_types.SUM:
        queue[0] = 0
        in_parallel(kernels.sweep_blocks, arguments, n_workers)
        kernels.conclude_sweep(settings, problem, record, partial)


def _from_assignments(weights, visible_field, hidden_field, tol, n_threads=None):
    """Fixed point near the largest local maximum of log p(v) near which sum-product finds one.

    Where large weights are at odds with each other, sweeps from no message cycle, and the Bethe
    free energy is lowest at beliefs that mean nothing; near a good assignment there may be a fixed
    point all the same, and the log-partition is then about that of the states around it.
    """
    model = RBM(weights, Bernoulli(visible_field), Bernoulli(hidden_field))
    visible = np.random.default_rng(0).random((N_MAXIMA, len(weights))) < 0.5
    maxima = belief_propagation(
        model, algorithm="mixed", init=visible, max_iter=1, polish=True, n_threads=n_threads
    )
    options = {"tol": tol, "max_iter": SWEEPS, "messages": True, "n_threads": n_threads}
    for best in np.argsort(-maxima.objective):
        messages = weights * maxima.assignment[0][best][:, None]
        found = belief_propagation(model, init=messages, **options)
        if found.converged:
            break
    return StationaryPoint(
        log_odds=(found.b[0] + visible_field, found.b[1] + hidden_field),
        messages=np.exp(found.messages),
        log_partition=found.log_partition,
        residual=found.residual,
        n_iter=found.n_iter,
    )


def _pairwise(wanted, single, model, bits, problem, ratios, record, n_threads):
    if not wanted:
        return None
    n_rows, (n, m) = len(record.visible), model.weights.shape
    mean = wanted == "mean"
    out = np.zeros((1 if mean else n_rows, n, ratios.shape[2]), ratios.dtype)
    scales = np.full(n_rows, 1 / n_rows if mean else 1.0)
    n_tasks = -(-n // bp_types.PAIR_BLOCK)
    n_workers = workers_for(n_tasks, 10 * ratios.size, n_threads)
    arguments = problem, ratios, record, scales, np.zeros(1, np.int64), out
    in_parallel(kernels.pair_beliefs, arguments, n_workers)
    out = out[:, :, :m]
    if bits.factor != 1:
        (ov, oh), (sv, sh) = bits.offsets, bits.scales
        p = [sigmoid_pair(x)[0] for x in (record.visible, record.hidden[:, :m])]
        if mean:
            p = [x.mean(0, keepdims=True) for x in p]
        out = ov * oh + ov * sh * p[1][:, None] + oh * sv * p[0][:, :, None] + sv * sh * out
    out = np.ascontiguousarray(out, dtype=model.dtype)
    return out[0] if mean or single else out
