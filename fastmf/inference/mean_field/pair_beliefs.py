"""Belief propagation from the means of a solution, a second opinion on discrete units.

An expansion in the couplings neglects what belief propagation sums in all orders: each coupled pair
with the beliefs that its units have without one another. Where they agree the expansion is
accurate, but for cycles; of random Potts machines without such an agreement most solutions of
second order are wrong.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

# Numbers in the tables of all pairs, of all rows together, up to which messages are sent.
MAX_MESSAGE_NUMBERS = 1 << 22
# Sweeps, change of a belief at which they end, and weight of the old messages.
MAX_MESSAGE_SWEEPS, BELIEF_TOL, MESSAGE_DAMPING = 150, 1e-4, 0.5
# Differences of a mean, in the range of its unit, and of the log-partition, that count. Of
# random Potts machines of other families than those by which they were chosen, 2 of 1,250 right
# solutions were flagged, and with the other checks 456 of 471 wrong ones.
MAX_MEAN_CHANGE, MAX_LOG_PARTITION_CHANGE = 0.07, 0.4
_SMALLEST = 1e-300
DISAGREES = (
    "belief propagation from its means changes means or probabilities by up to {:.2g} of their "
    "range, and the log-partition by {:+.2g} nats"
)
UNSETTLED = "belief propagation from its means does not settle, as where cycles are frustrated"


class PairBeliefs(NamedTuple):
    """Beliefs of one row.

    Parameters
    ----------
    mean : array of shape (n_units,)
    log_partition : float
    converged : bool
    """

    mean: np.ndarray
    log_partition: float
    converged: bool


def is_small(pairs, n_rows):
    """Whether messages are sent for so many rows.

    Parameters
    ----------
    pairs : PairTerms
    n_rows : int
    """
    return n_rows * pairs.n_numbers <= MAX_MESSAGE_NUMBERS


def second_opinion(pairs, state, tilt, value, ranges):
    """Reason not to trust one row, "" if belief propagation agrees with it.

    Parameters
    ----------
    pairs : PairTerms
    state : tuple (mean, b, a) of arrays of shape (n_units,)
    tilt : Tilt
        Field, precision and clamped units of the row, (n_units,).
    value : float
        Log-partition.
    ranges : array of shape (n_units,)
        Distance of the lowest and the highest value.

    Returns
    -------
    str
    """
    found = pair_beliefs(pairs, state, tilt)
    if not found.converged:
        return UNSETTLED
    moved = (abs(found.mean - state[0]) / ranges).max(initial=0)
    nats = found.log_partition - value
    agrees = moved <= MAX_MEAN_CHANGE and abs(nats) <= MAX_LOG_PARTITION_CHANGE
    return "" if agrees else DISAGREES.format(moved, nats)


def pair_beliefs(pairs, state, tilt):
    """The `PairBeliefs` that damped messages from the means of a row lead to.

    Parameters
    ----------
    pairs, state, tilt
        As for `second_opinion`.
    """
    own, q = pairs.by_columns(state, tilt)
    i, j, couplings = pairs.edges_and_tables()
    top = couplings.max((1, 2), initial=-np.inf)
    tables = np.exp(couplings - top[:, None, None])
    n_edges, n_columns = len(i), len(own)
    sender, receiver = np.concatenate([i, j]), np.concatenate([j, i])
    to = csr_array(
        (np.ones(2 * n_edges), (receiver, np.arange(2 * n_edges))), shape=(n_columns, 2 * n_edges)
    )
    cavity, belief, converged = q[sender], q, False
    messages, totals = _sent(tables, cavity)
    for _ in range(MAX_MESSAGE_SWEEPS):
        logs = np.log(np.maximum(messages, _SMALLEST))
        total = own + to @ logs
        # The message of j to i is that of the other half of the same edge.
        cavity = _softmax(total[sender] - np.roll(logs, n_edges, axis=0))
        new, totals = _sent(tables, cavity)
        old, belief = belief, _softmax(total)
        messages = MESSAGE_DAMPING * messages + (1 - MESSAGE_DAMPING) * new
        converged = abs(belief - old).max(initial=0) <= BELIEF_TOL * (1 - MESSAGE_DAMPING)
        if converged:
            break
    # Each pair is in the sums of both of its units.
    both = totals[:n_edges] * (new[:n_edges] * cavity[n_edges:]).sum(1) if n_edges else np.ones(0)
    logs = np.log(np.maximum(new, _SMALLEST))
    total = own + to @ (logs + np.log(np.maximum(totals, _SMALLEST))[:, None])
    highest = total.max(1)
    units = highest + np.log(np.exp(total - highest[:, None]).sum(1))
    value = units.sum() - np.log(np.maximum(both, _SMALLEST)).sum() + top.sum()
    return PairBeliefs(pairs.means(belief, len(state[0])), float(value), bool(converged))


def _sent(tables, cavity):
    """Messages along all edges, in both directions, and what they were divided by."""
    n = len(tables)
    forth = (cavity[:n, None, :] @ tables)[:, 0]
    back = (tables @ cavity[n:, :, None])[:, :, 0]
    sent = np.concatenate([forth, back])
    totals = sent.sum(1)
    return sent / np.maximum(totals, _SMALLEST)[:, None], totals


def _softmax(logs):
    p = np.exp(logs - logs.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)
