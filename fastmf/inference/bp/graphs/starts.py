"""Messages on a graph to start from, and as they are returned.

Messages between two-valued units are returned as log-odds, other messages as logarithms of all
states of the receiver, the largest of them 0, in the order of the kernels.
"""

import numpy as np

from fastmf.inference.bp.graphs.beliefs import GraphBeliefs
from fastmf.priors._queries import two_values

# Log-messages of states below this start from it: what was impossible may be possible here.
SMALLEST_START = -600.0


def checked_messages(init, units):
    """Checked log-messages to start from."""
    if isinstance(init, GraphBeliefs):
        if init.messages is None:
            raise ValueError("init must have messages: ask for them with pairwise=True.")
        init = init.messages
    init = np.asarray(init)
    if init.dtype.kind not in "fiub":
        raise TypeError(f"init must be an array of real numbers, got dtype {init.dtype}.")
    n = len(units.layout.edges)
    if two_values(units.model.prior) is None:
        n = int(units.graph.n_states[units.layout.order][units.layout.neighbours].sum())
    if init.ndim not in (1, 2) or init.shape[-1] != n or not len(init):
        raise ValueError(
            f"init must have shape ({n},) or (n_rows, {n}), the messages of an earlier result of "
            f"the same graph, got {init.shape}."
        )
    init = init.astype(np.float64)
    if np.isnan(init).any() or (init == np.inf).any():
        raise ValueError("init must be finite or -inf, got NaN or +inf.")
    return init


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
    return np.broadcast_to(np.maximum(init, SMALLEST_START), shape).copy(order="C")


def returned_messages(messages, units):
    """Messages of the kernels as log-odds, if units are two-valued and have logarithms."""
    if two_values(units.model.prior) is None or messages.shape[1] == len(units.layout.edges):
        return messages
    return messages[:, 1::2] - messages[:, ::2]
