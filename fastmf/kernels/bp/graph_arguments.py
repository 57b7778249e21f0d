"""Arguments and working memory of the kernels of belief propagation on graphs.

A *slot* is a directed edge. The slots of a unit lie side by side, one for each of its neighbours,
and hold the messages that the unit sends. Units are numbered in breadth-first order.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Bool, Float64, Int8, Int32, Int64

# A sum of exponentials below this may have lost its largest term.
SMALLEST_SUM = float(np.sqrt(np.finfo(np.float64).tiny))
# Planes of `GraphState.scratch`.
CAVITY, WEIGHTS, SENT = range(3)


class BinaryProblem(NamedTuple):
    """A graph of units with two states, s = -1 and s = 1, and exponents K s s'.

    Parameters
    ----------
    starts : int64 array of shape (n_units + 1,)
        First slot of each unit.
    neighbours, reverse, edges : int32 array of shape (n_slots,)
        The unit that receives the message of a slot, the slot of the message in the opposite
        direction, and the number of the edge.
    exponentials : float64 array of shape (n_slots,)
        exp(2 K).
    odds : float64 array of shape (1 or n_rows, n_units)
        exp(field of the state 1 less the field of -1).
    clamped : int8 array of shape (0, 1 or n_rows, n_units)
        0 and 1 for units that are clamped to -1 and 1, `FREE` for free units.
    """

    starts: Int64[1]
    neighbours: Int32[1]
    reverse: Int32[1]
    edges: Int32[1]
    exponentials: Float64[1]
    odds: Float64[2]
    clamped: Int8[2]


class StatesProblem(NamedTuple):
    """A graph of units with any numbers of states, and a table of exponents for each edge.

    Parameters
    ----------
    starts, neighbours, reverse, edges
        As for `BinaryProblem`.
    first_state : int64 array of shape (n_units + 1,)
    first_entry : int64 array of shape (n_slots + 1,)
        First entry of the message of each slot, which has an entry for each state of the receiver.
    first_value : int64 array of shape (n_edges + 1,)
        First entry of the table of each edge.
    transposed : bool array of shape (n_slots,)
        Whether the receiver's states are the rows of the table.
    tables, exponentials : float64 array of shape (n_values,)
        Exponents divided by the edge's probability, and exp of them less the largest of the edge.
    largest, probability : float64 array of shape (n_edges,)
        Largest exponent, -inf if there is no finite one; probability of the edge in a spanning tree
        for tree-reweighted belief propagation, 1 otherwise.
    field : float64 array of shape (1 or n_rows, n_states)
        -inf for states that are forbidden.
    maximum : bool
        Whether messages are maxima over the states of the sender, and not sums.
    """

    starts: Int64[1]
    neighbours: Int32[1]
    reverse: Int32[1]
    edges: Int32[1]
    first_state: Int64[1]
    first_entry: Int64[1]
    first_value: Int64[1]
    transposed: Bool[1]
    tables: Float64[1]
    exponentials: Float64[1]
    largest: Float64[1]
    probability: Float64[1]
    field: Float64[2]
    maximum: bool


class GraphState(NamedTuple):
    """Messages and beliefs of all rows.

    Parameters
    ----------
    messages : float64 array of shape (n_rows, n_slots or n_entries)
        Odds of binary units, logarithms otherwise, whose largest entry is 0.
    beliefs : float64 array of shape (n_rows, n_units or n_states)
        Odds or logarithms, of the messages that were read.
    damping, residual : float64 array of shape (n_rows,)
        Damping; largest relative change of odds, or change of a logarithm x relative to
        1 + abs(x), in a belief or a message; inf if a unit has no state left.
    receivers : int
        `ALL`, `FOLLOWING` or `NO_RECEIVERS`.
    scratch : float64 array of shape (n_workers, 3, largest number of states)
    """

    messages: Float64[2]
    beliefs: Float64[2]
    damping: Float64[1]
    residual: Float64[1]
    receivers: int
    scratch: Float64[3]
