"""Greedy colouring of a graph: units of one colour are not coupled."""

from fastmf._jit.kernel import kernel
from fastmf._threads.interrupts import next_task


@kernel(views=True)
def greedy_colours(starts, neighbours, last_used, colours, queue):
    """Give each vertex in turn the smallest colour that none of its neighbours has."""
    if next_task(queue) > 0:
        return
    for i in range(colours.shape[0]):
        for k in range(starts[i], starts[i + 1]):
            colour = colours[neighbours[k]]
            if colour >= 0:
                last_used[colour] = i
        colour = 0
        while last_used[colour] == i:
            colour += 1
        colours[i] = colour
