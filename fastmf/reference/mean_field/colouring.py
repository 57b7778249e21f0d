"""Twin of `fastmf.kernels.mean_field.colouring`."""

import itertools


def greedy_colours(starts, neighbours, last_used, colours, queue):
    """Give each vertex in turn the smallest colour that none of its neighbours has."""
    for i in range(len(colours)):
        taken = set(colours[neighbours[starts[i] : starts[i + 1]]])
        colours[i] = next(c for c in itertools.count() if c not in taken)
        last_used[[c for c in taken if c >= 0]] = i
