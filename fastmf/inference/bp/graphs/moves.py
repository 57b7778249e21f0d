"""Moves of many units at once towards more probable assignments of a graph with cycles.

The most probable states of random units without a cycle, given all other units, are
found by dynamic programming (Hamze and de Freitas 2004 sample in this way): first with Gumbel noise
in the fields, which falls to 0 (perturb and maximise, Papandreou and Yuille 2011), then without.
"""

import numpy as np

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.bp.graphs.units import first_largest
from fastmf.kernels.bp.graphs import ForestMemory, forest_move

# Moves of each row, all but the last eighth at a temperature that falls to 0; and the first
# temperature, relative to the exponents of a unit with its neighbours.
N_MOVES, HOT = 500, 0.26
# Slots of all rows together up to which all moves are made, and the same where states of large
# weight are asked for, from some equal rows.
MAX_SLOTS, MAX_START_SLOTS, N_LIKELY_ROWS = 50_000, 10_000, 4


def likely_state(problem):
    """An assignment of large exponent of the first row, soon found; None if it is impossible."""
    field = problem.field[0]
    labels = np.tile(first_largest(field, problem.first_state), (N_LIKELY_ROWS, 1))
    objective = np.full(N_LIKELY_ROWS, -np.inf)
    forest_moves(problem._replace(field=field[None]), labels, objective, 1, MAX_START_SLOTS)
    best = objective.argmax()
    return labels[best] if np.isfinite(objective[best]) else None


def forest_moves(problem, labels, objective, n_threads=None, max_slots=MAX_SLOTS):
    """Better assignments of some rows, changed in place."""
    n_rows, n_units = labels.shape
    n_slots = n_rows * len(problem.neighbours)
    if not n_rows:
        return
    share = min(1.0, max_slots / max(n_slots, 1))
    n_moves = int(share * N_MOVES)
    n_annealed = n_moves - n_moves // 8
    rng, n_states = np.random.default_rng(0), int(problem.first_state[-1])
    n_workers = workers_for(n_rows, 20 * n_slots, n_threads)
    memory = ForestMemory(
        *np.zeros((4, n_workers, n_units), np.int64), np.zeros((n_workers, n_states))
    )
    # The sum of the squares of the exponents of a unit with its neighbours, states averaged.
    tables = np.where(np.isfinite(problem.tables), problem.tables, 0)
    n_values = max(len(tables), 1)
    hot = HOT * np.sqrt((tables**2).sum() / n_values * len(problem.neighbours) / n_units)
    now, values = labels.copy(), objective.copy()
    noise = np.zeros((n_rows, n_states))
    for k in range(n_moves):
        cold = k >= n_annealed
        if k == n_annealed:
            now, values, noise = labels.copy(), objective.copy(), np.zeros_like(noise)
        if not cold:
            noise = hot * (1 - k / n_annealed) * rng.gumbel(size=noise.shape)
        result, new, order = now.copy(), np.empty(n_rows), rng.permutation(n_units)
        arguments = problem, order, noise, result, new, memory, np.zeros(2, np.int64)
        in_parallel(forest_move, arguments, n_workers)
        # Equal ones are taken, too: they lead on.
        taken = np.isfinite(new) & ((new >= values) | (not cold))
        now[taken], values[taken] = result[taken], new[taken]
        no_worse = values >= objective
        labels[no_worse], objective[no_worse] = now[no_worse], values[no_worse]
