"""Moves of forests of units."""

import numpy as np
from graph_models import Graph, grid_couplings
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import fastmf as mf
from fastmf.inference.bp.graphs import starts
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.kernels.bp.graphs import ForestMemory, forest_move
from fastmf.reference.bp.graphs import induced_forest


def problem_of(couplings, field):
    """A problem of spins, in the order of its units."""
    units = GraphUnits(mf.BoltzmannMachine(couplings, mf.Ising(field)))
    return units.problem()[0]


def moved(problem, order, labels):
    """States and objective after one move without noise."""
    n_units, n_states = len(order), problem.field.shape[1]
    memory = ForestMemory(*np.zeros((4, 1, n_units), np.int64), np.zeros((1, n_states)))
    found, objective = labels[None].copy(), np.zeros(1)
    noise, queue = np.zeros((1, n_states)), np.zeros(2, np.int64)
    forest_move(problem, order, noise, found, objective, memory, queue)
    return found[0], objective[0]


def test_induced_forests_have_no_cycle_and_no_room_for_more():
    problem = problem_of(grid_couplings(8, torus=True), np.zeros(64))
    edges = np.stack([np.repeat(np.arange(64), np.diff(problem.starts)), problem.neighbours], 1)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(64)
        chosen = induced_forest(problem, order)
        assert is_forest(edges, chosen) and chosen.mean() > 0.5
        for i in np.flatnonzero(~chosen):
            assert not is_forest(edges, chosen | (np.arange(64) == i))
    triangle = problem_of(np.ones((3, 3)) - np.eye(3), np.zeros(3))
    assert induced_forest(triangle, np.arange(3)).tolist() == [True, True, False]


def is_forest(edges, chosen):
    """Whether the chosen units have no cycle: as many edges as units less components."""
    n, within = len(chosen), edges[chosen[edges].all(1)]
    graph = csr_array((np.ones(len(within)), within.T), shape=(n, n))
    n_components = connected_components(graph)[0] - (~chosen).sum()
    return len(within) / 2 == chosen.sum() - n_components


def test_a_move_is_the_best_one_of_the_units_of_each_forest():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        couplings = grid_couplings(3, rng.normal(size=12))
        problem, order = problem_of(couplings, rng.normal(size=9)), rng.permutation(9)
        labels, left = rng.integers(0, 2, 9), order
        found, objective = moved(problem, order, labels)
        states = (np.arange(2**9)[:, None] >> np.arange(9)) & 1
        values = exponents(problem, states)
        best = labels
        while len(left):
            free = induced_forest(problem, left)
            possible = (states == best)[:, ~free].all(1)
            best = states[np.where(possible, values, -np.inf).argmax()]
            left = left[~free[left]]
        assert (found == best).all()
        np.testing.assert_allclose(objective, values[(states == best).all(1)][0])


def exponents(problem, states):
    """Exponents of states of spins."""
    n, tables = states.shape[1], problem.tables.reshape(-1, 2, 2)
    values = problem.field[0].reshape(n, 2)[np.arange(n), states].sum(1)
    for i in range(n):
        for k in range(problem.starts[i], problem.starts[i + 1]):
            j = problem.neighbours[k]
            values += tables[problem.edges[k]][states[:, i], states[:, j]] * (j > i)
    return values


def test_moves_find_better_assignments_of_spin_glasses(monkeypatch):
    rng = np.random.default_rng(0)
    couplings = grid_couplings(16, rng.choice([-1.0, 1.0], 2 * 16 * 16), torus=True)
    model = mf.BoltzmannMachine(couplings, mf.Ising(rng.normal(size=256) / 1000))
    options = {"algorithm": "max", "max_iter": 50, "field": rng.normal(size=(3, 256)) / 1000}
    found = mf.belief_propagation(model, **options)
    monkeypatch.setattr(starts, "N_MOVES", 0)
    single = mf.belief_propagation(model, **options)
    assert (found.objective >= single.objective).all()
    assert found.objective.sum() > single.objective.sum() + 1
    assert found.local_maximum.all()
    energies = model.energy(found.assignment) - (options["field"] * found.assignment).sum(1)
    np.testing.assert_allclose(found.objective, -energies)


def test_noise_leads_out_of_local_maxima(monkeypatch):
    rng = np.random.default_rng(1)
    couplings = grid_couplings(20, rng.normal(size=800), torus=True)
    model = mf.BoltzmannMachine(couplings, mf.Ising(np.zeros(400)))
    found = mf.most_probable(model, max_iter=50)
    monkeypatch.setattr(starts, "HOT", 0)
    greedy = mf.most_probable(model, max_iter=50)
    assert found.objective > greedy.objective * 1.005
    assert np.isclose(found.objective, -model.energy(found.assignment))


def test_frustrated_tables_are_solved():
    edges = [(i, j) for i in range(6) for j in range(i)]
    for seed in range(6):
        graph = Graph(edges, 6, 10.0, 0.2, seed)
        best = mf.most_probable(graph.machine(), max_iter=30).objective
        assert best > graph.solve()[3] - 1e-9
