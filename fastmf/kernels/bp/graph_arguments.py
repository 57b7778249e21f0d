"""Arguments and working memory of the kernels of belief propagation on graphs.

A *slot* is a directed edge. The slots of a unit lie side by side, one for each of its neighbours,
and hold the messages that the unit sends. Units are numbered in breadth-first order.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Bool, Float64, Int32, Int64

# A sum of exponentials below this may have lost its largest term.
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
