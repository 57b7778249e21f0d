"""Moves of many units at once towards more probable assignments of a graph with cycles.

The most probable states of random units that have no cycle among themselves, given all others, are
found by max-product (Hamze and de Freitas 2004 sample in this way): first with Gumbel noise in the
fields, which falls to 0 (perturb and maximise, Papandreou and Yuille 2011), then without.
"""

import numpy as np

# Moves of each row, at first at a temperature that falls to 0; those without a gain after which it
# is left; and the first temperature, relative to the mean exponent.
N_MOVES, N_ANNEALED, N_IN_VAIN, HOT = 180, 150, 40, 0.8
# Slots of all rows together up to which there are so many moves, fewer of more, and none.
MAX_SLOTS_OF_ALL, MAX_SLOTS = 25_000, 200_000
# Sweeps of one move, which ends where messages change by less: a forest needs two.
MAX_SWEEPS, MOVE_TOL = 200, 1e-8


def forest_moves(units, labels, objective, solve):
    """Better assignments of some rows, changed in place.

    Parameters
    ----------
    units : GraphUnits
    labels : int array of shape (n_rows, n_vertices)
        States of the vertices, as given.
    objective : array of shape (n_rows,)
        Exponents of the assignments.
    solve : callable
        solve(allowed, noise) returns labels and exponents of max-product, with the states of each
        row that are allowed, a bool array of shape (n_rows, n_states), and noise, of that shape,
        which is added to the fields but not to the exponents.
    """
    n_rows, n_vertices = labels.shape
    n_slots = n_rows * len(units.layout.edges)
    if not n_rows or n_slots > MAX_SLOTS:
        return
    share = min(1.0, MAX_SLOTS_OF_ALL / max(n_slots, 1))
    n_moves, n_annealed = int(share * N_MOVES), int(share * N_ANNEALED)
    rng, neighbours = np.random.default_rng(0), _neighbours(units)
    vertex = np.repeat(np.arange(n_vertices), units.graph.n_states)
    state = np.arange(len(vertex)) - units.first_state[vertex]
    tables = abs(units.tables[1])
    hot = HOT * tables[np.isfinite(tables)].mean()
    now, values, n_in_vain = labels.copy(), objective.copy(), 0
    for k in range(n_moves):
        cold = k >= n_annealed
        if k == n_annealed:
            now, values = labels.copy(), objective.copy()
        temperature = 0.0 if cold else hot * (1 - k / n_annealed)
        free = induced_forest(rng.permutation(n_vertices).tolist(), neighbours)
        noise = temperature * rng.gumbel(size=(n_rows, len(vertex)))
        found, new = solve(free[vertex] | (now[:, vertex] == state), noise)
        # Equal ones are taken, too: they lead on.
        taken = np.isfinite(new) & ((new >= values) | (not cold))
        now[taken], values[taken] = found[taken], new[taken]
        margin = np.where(np.isfinite(objective), 1e-11 * (1 + abs(objective)), 0)
        better = values > objective + margin
        kept = values >= objective
        labels[kept], objective[kept] = now[kept], values[kept]
        n_in_vain = 0 if better.any() or not cold else n_in_vain + 1
        if n_in_vain == N_IN_VAIN:
            return


def induced_forest(order, neighbours):
    """Vertices that have no cycle among themselves, taken in an order as long as that is so.

    Parameters
    ----------
    order : list of int
    neighbours : list of lists of int

    Returns
    -------
    bool array of shape (n_vertices,)
    """
    above, chosen = list(range(len(order))), np.zeros(len(order), bool)

    def root(i):
        while above[i] != i:
            above[i] = above[above[i]]
            i = above[i]
        return i

    taken = [False] * len(order)
    for i in order:
        roots = [root(j) for j in neighbours[i] if taken[j]]
        if len(set(roots)) == len(roots):
            taken[i] = True
            for r in roots:
                above[r] = i
    chosen[:] = taken
    return chosen


def _neighbours(units):
    """Neighbours of each vertex, as given."""
    layout = units.layout
    given, found = layout.order[layout.neighbours].tolist(), [[] for _ in layout.order]
    for place, i in enumerate(layout.order):
        found[i] = given[layout.starts[place] : layout.starts[place + 1]]
    return found
