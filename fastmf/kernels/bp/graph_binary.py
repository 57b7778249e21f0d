"""Sum-product on graphs of units with two states, in odds: one division a message, no exponential.

With E = exp(2 K) for the exponent K s s' of an edge, and odds r_ij = m(1) / m(-1) of the message
from unit i to j,

    R_i = exp(field_i) prod_k r_ki,            belief P_i = R_i / (1 + R_i),  Q_i = 1 / (1 + R_i)
    r_ij = (E P_i + Q_i r_ji) / (E Q_i r_ji + P_i)

as the cavity odds are R_i / r_ji. Messages lie between E and 1 / E, so that E^2 and all products of
a unit's messages must be numbers.
"""

from functools import cache

from fastmf._jit.argument_types import argument_types
from fastmf._jit.intrinsics import larger, smaller
from fastmf._jit.kernel import address_of, kernel
from fastmf._outcomes import ALL, FOLLOWING
from fastmf.kernels.bp.graph_arguments import BinaryProblem, GraphState


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
        q = 1 / (1 + odds)
        p = odds * q
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
