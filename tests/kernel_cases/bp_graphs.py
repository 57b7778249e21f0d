"""Cases of belief propagation on graphs."""

from functools import partial

import numpy as np
from scipy.sparse import csr_array

import fastmf as mf
from fastmf._outcomes import ALL, FOLLOWING, NO_RECEIVERS
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.kernels.bp.graphs import ForestMemory, GraphState, odds_address, send_address
from fastmf.reference.bp.graphs import graph_sweep
from kernel_cases.case import Case, chosen


def edges_of(n, rng):
    """A random tree, and half as many edges more; the last units are alone."""
    later = np.arange(1, n - 1)
    tree = np.stack([(rng.random(len(later)) * later).astype(int), later], 1)
    others = np.sort(rng.integers(0, n - 1, (n // 2, 2)), axis=1)
    return np.unique(np.vstack([tree, others[others[:, 0] < others[:, 1]]]), axis=0)


def binary_machine(n, rng):
    """Spins of a random graph."""
    first, second = edges_of(n, rng).T
    upper = csr_array((rng.normal(size=len(first)), (first, second)), shape=(n, n))
    return mf.BoltzmannMachine(upper + upper.T, mf.Ising(rng.normal(size=n)))


def states_machine(n, rng):
    """Units of 2 to 4 states, with forbidden pairs of states."""
    sizes = 2 + np.arange(n) % 3
    starts = np.cumsum(sizes) - sizes
    rows, columns, values = [], [], []
    for i, j in edges_of(n, rng):
        table = rng.normal(size=(sizes[i], sizes[j])) * 2
        table[rng.random(table.shape) < 0.1] = -np.inf
        table[0] = 1.0
        a, b = np.indices(table.shape)
        rows.append((starts[i] + a).ravel())
        columns.append((starts[j] + b).ravel())
        values.append(table.ravel())
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    upper = csr_array(entries, shape=(sizes.sum(),) * 2)
    units = mf.Categorical([rng.normal(size=size) for size in sizes])
    return mf.BoltzmannMachine(upper + upper.T, units)


def of_rows(size, rows, kind, maximum=False, reweighted=False):
    """A problem of the chosen rows, its messages, and the address of what sends them."""
    rng = np.random.default_rng(3)
    n = max(size.n_visible, 6)
    model = (binary_machine if kind == "binary" else states_machine)(n, rng)
    rows = chosen(rows, size.n_rows)
    field = rng.normal(size=(size.n_rows, model.n_units))[rows]
    clamp = None
    if kind == "binary":
        clamp = np.full((size.n_rows, n), np.nan)
        clamp[:, 2] = np.where(np.arange(size.n_rows) % 2, 1.0, -1.0)
        clamp = clamp[rows]
    units = GraphUnits(model, field, clamp)
    if kind == "binary":
        problem, n_messages = units.binary[0], len(units.layout.edges)
        messages = np.exp(rng.uniform(-0.1, 0.1, (size.n_rows, n_messages)))[rows]
        return problem, messages, odds_address()
    probability = np.full(len(units.graph.edges), 0.7) if reweighted else None
    problem = units.problem(probability)[0]._replace(maximum=maximum)
    messages = -rng.random((size.n_rows, problem.first_entry[-1]))[rows]
    return problem, messages, send_address()


def state_of(problem, messages, receivers=ALL):
    """A `GraphState` of these messages, of which one row is damped."""
    n_rows = len(messages)
    binary = hasattr(problem, "odds")
    n_beliefs = problem.odds.shape[1] if binary else problem.field.shape[1]
    return GraphState(
        messages=messages,
        beliefs=np.ones((n_rows, n_beliefs)),
        damping=np.full(n_rows, 0.25),
        residual=np.zeros(n_rows),
        receivers=receivers,
        scratch=np.zeros((8, 3, 8)),
    )


def sweep_arguments(size, dtype, rows=None, step=-1, receivers=ALL, **kind):
    """Arguments of `graph_sweep`."""
    problem, messages, send = of_rows(size, rows, **kind)
    state = state_of(problem, messages, receivers)
    return send, problem, state, np.arange(len(messages)), step, np.zeros(2, np.int64)


def _with_beliefs(size, rows, **kind):
    problem, messages, send = of_rows(size, rows, **kind)
    state = state_of(problem, messages)
    n = len(problem.starts) - 1
    unchanged = state._replace(receivers=NO_RECEIVERS)
    graph_sweep(send, problem, unchanged, np.arange(len(messages)), 1, None)
    return problem, state, n


def terms_arguments(size, dtype, rows=None, **kind):
    """Arguments of `binary_terms`."""
    problem, state, n = _with_beliefs(size, rows, **kind)
    n_rows, n_pairs = len(state.messages), problem.edges.max() + 1
    terms, pairs = np.zeros((n_rows, n)), np.zeros((n_rows, n_pairs))
    return problem, state, terms, pairs, np.zeros(2, np.int64)


def decoding_arguments(size, dtype, rows=None):
    """Arguments of `decode_graph`."""
    problem, state, n = _with_beliefs(size, rows, kind="states", maximum=True)
    labels = np.zeros((len(state.messages), n), np.int64)
    optimal, objective = np.zeros(len(labels), bool), np.zeros(len(labels))
    return problem, state, True, labels, optimal, objective, np.zeros(2, np.int64)


def moves_arguments(size, dtype, rows=None):
    """Arguments of `forest_move`, from the first state of all units."""
    problem, state, n = _with_beliefs(size, rows, kind="states", maximum=True)
    rng, n_rows = np.random.default_rng(5), len(state.messages)
    order, n_states = rng.permutation(n), problem.field.shape[1]
    noise = rng.gumbel(size=(size.n_rows, n_states))[chosen(rows, size.n_rows)]
    memory = ForestMemory(*np.zeros((4, 8, n), np.int64), np.zeros((8, n_states)))
    labels, objective = np.zeros((n_rows, n), np.int64), np.zeros(n_rows)
    return problem, order, noise, labels, objective, memory, np.zeros(2, np.int64)


def of_sweep(arguments):
    """Messages, beliefs and residuals."""
    state = arguments[2]
    return {"messages": state.messages, "beliefs": state.beliefs, "residual": state.residual}


def of_terms(arguments):
    """Terms of the log-partition and pair beliefs."""
    return {"terms": arguments[2], "pairs": arguments[3]}


def of_decoding(arguments):
    """Assignments."""
    return {"labels": arguments[3], "optimal": arguments[4], "objective": arguments[5]}


def of_move(arguments):
    """States after a move."""
    return {"labels": arguments[3], "objective": arguments[4]}


CLOSE = {"float64": 1e-9}
BINARY, SUMS = {"kind": "binary"}, {"kind": "states"}
MAXIMA, TREES = SUMS | {"maximum": True}, SUMS | {"reweighted": True}
KINDS = (("binary", BINARY), ("sums", SUMS), ("maxima", MAXIMA), ("trees", TREES))
SWEEPS = [
    Case("bp.graphs.graph_sweep", f"{name}-{'forwards' if step > 0 else 'backwards'}",
         partial(sweep_arguments, step=step, **kind), of_sweep, CLOSE,
         large=True)
    for name, kind in KINDS
    for step in (1, -1)
]  # fmt: skip
CASES = [
    *SWEEPS,
    *(
        Case("bp.graphs.graph_sweep", f"{name}-receivers-{receivers}",
             partial(sweep_arguments, receivers=receivers, **kind), of_sweep, CLOSE)
        for name, kind in KINDS[:2]
        for receivers in (FOLLOWING, NO_RECEIVERS)
    ),
    Case("bp.graphs.binary_terms", "spins", partial(terms_arguments, **BINARY), of_terms,
         CLOSE, large=True),
    Case("bp.graphs.decode_graph", "moves", decoding_arguments, of_decoding, CLOSE,
         ("labels", "optimal"), large=True),
    Case("bp.graphs.forest_move", "states", moves_arguments, of_move, CLOSE, ("labels",),
         large=True),
]  # fmt: skip
