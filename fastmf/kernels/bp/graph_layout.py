"""Units of a graph in breadth-first order, and the slots of their messages.

In this order the neighbours of a unit of a tree are its parent, before it, and its children, after
it: sweeps from the last unit to the first and back are exact. It also brings neighbours close
together in memory.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.kernel import kernel
from fastmf._threads.interrupts import stopped

# Units between two looks for Ctrl-C.
UNITS_PER_LOOK = 1 << 16


class GraphLayout(NamedTuple):
    """Order of the units of a graph, and slots of its messages.

    Parameters
    ----------
    order, place : int64 array of shape (n_units,)
        Given number of each unit in the order, and place there of each given unit.
    slots : int64 array of shape (n_edges, 2)
        Slots in which the first and the second unit of an edge send.
    starts : int64 array of shape (n_units + 1,)
    neighbours, reverse, edges : int32 array of shape (n_slots,)
        As in `BinaryProblem`.
    n_components : int64 array of shape (1,)
    """

    order: np.ndarray
    place: np.ndarray
    slots: np.ndarray
    starts: np.ndarray
    neighbours: np.ndarray
    reverse: np.ndarray
    edges: np.ndarray
    n_components: np.ndarray


@kernel(merged=True)
def _fill_given(pairs, first, given):
    """Edges of each unit, by the numbers that units were given."""
    for e in range(pairs.shape[0]):
        for side in range(2):
            first[pairs[e, side] + 1] += 1
    for i in range(1, first.shape[0]):
        first[i] += first[i - 1]
    for e in range(pairs.shape[0]):
        for side in range(2):
            i = pairs[e, side]
            given[first[i]] = 2 * e + side
            first[i] += 1
    for i in range(first.shape[0] - 1, 0, -1):
        first[i] = first[i - 1]
    first[0] = 0


@kernel(merged=True)
def _fill_slots(pairs, first, given, layout):
    """Slots of the units in their order."""
    order, starts, slot = layout.order, layout.starts, np.int64(0)
    for p in range(order.shape[0]):
        starts[p] = slot
        for k in range(first[order[p]], first[order[p] + 1]):
            e, side = given[k] >> 1, given[k] & 1
            layout.neighbours[slot] = layout.place[pairs[e, 1 - side]]
            layout.edges[slot] = e
            layout.slots[e, side] = slot
            slot += 1
    starts[order.shape[0]] = slot
    for e in range(pairs.shape[0]):
        a, b = layout.slots[e, 0], layout.slots[e, 1]
        layout.reverse[a], layout.reverse[b] = b, a


@kernel(views=True)
def graph_layout(pairs, first, given, layout, queue):
    """Order units breadth first, component after component, and lay out their slots.

    Parameters
    ----------
    pairs : int64 array of shape (n_edges, 2)
        Units of each edge.
    first, given : int64 array of shape (n_units + 1,) and (2 n_edges,)
        Working memory, 0 at the beginning.
    layout : GraphLayout
        `place` is -1 and `n_components` 0 at the beginning; filled.
    queue : int64 array of shape (1,)
    """
    order, place = layout.order, layout.place
    n_placed = n_done = np.int64(0)
    _fill_given(pairs, first, given)
    for root in range(order.shape[0]):
        if place[root] >= 0:
            continue
        layout.n_components[0] += 1
        place[root], order[n_placed] = n_placed, root
        n_placed += 1
        while n_done < n_placed:
            i = order[n_done]
            n_done += 1
            if n_done % UNITS_PER_LOOK == 0 and stopped(queue):
                return
            for k in range(first[i], first[i + 1]):
                j = pairs[given[k] >> 1, 1 - (given[k] & 1)]
                if place[j] < 0:
                    place[j], order[n_placed] = n_placed, j
                    n_placed += 1
    _fill_slots(pairs, first, given, layout)
