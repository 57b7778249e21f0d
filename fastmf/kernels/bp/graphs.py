"""Belief propagation on graphs: sum-, max- and tree-reweighted product, decoding, moves of forests.

A *slot* is a directed edge. The slots of a unit are contiguous, one for each neighbour, and store
the messages that the unit sends. Units are numbered in breadth-first order.

*Sum-product of units with two states* uses odds: a message needs one division and no exponential.
With E = exp(2 K) for the exponent K s s' of an edge, and odds r_ij = m(1) / m(-1) of the message
from unit i to j,

    R_i = exp(field_i) prod_k r_ki,            belief P_i = R_i / (1 + R_i),  Q_i = 1 / (1 + R_i)
    r_ij = (E P_i + Q_i r_ji) / (E Q_i r_ji + P_i)

as the cavity odds are R_i / r_ji. Messages lie between E and 1 / E, so that E^2 and all products of
the messages of a unit must not overflow. The Bethe log-partition is, apart from a constant of the
states s = -1,

    sum_i log(1 + R_i) + sum_ij [K + log(Q_i + P_i / (E r_ji)) + log(Q_j + P_j r'_ij / r_ij)],

where r' is the message that one more sweep would send, which makes it stationary in the messages.

*Units with any numbers of states* have messages u_ij that are logarithms, functions of the state b
of the receiver j. With edge probabilities rho (1 unless tree-reweighted), tables J and fields f

    h_i(a) = f_i(a) + sum_k rho_ki u_ki(a)
    u_ij(b) = log sum_a exp(h_i(a) - u_ji(a) + J_ij(a, b) / rho_ij)        (or the maximum over a)

minus a constant, so that the largest entry is 0. States whose h is -inf are impossible, and are
left out of all sums. This is exact: a state a to which j sends -inf is forbidden with all possible
states b. With A_i = log sum_a exp(h_i(a)) and A_ij in the same way over pairs of states,

    log Z = sum_i A_i + sum_ij rho_ij (A_ij - A_i - A_j),

is stationary in the messages: the Bethe log-partition, or for spanning trees an upper bound
(Wainwright, Jaakkola & Willsky 2005).

*Decoding* visits units in breadth-first order. Messages of units that have been decoded are
replaced by couplings with their states, and the state of largest log-belief is chosen. On a forest
this is the backward pass of dynamic programming, which finds the most probable assignment. Then
single units move to their best states given all other units until no move gains.

*Moves of random forests* in a graph with cycles add units in a random order to a forest, unless
they close a cycle. Given all other units, dynamic programming from the leaves of each tree to its
root and back finds the most probable states of the forest. The remaining units form the next
forest, and so on. With noise in the fields the states are a sample (Papandreou and Yuille 2011).
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Bool, Float64, Int32, Int64, argument_types
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, address_of, call, kernel
from fastmf._outcomes import (
    ALL,
    BLOCK_UNITS,
    FOLLOWING,
    GAIN_TOLERANCE,
    LOG_EPSILON,
    MAX_FORESTS,
    MAX_ROUNDS,
)
from fastmf._threads.workers import next_task, stopped
from fastmf.special import exp, log

# Sums of exponentials below this limit may have lost their largest term by underflow.
SMALLEST_SUM = float(np.sqrt(np.finfo(np.float64).tiny))
# Planes of `GraphState.scratch`.
CAVITY, WEIGHTS, SENT = range(3)


class BinaryProblem(NamedTuple):
    """A graph of units with two states, s = -1 and s = 1, and exponents K s s'."""

    starts: Int64[1]  # (n_units + 1,): first slot of each unit
    # int32 (n_slots,): the unit that receives the message of a slot, the slot of the message in the
    # opposite direction, and the number of the edge
    neighbours: Int32[1]
    reverse: Int32[1]  # int32 (n_slots,)
    edges: Int32[1]  # int32 (n_slots,)
    exponentials: Float64[1]  # (n_slots,): exp(2 K)
    # (1 or n_rows, n_units): exp(field of the state 1 less the field of -1). Clamped units have
    # fields beside which all messages are rounding
    odds: Float64[2]


class StatesProblem(NamedTuple):
    """A graph of units with any numbers of states, and a table of exponents for each edge."""

    starts: Int64[1]  # as for `BinaryProblem` (this and the next 3)
    neighbours: Int32[1]
    reverse: Int32[1]
    edges: Int32[1]
    first_state: Int64[1]  # (n_units + 1,)
    # (n_slots + 1,): first entry of the message of each slot, which has an entry for each state of
    # the receiver
    first_entry: Int64[1]
    first_value: Int64[1]  # (n_edges + 1,): first entry of the table of each edge
    transposed: Bool[1]  # bool (n_slots,): whether the receiver's states are the rows of the table
    # (n_values,): exponents divided by the edge's probability, and exp of them less the largest of
    # the edge
    tables: Float64[1]
    exponentials: Float64[1]  # (n_values,)
    # (n_edges,): largest exponent, -inf if there is no finite one; probability of the edge in a
    # spanning tree for tree-reweighted belief propagation, 1 otherwise
    largest: Float64[1]
    probability: Float64[1]  # (n_edges,)
    field: Float64[2]  # (1 or n_rows, n_states): -inf for states that are forbidden
    maximum: bool  # whether messages are maxima over the states of the sender, and not sums


class GraphState(NamedTuple):
    """Messages and beliefs of all rows."""

    # (n_rows, n_slots or n_entries): odds of binary units, logarithms otherwise, whose largest
    # entry is 0
    messages: Float64[2]
    # (n_rows, n_units or n_states): odds or logarithms, of the messages that were read
    beliefs: Float64[2]
    # (n_rows,): damping; largest relative change of odds, or change of a logarithm x relative to 1
    # + abs(x), in a belief or a message; inf if a unit has no state left
    damping: Float64[1]
    residual: Float64[1]  # (n_rows,)
    receivers: int  # `ALL`, `FOLLOWING` or `NO_RECEIVERS`
    scratch: Float64[3]  # (n_workers, 3, largest number of states)


@kernel(mode="merged")
def _belief(odds):
    """Return the probabilities of the states 1 and -1."""
    q = 1 / (1 + odds)
    return odds * q, q


@kernel(mode="merged")
def receives(state, distance, step):
    """Return whether a unit sends a message to the neighbour at this distance in the order."""
    if state.receivers == FOLLOWING:
        return (distance > 0) == (step > 0)
    return state.receivers == ALL


@kernel(mode="by_address", views=True)
def _send_odds(problem, state, place, step):
    """Update beliefs of two-valued units of a row, one after another, and their messages.

    `place` is row and worker; `step` is 1 or -1, the order of the units.
    """
    (index, _), n_units = place, problem.starts.shape[0] - 1
    messages, damping = state.messages, state.damping[index]
    shared, largest = smaller(index, problem.odds.shape[0] - 1), 0.0
    i = 0 if step > 0 else n_units - 1
    for _ in range(n_units):
        odds = problem.odds[shared, i]
        for k in range(problem.starts[i], problem.starts[i + 1]):
            odds *= messages[index, problem.reverse[k]]
        before = state.beliefs[index, i]
        state.beliefs[index, i] = odds
        largest = larger(abs(odds - before) / smaller(odds, before), largest)
        p, q = _belief(odds)
        for k in range(problem.starts[i], problem.starts[i + 1]):
            if not receives(state, problem.neighbours[k] - i, step):
                continue
            e, back = problem.exponentials[k], messages[index, problem.reverse[k]]
            sent = messages[index, k]
            above, below = e * p + q * back, e * q * back + p
            if damping > 0:  # the average of the probabilities
                total = (1 - damping) / (above + below)
                share = damping / (1 + sent)
                above, below = above * total + share * sent, below * total + share
            message = above / below
            messages[index, k] = message
            largest = larger(abs(message - sent) / smaller(message, sent), largest)
        i += step
    state.residual[index] = largest


@cache
def odds_address():
    """Return the address of the function that sends messages of units with two states."""
    types = argument_types(float, BinaryProblem, GraphState, (int, int), int)
    return address_of(_send_odds, *types)


@kernel(mode="inner")
def _terms_of(problem, state, index, i, pairs):
    """Compute the terms of a unit and of its edges to later units."""
    odds = state.beliefs[index, i]
    (p, q), total = _belief(odds), log(1 + odds)
    for k in range(problem.starts[i], problem.starts[i + 1]):
        j, e = problem.neighbours[k], problem.exponentials[k]
        if j < i:
            continue
        back, sent = state.messages[index, problem.reverse[k]], state.messages[index, k]
        other, other_q = _belief(state.beliefs[index, j])
        message = (e * p + q * back) / (e * q * back + p)
        ratio = (q + p / (e * back)) * (other_q + other * message / sent)
        total += log(e) / 2 + log(ratio)
        if pairs.shape[0] > 0:
            both, none = e * p * other, e * q * back * other_q * sent
            norm = both + none + p * other_q * sent + q * back * other
            pairs[index, problem.edges[k]] = both / norm
    return total


@kernel(views=True)
def binary_terms(problem, state, terms, pairs, queue):
    """Compute terms of the Bethe log-partition, and pair beliefs."""
    n_rows, n_units = terms.shape
    n_blocks = (n_units + BLOCK_UNITS - 1) // BLOCK_UNITS
    task = next_task(queue)
    while task < n_rows * n_blocks:
        index, first = task // n_blocks, task % n_blocks * BLOCK_UNITS
        for i in range(first, smaller(first + BLOCK_UNITS, n_units)):
            terms[index, i] = _terms_of(problem, state, index, i, pairs)
        task = next_task(queue)


@kernel(mode="inner")
def _relative_change(new, old):
    """Return the change of a logarithm relative to 1 plus its size; 1 if only one is -inf.

    Further decreases of a weight below the rounding of probabilities are ignored: if states are
    forbidden, log-odds of certain events grow without bound while probabilities do not change.
    """
    if new == old or (new < old and old < LOG_EPSILON):
        return 0.0
    if new == -np.inf or old == -np.inf:
        return 1.0
    return abs(new - old) / (1 + abs(new))


@kernel(mode="inner")
def _set_belief(problem, state, index, worker, i):
    """Set the logarithms of the belief of a unit; return their change, inf if all are -inf."""
    first, shared = problem.first_state[i], smaller(index, problem.field.shape[0] - 1)
    n = problem.first_state[i + 1] - first
    belief, field = row(state.beliefs, (index, first), n), row(problem.field, (shared, first), n)
    total = row(state.scratch, (worker, SENT, 0), n)
    for a in range(n):
        total[a] = field[a]
    for k in range(problem.starts[i], problem.starts[i + 1]):
        probability, back = problem.probability[problem.edges[k]], problem.reverse[k]
        message = row(state.messages, (index, problem.first_entry[back]), n)
        for a in range(n):
            total[a] += probability * message[a]
    before, largest, change = -np.inf, -np.inf, 0.0
    for a in range(n):
        before, largest = larger(belief[a], before), larger(total[a], largest)
    for a in range(n):
        if largest > -np.inf:
            change = larger(_relative_change(total[a] - largest, belief[a] - before), change)
        belief[a] = total[a]
    return change if largest > -np.inf else np.inf


@kernel(mode="inner")
def _set_cavity(belief, message, cavity):
    """Subtract a message from the logarithms of a belief; return the largest."""
    largest = -np.inf
    for a in range(belief.shape[0]):
        cavity[a] = belief[a] - message[a] if belief[a] > -np.inf else -np.inf
        largest = larger(cavity[a], largest)
    return largest


@kernel(mode="inner", fastmath=REORDER)
def _add_products(weights, table, transposed, out):
    """Add the products of weights with the columns of a table, or its rows if `transposed`."""
    n, m = weights.shape[0], out.shape[0]
    if transposed:
        for b in range(m):
            total = 0.0
            for a in range(n):
                total += weights[a] * table[b * n + a]
            out[b] += total
    else:
        for a in range(n):
            for b in range(m):
                out[b] += weights[a] * table[a * m + b]


@kernel(mode="inner")
def _combined(cavity, table, first, stride, maximum):
    """Compute log sum_a exp(cavity_a + table_a), or the maximum, for a column or row."""
    top, total = -np.inf, 0.0
    for a in range(cavity.shape[0]):
        top = larger(cavity[a] + table[first + a * stride], top)
    if maximum or top == -np.inf:
        return top
    for a in range(cavity.shape[0]):
        total += exp(cavity[a] + table[first + a * stride] - top)
    return top + log(total)


@kernel(mode="inner")
def _set_message(problem, cavity, top, weights, k, sent):
    """Set the message of a slot, with largest entry 0; return whether any state is possible."""
    n, m, edge, maximum = cavity.shape[0], sent.shape[0], problem.edges[k], problem.maximum
    table = row(problem.tables, (problem.first_value[edge],), n * m)
    transposed, largest = problem.transposed[k], -np.inf
    for b in range(m):
        sent[b] = 0
    if not maximum:
        for a in range(n):
            weights[a] = exp(cavity[a] - top) if cavity[a] > -np.inf else 0.0
        factors = row(problem.exponentials, (problem.first_value[edge],), n * m)
        _add_products(weights, factors, transposed, sent)
    for b in range(m):
        if maximum or sent[b] < SMALLEST_SUM:
            first, stride = (b * n, 1) if transposed else (b, m)
            sent[b] = _combined(cavity, table, first, stride, maximum)
        else:
            sent[b] = log(sent[b]) + (top + problem.largest[edge])
        largest = larger(sent[b], largest)
    for b in range(m):
        sent[b] = sent[b] - largest if largest > -np.inf else 0.0
    return largest > -np.inf


@kernel(mode="inner")
def _damp(sent, old, damping):
    """Average the logarithms of two messages; entries of -inf are taken from the new message."""
    largest = -np.inf
    for b in range(sent.shape[0]):
        if sent[b] > -np.inf and old[b] > -np.inf:
            sent[b] = (1 - damping) * sent[b] + damping * old[b]
        largest = larger(sent[b], largest)
    for b in range(sent.shape[0]):
        sent[b] -= largest


@kernel(mode="by_address", views=True)
def _send(problem, state, place, step):
    """Update beliefs of the units of a row, one after another, and the messages that they send.

    Arguments are as in `_send_odds`.
    """
    (index, worker), n_units = place, problem.starts.shape[0] - 1
    damping, largest = state.damping[index], 0.0
    i = 0 if step > 0 else n_units - 1
    for _ in range(n_units):
        largest = larger(_set_belief(problem, state, index, worker, i), largest)
        if largest == np.inf:
            break
        first = problem.first_state[i]
        n = problem.first_state[i + 1] - first
        belief = row(state.beliefs, (index, first), n)
        cavity = row(state.scratch, (worker, CAVITY, 0), n)
        weights = row(state.scratch, (worker, WEIGHTS, 0), n)
        for k in range(problem.starts[i], problem.starts[i + 1]):
            if not receives(state, problem.neighbours[k] - i, step):
                continue
            m = problem.first_entry[k + 1] - problem.first_entry[k]
            back = problem.first_entry[problem.reverse[k]]
            top = _set_cavity(belief, row(state.messages, (index, back), n), cavity)
            sent = row(state.scratch, (worker, SENT, 0), m)
            if not _set_message(problem, cavity, top, weights, k, sent):
                largest = np.inf
            old = row(state.messages, (index, problem.first_entry[k]), m)
            if damping > 0:
                _damp(sent, old, damping)
            for b in range(m):
                largest = larger(_relative_change(sent[b], old[b]), largest)
                old[b] = sent[b]
        i += step
    state.residual[index] = largest


@cache
def send_address():
    """Return the address of the function that sends messages of units with any states."""
    types = argument_types(float, StatesProblem, GraphState, (int, int), int)
    return address_of(_send, *types)


@kernel(views=True)
def graph_sweep(send, problem, state, rows, step, queue):
    """Sweep some rows once, unit after unit, forwards or backwards; `send` is an address."""
    worker = fetch_and_increment(row(queue, (1,), 1))
    k = next_task(queue)
    while k < rows.shape[0]:
        call(send, (problem, state, (rows[k], worker), step))
        k = next_task(queue)


@kernel(mode="inner")
def _add_couplings(problem, labels, k, n, total):
    """Add the exponents of the states of a unit with the neighbour of a slot."""
    edge, label = problem.edges[k], labels[problem.neighbours[k]]
    start = problem.first_value[edge]
    size = (problem.first_value[edge + 1] - start) // n
    first, stride = (start + label * n, 1) if problem.transposed[k] else (start + label, size)
    for a in range(n):
        total[a] += problem.tables[first + a * stride]


@kernel(mode="inner")
def _best(total):
    """Return the index of the largest entry, the first of equal ones."""
    best = np.int64(0)
    for a in range(1, total.shape[0]):
        if total[a] > total[best]:
            best = np.int64(a)
    return best


@kernel(mode="inner")
def _replace_message(problem, message, labels, k, belief, total):
    """Replace the message of a decoded neighbour by the couplings with its state."""
    probability = problem.probability[problem.edges[k]]
    for a in range(belief.shape[0]):
        # In sequential sweeps some messages are newer than beliefs.
        if belief[a] > -np.inf and message[a] > -np.inf:
            total[a] -= probability * message[a]
    _add_couplings(problem, labels, k, belief.shape[0], total)


@kernel(mode="inner")
def _decode(problem, state, place, labels):
    """Decode all units, one after another; `place` is row and worker."""
    index, worker = place
    for i in range(labels.shape[0]):
        first = problem.first_state[i]
        n = problem.first_state[i + 1] - first
        belief = row(state.beliefs, (index, first), n)
        total = row(state.scratch, (worker, SENT, 0), n)
        for a in range(n):
            total[a] = belief[a]
        for k in range(problem.starts[i], problem.starts[i + 1]):
            if problem.neighbours[k] < i:
                back = problem.first_entry[problem.reverse[k]]
                message = row(state.messages, (index, back), n)
                _replace_message(problem, message, labels, k, belief, total)
        labels[i] = _best(total)


@kernel(mode="inner")
def _climb(problem, state, place, labels, queue):
    """Move single units while one gains; return whether no move gains any more."""
    index, worker = place
    shared, n_units = smaller(index, problem.field.shape[0] - 1), labels.shape[0]
    n_tried = n_rejected = np.int64(0)
    while n_rejected < n_units and n_tried < MAX_ROUNDS * n_units:
        i = n_tried % n_units
        if i == 0 and stopped(queue):
            break
        first = problem.first_state[i]
        n = problem.first_state[i + 1] - first
        field = row(problem.field, (shared, first), n)
        total = row(state.scratch, (worker, SENT, 0), n)
        for a in range(n):
            total[a] = field[a]
        for k in range(problem.starts[i], problem.starts[i + 1]):
            _add_couplings(problem, labels, k, n, total)
        best, now = _best(total), labels[i]
        n_tried, n_rejected = n_tried + 1, n_rejected + 1
        if total[best] - total[now] > GAIN_TOLERANCE * (1 + abs(total[best])):
            labels[i], n_rejected = best, np.int64(0)
    return n_rejected >= n_units


@kernel(mode="inner")
def _objective(problem, index, labels):
    """Sum the fields and couplings of an assignment."""
    shared, total = smaller(index, problem.field.shape[0] - 1), 0.0
    for i in range(labels.shape[0]):
        n = problem.first_state[i + 1] - problem.first_state[i]
        total += problem.field[shared, problem.first_state[i] + labels[i]]
        for k in range(problem.starts[i], problem.starts[i + 1]):
            j, edge = problem.neighbours[k], problem.edges[k]
            if j > i:
                m = problem.first_entry[k + 1] - problem.first_entry[k]
                start = problem.first_value[edge]
                a, b = labels[i], labels[j]
                total += problem.tables[start + (b * n + a if problem.transposed[k] else a * m + b)]
    return total


@kernel(views=True)
def decode_graph(problem, state, moves, labels, optimal, objective, queue):
    """Decode assignments from beliefs of max-product, and optionally improve them."""
    worker = fetch_and_increment(row(queue, (1,), 1))
    index = next_task(queue)
    while index < labels.shape[0]:
        states = row(labels, (index, 0), labels.shape[1])
        _decode(problem, state, (index, worker), states)
        if moves:
            optimal[index] = _climb(problem, state, (index, worker), states, queue)
        objective[index] = _objective(problem, index, states)
        index = next_task(queue)


# Entries of `above` and `parent` without a unit or slot, and of units that are not reached yet.
NONE, UNSEEN = range(-1, -3, -1)


class ForestMemory(NamedTuple):
    """Working memory of `forest_move`, for each worker."""

    # (n_workers, n_units): the next unit on the way to the representative of the tree; -1 for units
    # that are not taken
    above: Int64[2]
    parent: Int64[2]  # (n_workers, n_units): slot from each unit to its parent, -1 for roots
    sequence: Int64[2]  # (n_workers, n_units): units of the forest, parents before children
    # (n_workers, n_units): units that are still to be moved, in the order in which forests grow
    waiting: Int64[2]
    # (n_workers, n_states): largest exponents of the subtree below each unit, for each of its
    # states
    totals: Float64[2]


@kernel(mode="inner")
def _root(above, i):
    """Return the representative of the tree of a unit, with path halving."""
    while above[i] != i:
        above[i] = above[above[i]]
        i = above[i]
    return i


@kernel(mode="inner")
def _closes_cycle(problem, i, above, mark):
    """Return whether two neighbours of a unit are in one tree."""
    for k in range(problem.starts[i], problem.starts[i + 1]):
        j = np.int64(problem.neighbours[k])
        if above[j] != NONE:
            top = _root(above, j)
            if mark[top] == i:
                return True
            mark[top] = i
    return False


@kernel(mode="inner")
def _grow(problem, left, n_left, above, mark):
    """Grow a forest in an order, without cycles; return the number of remaining units."""
    for i in range(above.shape[0]):
        above[i], mark[i] = NONE, NONE
    n_rejected = np.int64(0)
    for t in range(n_left):
        i = left[t]
        if _closes_cycle(problem, i, above, mark):
            left[n_rejected] = i
            n_rejected += 1
            continue
        above[i] = i
        for k in range(problem.starts[i], problem.starts[i + 1]):
            j = np.int64(problem.neighbours[k])
            if above[j] != NONE:
                above[_root(above, j)] = i
    return n_rejected


@kernel(mode="inner")
def _reach_children(problem, i, tree, n_reached):
    """Append the neighbours of a unit that are not reached yet to the order."""
    above, parent, sequence = tree
    for k in range(problem.starts[i], problem.starts[i + 1]):
        j = np.int64(problem.neighbours[k])
        if above[j] != NONE and parent[j] == UNSEEN:
            parent[j], sequence[n_reached] = problem.reverse[k], j
            n_reached += 1
    return n_reached


@kernel(mode="inner")
def _reach(problem, above, parent, sequence):
    """Order units, parents before children, tree after tree; return the number of units."""
    for i in range(above.shape[0]):
        parent[i] = UNSEEN
    n_reached = head = np.int64(0)
    for first in range(above.shape[0]):
        if above[first] != NONE and parent[first] == UNSEEN:
            parent[first], sequence[n_reached] = NONE, first
            n_reached += 1
        while head < n_reached:
            tree = above, parent, sequence
            n_reached = _reach_children(problem, sequence[head], tree, n_reached)
            head += 1
    return n_reached


@kernel(mode="inner")
def _send_up(problem, k, total, sent):
    """Add the maxima over the states of a unit to the totals of its parent."""
    n, m = total.shape[0], sent.shape[0]
    start = problem.first_value[problem.edges[k]]
    along, across = (np.int64(1), n) if problem.transposed[k] else (m, np.int64(1))
    for b in range(m):
        largest = -np.inf
        for a in range(n):
            value = total[a] + problem.tables[start + a * along + b * across]
            if value > largest:
                largest = value
        sent[b] += largest


@kernel(mode="inner")
def _maximise(problem, states, fields, n_taken, memory):
    """Find the most probable states of the forest by dynamic programming."""
    (field, noise), (above, parent, sequence, totals) = fields, memory
    first = problem.first_state
    for t in range(n_taken):
        i = sequence[t]
        total = row(totals, (first[i],), first[i + 1] - first[i])
        for a in range(total.shape[0]):
            total[a] = field[first[i] + a] + noise[first[i] + a]
        for k in range(problem.starts[i], problem.starts[i + 1]):
            if above[problem.neighbours[k]] == NONE:
                _add_couplings(problem, states, k, total.shape[0], total)
    for t in range(n_taken - 1, -1, -1):
        i = sequence[t]
        if parent[i] != NONE:
            j = np.int64(problem.neighbours[parent[i]])
            total = row(totals, (first[i],), first[i + 1] - first[i])
            _send_up(problem, parent[i], total, row(totals, (first[j],), first[j + 1] - first[j]))
    for t in range(n_taken):
        i = sequence[t]
        total = row(totals, (first[i],), first[i + 1] - first[i])
        if parent[i] != NONE:
            _add_couplings(problem, states, parent[i], total.shape[0], total)
        states[i] = _best(total)


@kernel(views=True)
def forest_move(problem, order, noise, labels, objective, memory, queue):
    """Move the units of random forests, one after another, to their most probable states."""
    worker = fetch_and_increment(row(queue, (1,), 1))
    n_units, n_states = labels.shape[1], noise.shape[1]
    above = row(memory.above, (worker, 0), n_units)
    parent = row(memory.parent, (worker, 0), n_units)
    sequence = row(memory.sequence, (worker, 0), n_units)
    waiting = row(memory.waiting, (worker, 0), n_units)
    totals = row(memory.totals, (worker, 0), n_states)
    index = next_task(queue)
    while index < labels.shape[0]:
        for i in range(n_units):
            waiting[i] = order[i]
        shared = smaller(index, problem.field.shape[0] - 1)
        fields = row(problem.field, (shared, 0), n_states), row(noise, (index, 0), n_states)
        states = row(labels, (index, 0), n_units)
        n_left, n_forests = np.int64(n_units), 0
        while n_left > 0 and n_forests < MAX_FORESTS and not stopped(queue):
            n_left = _grow(problem, waiting, n_left, above, sequence)
            n_taken = _reach(problem, above, parent, sequence)
            _maximise(problem, states, fields, n_taken, (above, parent, sequence, totals))
            n_forests += 1
        objective[index] = _objective(problem, index, states)
        index = next_task(queue)
