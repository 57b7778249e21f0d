"""Messages on a graph to start from, and as they are returned.

Messages between two-valued units are returned as log-odds, other messages as logarithms of all
states of the receiver, the largest of them 0, in the order of the kernels.
"""

import numpy as np
import scipy

from fastmf.inference.bp._kernel_arguments import MAX_LOG_OF_PRODUCT
from fastmf.inference.bp.graphs.moves import MAX_START_SLOTS, forest_moves
from fastmf.inference.bp.graphs.units import checked_clamp
from fastmf.inference.bp.rbm import checked_init, messages_of
from fastmf.inference.bp.solutions import MIN_START_PROBABILITY, random_probabilities, relaxed
from fastmf.priors._queries import two_values

# Largest size of exponents from which states of starts are found, and of log-messages of states
# that start: an impossible state may be possible with other fields.
FORBIDDEN = MAX_LOG_OF_PRODUCT[np.dtype(np.float64)]


def checked_messages(init, units):
    """Checked log-messages to start from, and the number of rows."""
    n = len(units.layout.edges)
    if two_values(units.model.prior) is None:
        n = int(units.graph.n_states[units.layout.order][units.layout.neighbours].sum())
    init, n_rows = checked_init(messages_of(init), (n,), units.n_rows, smallest=-np.inf)
    return init.astype(np.float64), n_rows


def first_messages(init, units, problem, shape):
    """Messages of the kernels to start from: the given ones, or messages without preference."""
    if init is None:
        return np.zeros(shape) if problem is not None else np.ones(shape)
    if problem is None:
        # Odds of the messages between units with exponents K lie between exp(-2 |K|) and its
        # inverse.
        limit = np.abs(np.log(units.binary[0].exponentials))
        return np.exp(np.broadcast_to(np.clip(init, -limit, limit), shape), order="C")
    if shape[1] != init.shape[-1]:
        # Log-odds of two-valued units.
        init = np.stack([np.minimum(-init, 0), np.minimum(init, 0)], -1).reshape(
            *init.shape[:-1], -1
        )
    return np.broadcast_to(np.maximum(init, -FORBIDDEN), shape).copy(order="C")


def returned_messages(messages, units):
    """Messages of the kernels as log-odds, if units are two-valued and have logarithms."""
    if two_values(units.model.prior) is None or messages.shape[1] == len(units.layout.edges):
        return messages
    return messages[:, 1::2] - messages[:, ::2]


def starts_of_graph(units, n_starts, rng):
    """Log-messages of the given number of starts, the first without preference."""
    unit, value, weight = units.states
    field = np.clip((weight + value * units.field[:, unit])[0], -FORBIDDEN, FORBIDDEN)
    couplings = couplings_of(units, -FORBIDDEN)

    def step(x, temperature):
        return (x + units.normalised((field + x @ couplings) / temperature)) / 2

    uniform = np.repeat(1 / units.graph.n_states, units.graph.n_states)
    p, kinds = relaxed(_random_beliefs(units, n_starts - 1, rng), uniform, step, rng)
    cold = np.flatnonzero(kinds == 2)[-1:]
    p[cold] = _annealed(units, p[cold])
    messages = messages_from(units, np.maximum(p, MIN_START_PROBABILITY))
    return np.concatenate([np.zeros_like(messages, shape=(1, messages.shape[1])), messages])


def _annealed(units, beliefs):
    """States of large weight, or the given beliefs where none is found."""
    problem, n = units.problem()[0], len(beliefs)
    labels = np.zeros((n, len(units.graph.n_states)), np.int64)
    objective = np.full(n, -np.inf)
    forest_moves(problem, labels, objective, max_slots=MAX_START_SLOTS)
    states = np.zeros_like(beliefs)
    columns = units.first_state[units.layout.order] + labels
    states[np.arange(n)[:, None], columns] = 1
    return np.where(np.isfinite(objective)[:, None], states, beliefs)


def _random_beliefs(units, n, rng):
    """States at random, as probabilities of states of all units."""
    sizes = units.graph.n_states
    if two_values(units.model.prior) is not None:
        p = random_probabilities(n, len(sizes), rng)
        return np.stack([1 - p, p], -1).reshape(n, 2 * len(sizes))
    # Some starts prefer a label, so that phases are found that differ in all units.
    labels = np.arange(sizes.sum()) - np.repeat(units.first_state[:-1], sizes)
    preferred = rng.random((n, sizes.max())) * rng.integers(0, 2, (n, 1))
    noise = rng.random((n, len(labels))) + preferred[:, labels]
    top = np.maximum.reduceat(noise, units.first_state[:-1], axis=1)
    return (noise == np.repeat(top, sizes, axis=1)).astype(np.float64)


def messages_at(init, units):
    """Log-messages of units in the states of an assignment, or of the one of an earlier result."""
    init = getattr(init, "assignment", init)
    prior = units.model.prior
    values = np.atleast_2d(checked_clamp(prior, init, "init"))
    if np.isnan(values).any():
        raise ValueError("init must give a value to each unit, got NaN.")
    unit, value, _ = units.states
    beliefs = (values[:, unit] == value).astype(np.float64)
    messages = messages_from(units, np.maximum(beliefs, MIN_START_PROBABILITY))
    return messages[0] if np.ndim(init) == 1 else messages


def messages_from(units, beliefs):
    """Log-messages that units with such probabilities send to all neighbours."""
    problem, edges = units.problem()[0], units.graph.edges
    sizes, counts = units.graph.n_states, np.diff(problem.first_value)
    edge = np.repeat(np.arange(len(edges)), counts)
    labels = np.divmod(np.arange(counts.sum()) - problem.first_value[edge], sizes[edges[edge, 1]])
    rows, columns = [], []
    for side in (0, 1):
        rows.append(units.first_state[edges[edge, side]] + labels[side])
        columns.append(problem.first_entry[units.layout.slots[edge, side]] + labels[1 - side])
    weights = np.tile(problem.exponentials, 2)
    shape = beliefs.shape[1], problem.first_entry[-1]
    cells = tuple(map(np.concatenate, (rows, columns)))
    sending = scipy.sparse.csr_array((weights, cells), shape=shape)
    with np.errstate(divide="ignore"):  # states that no state of the sender allows
        return returned_messages(np.log(beliefs @ sending), units)


def couplings_of(units, smallest=-np.inf):
    """Couplings of all states, at least the given value, as a symmetric sparse array."""
    first, tables = units.tables
    tables = np.maximum(tables, smallest)
    edges, sizes = units.graph.edges, units.graph.n_states
    edge = np.repeat(np.arange(len(edges)), np.diff(first))
    a, b = np.divmod(np.arange(len(tables)) - first[edge], sizes[edges[edge, 1]])
    start = units.first_state[edges[edge]]
    n = units.first_state[-1]
    upper = scipy.sparse.csr_array((tables, (start[:, 0] + a, start[:, 1] + b)), shape=(n, n))
    return (upper + upper.T).tocsr()
