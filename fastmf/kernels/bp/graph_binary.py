"""Sum-product on graphs of units with two states, in odds: one division a message, no exponential.

With E = exp(2 K) for the exponent K s s' of an edge, and odds r_ij = m(1) / m(-1) of the message
from unit i to j,

    R_i = exp(field_i) prod_k r_ki,            belief P_i = R_i / (1 + R_i),  Q_i = 1 / (1 + R_i)
    r_ij = (E P_i + Q_i r_ji) / (E Q_i r_ji + P_i)

as the cavity odds are R_i / r_ji. Messages lie between E and 1 / E, so that E^2 and all products of
a unit's messages must be numbers. The Bethe log-partition is, but for the terms of s = -1,

    sum_i log(1 + R_i) + sum_ij [K + log(Q_i + P_i / (E r_ji)) + log(Q_j + P_j r'_ij / r_ij)],

where r' is the message that one more sweep would send: it is stationary in the messages.
"""

from functools import cache

from fastmf._jit.argument_types import argument_types
from fastmf._jit.intrinsics import larger, smaller
from fastmf._jit.kernel import address_of, kernel
from fastmf._outcomes import ALL, BLOCK_UNITS, FOLLOWING
from fastmf._threads.interrupts import next_task
from fastmf.kernels.bp.graph_arguments import BinaryProblem, GraphState
from fastmf.special import log


@kernel(mode="merged")
def _belief(odds):
    """Probabilities of the states 1 and -1."""
    q = 1 / (1 + odds)
    return odds * q, q


@kernel(mode="merged")
def receives(state, distance, step):
    """Whether a unit sends a message to the neighbour at this distance behind it."""
    if state.receivers == FOLLOWING:
        return (distance > 0) == (step > 0)
    return state.receivers == ALL


@kernel(mode="by_address", views=True)
def _send(problem, state, place, step):
    """Beliefs of the units of a row, one after another, and the messages that they send.

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
def send_address():
    """Address of the function that sends the messages of units of two states."""
    types = argument_types(float, BinaryProblem, GraphState, (int, int), int)
    return address_of(_send, *types)


@kernel(mode="inner")
def _terms_of(problem, state, index, i, pairs):
    """Terms of a unit and of its edges to units behind it."""
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
    """Terms of the Bethe log-partition, and pair beliefs."""
    n_rows, n_units = terms.shape
    n_blocks = (n_units + BLOCK_UNITS - 1) // BLOCK_UNITS
    task = next_task(queue)
    while task < n_rows * n_blocks:
        index, first = task // n_blocks, task % n_blocks * BLOCK_UNITS
        for i in range(first, smaller(first + BLOCK_UNITS, n_units)):
            terms[index, i] = _terms_of(problem, state, index, i, pairs)
        task = next_task(queue)
