"""Units of a graph in breadth-first order, and the slots of their messages.

In this order the neighbours of a unit of a tree are its parent, before it, and its children, after
it: sweeps from the last unit to the first and back are exact. It also brings neighbours close
together in memory.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Int32, Int64
from fastmf._jit.kernel import kernel
from fastmf._threads.interrupts import stopped

# Units between two looks for Ctrl-C.
UNITS_PER_LOOK = 1 << 16


class GraphLayout(NamedTuple):
    """Order of the units of a graph, and slots of its messages.

    Parameters
    ----------
    order : int64 array of shape (n_units,)
        Given number of each unit in the order.
    place : int32 array of shape (n_units,)
        Place in the order of each given unit.
    slots : int32 array of shape (n_edges, 2)
        Slots in which the first and the second unit of an edge send.
    starts : int64 array of shape (n_units + 1,)
    neighbours, reverse, edges : int32 array of shape (n_slots,)
        As in `BinaryProblem`.
    n_components : int64 array of shape (1,)
    """

    order: Int64[1]
    place: Int32[1]
    slots: Int32[2]
    starts: Int64[1]
    neighbours: Int32[1]
    reverse: Int32[1]
    edges: Int32[1]
    n_components: Int64[1]


@kernel(mode="merged")
def _fill_given(pairs, first, given):
    """Edges of each unit, by the numbers that units were given."""
    for e in range(pairs.shape[0]):
        for side in range(2):
            first[pairs[e, side] + 1] += 1
    for i in range(1, first.shape[0]):
        first[i] += first[i - 1]
    for e in range(pairs.shape[0]):
        for side in range(2):
            k = first[pairs[e, side]]
            first[pairs[e, side]] += 1
            given[k, 0], given[k, 1] = 2 * e + side, pairs[e, 1 - side]
    for i in range(first.shape[0] - 1, 0, -1):
        first[i] = first[i - 1]
    first[0] = 0


@kernel(mode="merged")
def _add_slot(layout, slot, code, neighbour):
    """Lay out a slot, and both directions of its edge if the other one is known."""
    e, side = code >> 1, code & 1
    layout.neighbours[slot], layout.edges[slot] = neighbour, e
    layout.slots[e, side] = slot
    other = layout.slots[e, 1 - side]
    if other >= 0:
        layout.reverse[slot], layout.reverse[other] = other, slot


@kernel(mode="merged")
def _visit(layout, first, given, i, slot, n_placed):
    """Lay out the slots of a unit; returns the number of units placed, its neighbours included."""
    place, order = layout.place, layout.order
    for k in range(first[i], first[i + 1]):
        code, j = given[k, 0], given[k, 1]
        if place[j] < 0:
            place[j], order[n_placed] = n_placed, j
            n_placed += 1
        _add_slot(layout, slot + k - first[i], code, place[j])
    return n_placed


@kernel(views=True)
def graph_layout(pairs, first, given, layout, queue):
    """Order units breadth first, component after component, and lay out their slots."""
    order, place = layout.order, layout.place
    n_placed = n_done = slot = np.int64(0)
    _fill_given(pairs, first, given)
    for root in range(order.shape[0]):
        if place[root] >= 0:
            continue
        layout.n_components[0] += 1
        place[root], order[n_placed] = n_placed, root
        n_placed += 1
        while n_done < n_placed:
            i = order[n_done]
            layout.starts[n_done] = slot
            n_done += 1
            if n_done % UNITS_PER_LOOK == 0 and stopped(queue):
                return
            n_placed = _visit(layout, first, given, i, slot, n_placed)
            slot += first[i + 1] - first[i]
    layout.starts[order.shape[0]] = slot
