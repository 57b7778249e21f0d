"""Starting messages on a graph, the form in which messages are returned, likely states.

Messages between two-valued units are returned as log-odds, other messages as logarithms of all
states of the receiver, the largest of them 0, in the order of the kernels.

Likely states of a graph with cycles are reached by moves of many units at once: the most probable
states of a random induced forest, given all other units, are computed by dynamic programming (Hamze
and de Freitas 2004 sample in this way), first with Gumbel noise in the fields, which falls to 0
(perturb and maximise, Papandreou and Yuille 2011), then without noise.
"""

import numpy as np
import scipy

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.bp._options import MAX_LOG_OF_PRODUCT
from fastmf.inference.bp.graphs.units import checked_clamp, first_largest
from fastmf.inference.bp.rbm import checked_init, messages_of
from fastmf.inference.bp.solutions import MIN_START_PROBABILITY, random_probabilities, relaxed
from fastmf.kernels.bp.graphs import ForestMemory, forest_move
from fastmf.priors._queries import two_values

# Limit of |exponents| and of starting log-messages: with other fields, a state that is impossible
# may become possible.
FORBIDDEN = MAX_LOG_OF_PRODUCT[np.dtype(np.float64)]


def checked_messages(init, units):
    """Check starting log-messages, and return them with the number of rows."""
    n = len(units.layout.edges)
    if two_values(units.model.prior) is None:
        n = int(units.graph.n_states[units.layout.order][units.layout.neighbours].sum())
    init, n_rows = checked_init(messages_of(init), (n,), units.n_rows, smallest=-np.inf)
    return init.astype(np.float64), n_rows


def first_messages(init, units, problem, shape):
    """Convert starting log-messages to messages of the kernels; neutral messages if None."""
    if init is None:
        return np.zeros(shape) if problem is not None else np.ones(shape)
    if problem is None:
        # Odds of messages between units with exponents K lie in [exp(-2 |K|), exp(2 |K|)].
        limit = np.abs(np.log(units.binary[0].exponentials))
        return np.exp(np.broadcast_to(np.clip(init, -limit, limit), shape), order="C")
    if shape[1] != init.shape[-1]:
        # Log-odds of two-valued units.
        init = np.stack([np.minimum(-init, 0), np.minimum(init, 0)], -1).reshape(
            *init.shape[:-1], -1
        )
    return np.broadcast_to(np.maximum(init, -FORBIDDEN), shape).copy(order="C")


def returned_messages(messages, units):
    """Convert messages of the kernels to log-odds, if they are logarithms of two-valued units."""
    if two_values(units.model.prior) is None or messages.shape[1] == len(units.layout.edges):
        return messages
    return messages[:, 1::2] - messages[:, ::2]


def starts_of_graph(units, n_starts, rng):
    """Draw log-messages of `n_starts` starts, the first neutral."""
    unit, value, weight = units.states
    field = np.clip((weight + value * units.field[:, unit])[0], -FORBIDDEN, FORBIDDEN)
    couplings = couplings_of(units, -FORBIDDEN)

    def step(x, temperature):
        return (x + units.normalised((field + x @ couplings) / temperature)) / 2

    uniform = np.repeat(1 / units.graph.n_states, units.graph.n_states)
    p, kinds = relaxed(_random_beliefs(units, n_starts - 1, rng), uniform, step, rng)
    cold = np.flatnonzero(kinds == 2)[-1:]
    labels = likely_state(units.problem()[0]) if len(cold) else None
    if labels is not None:
        p[cold] = 0
        p[cold, units.first_state[units.layout.order] + labels] = 1
    messages = messages_from(units, np.maximum(p, MIN_START_PROBABILITY))
    return np.concatenate([np.zeros_like(messages, shape=(1, messages.shape[1])), messages])


def _random_beliefs(units, n, rng):
    """Draw random states, as probabilities of the states of all units."""
    sizes = units.graph.n_states
    if two_values(units.model.prior) is not None:
        p = random_probabilities(n, len(sizes), rng)
        return np.stack([1 - p, p], -1).reshape(n, 2 * len(sizes))
    # Some starts prefer a label, so that phases that differ in all units are reached.
    labels = np.arange(sizes.sum()) - np.repeat(units.first_state[:-1], sizes)
    preferred = rng.random((n, sizes.max())) * rng.integers(0, 2, (n, 1))
    noise = rng.random((n, len(labels))) + preferred[:, labels]
    top = np.maximum.reduceat(noise, units.first_state[:-1], axis=1)
    return (noise == np.repeat(top, sizes, axis=1)).astype(np.float64)


def messages_at(init, units):
    """Return the log-messages of units in the states of an assignment or of an earlier result."""
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
    """Return the log-messages that units with these probabilities send to all neighbours."""
    problem, (edge, *states) = units.problem()[0], units.pairs
    labels = [x - units.first_state[units.graph.edges[edge, k]] for k, x in enumerate(states)]
    columns = [
        problem.first_entry[units.layout.slots[edge, side]] + labels[1 - side] for side in (0, 1)
    ]
    weights = np.tile(problem.exponentials, 2)
    cells = np.concatenate(states), np.concatenate(columns)
    shape = beliefs.shape[1], problem.first_entry[-1]
    sending = scipy.sparse.csr_array((weights, cells), shape=shape)
    with np.errstate(divide="ignore"):  # states that no state of the sender allows
        return returned_messages(np.log(beliefs @ sending), units)


def couplings_of(units, smallest=-np.inf):
    """Return the couplings of all states, at least `smallest`, as a symmetric sparse array."""
    n, (_, *states) = units.first_state[-1], units.pairs
    tables = np.maximum(units.tables[1], smallest)
    upper = scipy.sparse.csr_array((tables, tuple(states)), shape=(n, n))
    return (upper + upper.T).tocsr()


# Number of moves of each row; the temperature falls to 0 in the first 7/8 of the moves. First
# temperature, relative to the exponents of a unit with its neighbours.
N_MOVES, HOT = 500, 0.26
# Slots of all rows beyond which fewer moves are made, for speed: in a search, and in
# `likely_state`, which starts several equal rows.
MAX_SLOTS, MAX_START_SLOTS, N_LIKELY_ROWS = 50_000, 10_000, 4


def likely_state(problem):
    """Find an assignment of large weight for the first row quickly; None if it is impossible."""
    field = problem.field[0]
    labels = np.tile(first_largest(field, problem.first_state), (N_LIKELY_ROWS, 1))
    objective = np.full(N_LIKELY_ROWS, -np.inf)
    forest_moves(problem._replace(field=field[None]), labels, objective, 1, MAX_START_SLOTS)
    best = objective.argmax()
    return labels[best] if np.isfinite(objective[best]) else None


def forest_moves(problem, labels, objective, n_threads=None, max_slots=MAX_SLOTS):
    """Improve the assignments of some rows in place."""
    n_rows, n_units = labels.shape
    n_slots = n_rows * len(problem.neighbours)
    if not n_rows:
        return
    share = min(1.0, max_slots / max(n_slots, 1))
    n_moves = int(share * N_MOVES)
    n_annealed = n_moves - n_moves // 8
    rng, n_states = np.random.default_rng(0), int(problem.first_state[-1])
    n_workers = workers_for(n_rows, 20 * n_slots, n_threads)
    memory = ForestMemory(
        *np.zeros((4, n_workers, n_units), np.int64), np.zeros((n_workers, n_states))
    )
    # Root of the sum of squared exponents of a unit with its neighbours, averaged over states.
    tables = np.where(np.isfinite(problem.tables), problem.tables, 0)
    n_values = max(len(tables), 1)
    hot = HOT * np.sqrt((tables**2).sum() / n_values * len(problem.neighbours) / n_units)
    now, values = labels.copy(), objective.copy()
    noise = np.zeros((n_rows, n_states))
    for k in range(n_moves):
        cold = k >= n_annealed
        if k == n_annealed:
            now, values, noise = labels.copy(), objective.copy(), np.zeros_like(noise)
        if not cold:
            noise = hot * (1 - k / n_annealed) * rng.gumbel(size=noise.shape)
        result, new, order = now.copy(), np.empty(n_rows), rng.permutation(n_units)
        arguments = problem, order, noise, result, new, memory, np.zeros(2, np.int64)
        in_parallel(forest_move, arguments, n_workers)
        # Moves to equal values are accepted, too: other states follow from them.
        taken = np.isfinite(new) & ((new >= values) | (not cold))
        now[taken], values[taken] = result[taken], new[taken]
        no_worse = values >= objective
        labels[no_worse], objective[no_worse] = now[no_worse], values[no_worse]
