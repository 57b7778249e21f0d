"""Moves of forests of units."""

import numpy as np
from graph_models import Graph, grid_couplings

import fastmf as mf
from fastmf.inference.bp.graphs import moves
from fastmf.inference.bp.graphs.moves import induced_forest


def test_induced_forests_have_no_cycle_and_no_room_for_more():
    couplings, n = grid_couplings(8, torus=True), 64
    neighbours = [
        couplings.indices[couplings.indptr[i] : couplings.indptr[i + 1]] for i in range(n)
    ]
    neighbours = [part.tolist() for part in neighbours]
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(n).tolist()
        chosen = induced_forest(order, neighbours)
        within = couplings[chosen][:, chosen]
        n_components = mf.belief_propagation(
            mf.BoltzmannMachine(within, mf.Ising(np.zeros(chosen.sum())))
        ).n_iter  # two sweeps: a forest
        assert n_components == 2
        assert chosen.mean() > 0.5
    assert induced_forest([0, 1, 2], [[1, 2], [0, 2], [0, 1]]).tolist() == [True, True, False]


def test_moves_find_better_assignments_of_spin_glasses(monkeypatch):
    rng = np.random.default_rng(0)
    couplings = grid_couplings(16, rng.choice([-1.0, 1.0], 2 * 16 * 16), torus=True)
    model = mf.BoltzmannMachine(couplings, mf.Ising(rng.normal(size=256) / 1000))
    options = {"algorithm": "max", "max_iter": 50, "field": rng.normal(size=(3, 256)) / 1000}
    found = mf.belief_propagation(model, **options)
    monkeypatch.setattr(moves, "N_MOVES", 0)
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
    found = mf.belief_propagation(model, algorithm="max", max_iter=50)
    monkeypatch.setattr(moves, "N_ANNEALED", 0)
    greedy = mf.belief_propagation(model, algorithm="max", max_iter=50)
    assert found.objective > greedy.objective * 1.005
    assert np.isclose(found.objective, -model.energy(found.assignment))


def test_frustrated_tables_are_solved():
    edges = [(i, j) for i in range(6) for j in range(i)]
    for seed in range(6):
        graph = Graph(edges, 6, 10.0, 0.2, seed)
        best = mf.belief_propagation(graph.machine(), algorithm="max", max_iter=30).objective
        assert best > graph.solve()[3] - 1e-9
