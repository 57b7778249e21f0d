"""Sum-, max- and tree-reweighted product on graphs of units with any numbers of states.

Messages u_ij are logarithms, functions of the state b of the unit j that receives them. With
probabilities rho of the edges (1 but for tree-reweighted belief propagation), tables J and fields f

    h_i(a) = f_i(a) + sum_k rho_ki u_ki(a)
    u_ij(b) = log sum_a exp(h_i(a) - u_ji(a) + J_ij(a, b) / rho_ij)        (or the maximum over a)

less a constant, so that the largest entry is 0. States whose h is -inf are impossible, and are left
out of all sums: that is exact, as a state b that is possible cannot be joined to a state a that has
a message of -inf from j. With A_i = log sum_a exp(h_i(a)) and A_ij likewise over pairs of states,

    log Z = sum_i A_i + sum_ij rho_ij (A_ij - A_i - A_j),

stationary in the messages: the Bethe log-partition, or for spanning trees an upper bound
(Wainwright, Jaakkola & Willsky 2005).
"""

from functools import cache

import numpy as np

from fastmf._jit.argument_types import argument_types
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, address_of, call, kernel
from fastmf._outcomes import LOG_EPSILON
from fastmf._threads.interrupts import next_task
from fastmf.kernels.bp.graph_arguments import (
    CAVITY,
    SENT,
    SMALLEST_SUM,
    WEIGHTS,
    GraphState,
    StatesProblem,
)
from fastmf.kernels.bp.graph_binary import receives
from fastmf.special import exp, log


@kernel(mode="inner")
def _relative_change(new, old):
    """Change of a logarithm relative to 1 plus its size; 1 if only one of both is -inf.

    A weight below the rounding of probabilities may fall further: where states are forbidden the
    log-odds of certain events grow without bound, and their probabilities stand still.
    """
    if new == old or (new < old and old < LOG_EPSILON):
        return 0.0
    if new == -np.inf or old == -np.inf:
        return 1.0
    return abs(new - old) / (1 + abs(new))


@kernel(mode="inner")
def _set_belief(problem, state, index, worker, i):
    """Logarithms of the belief of a unit; returns their change, inf if all of them are -inf."""
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
    """Logarithms of a belief without a message to it; returns the largest."""
    largest = -np.inf
    for a in range(belief.shape[0]):
        cavity[a] = belief[a] - message[a] if belief[a] > -np.inf else -np.inf
        largest = larger(cavity[a], largest)
    return largest


@kernel(mode="inner", fastmath=REORDER)
def _add_products(weights, table, transposed, out):
    """Add the products of weights with the columns of a table, or with its rows."""
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
    """log sum_a exp(cavity_a + table_a), or the maximum, of a column or row of a table."""
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
    """Message of a slot, its largest entry 0; returns whether there is a state to send."""
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
    """Average of the logarithms of two messages; -inf is a fact, of the new one only."""
    largest = -np.inf
    for b in range(sent.shape[0]):
        if sent[b] > -np.inf and old[b] > -np.inf:
            sent[b] = (1 - damping) * sent[b] + damping * old[b]
        largest = larger(sent[b], largest)
    for b in range(sent.shape[0]):
        sent[b] -= largest


@kernel(mode="by_address", views=True)
def _send(problem, state, place, step):
    """Beliefs of the units of a row, one after another, and the messages that they send.

    Arguments as in `graph_binary._send`.
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
    """Address of the function that sends the messages of units of any numbers of states."""
    types = argument_types(float, StatesProblem, GraphState, (int, int), int)
    return address_of(_send, *types)


@kernel(views=True)
def graph_sweep(send, problem, state, rows, step, queue):
    """One sweep of some rows, unit after unit, forwards or backwards, by the address of `_send`."""
    worker = fetch_and_increment(row(queue, (1,), 1))
    k = next_task(queue)
    while k < rows.shape[0]:
        call(send, (problem, state, (rows[k], worker), step))
        k = next_task(queue)
