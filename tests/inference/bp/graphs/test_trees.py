"""Spanning trees, radii and units of graphs."""

import itertools
import threading

import numpy as np
import pytest
from bp_models import loopy
from graph_models import Graph, cyclic, forests, grid_couplings

import fastmf as mf
from fastmf.inference.bp.graphs import propagation, trees
from fastmf.inference.bp.graphs.propagation import perron_bound, spectral_radius
from fastmf.inference.bp.graphs.trees import random_trees, tree_bound
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.models import _state_tables as module
from tests._threads.test_workers import TIMEOUT, forked, needs_fork


def trees_of(edges, n):
    """All spanning forests with as many edges as there can be."""

    def components(chosen):
        label = list(range(n))
        for i, j in chosen:
            a, b = label[i], label[j]
            if a == b:
                return None
            label = [a if x == b else x for x in label]
        return len(set(label))

    for size in range(len(edges), -1, -1):
        found = [c for c in itertools.combinations(edges, size) if components(c) is not None]
        if found:
            return found
    return []


def sorted_edges(edges):
    return np.array(sorted(tuple(sorted(edge)) for edge in edges), int).reshape(-1, 2)


@pytest.mark.parametrize("name, edges, n", [*forests(), *cyclic()], ids=str)
def test_uniform_trees(name, edges, n):
    edges = sorted_edges(edges)
    trees = trees_of([tuple(edge) for edge in edges], n)
    counts = np.array([sum(tuple(edge) in tree for tree in trees) for edge in edges])
    found = random_trees(edges, n)
    np.testing.assert_allclose(found.probability, counts / len(trees), atol=1e-12)
    # A child or a root, each vertex.
    of_vertex = found.root.copy()
    np.add.at(of_vertex, edges, found.child)
    np.testing.assert_allclose(of_vertex, 1, atol=1e-11)


def test_parents_of_uniform_roots():
    """Over all trees and roots of a graph of five vertices."""
    edges, n = sorted_edges([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4), (1, 4)]), 5
    counts, every = np.zeros((len(edges), 2)), trees_of([tuple(edge) for edge in edges], n)
    for tree in every:
        chosen = np.array([tuple(edge) in tree for edge in edges])
        for root in range(n):
            # The tree renumbered so that the root comes first: it is then chosen as the root.
            number = np.argsort([root, *[v for v in range(n) if v != root]])
            moved = number[edges[chosen]]
            found = random_trees(np.sort(moved, 1), n)
            assert found.root.tolist() == [1, 0, 0, 0, 0]
            swapped = moved[:, 0] > moved[:, 1]
            counts[chosen] += np.where(swapped[:, None], found.child[:, ::-1], found.child)
    np.testing.assert_allclose(random_trees(edges, n).child, counts / (n * len(every)), atol=1e-12)


def test_large_graphs_have_trees_that_cover_all_edges(monkeypatch):
    monkeypatch.setattr(trees, "MAX_DENSE", 2)
    edges, n = np.array(list(itertools.combinations(range(9), 2))), 9
    found = random_trees(edges, n)
    assert (found.probability == 2 / 9).all()  # complete
    edges = edges[1:]
    found = random_trees(edges, n)
    assert (found.probability > 0).all() and (found.probability <= 1).all()
    assert abs(found.probability.sum() - (n - 1)) < 1e-12 and found.root.sum() == 1


# --- sums over spanning trees, at any messages, against enumeration and trees one by one ----------


def bound_of(graph, messages=None, scale=1.0):
    units = GraphUnits(graph.machine())
    trees = random_trees(units.graph.edges, len(units.graph.n_states))
    problem, _ = units.problem(trees.probability)
    if messages is None:
        messages = np.zeros((1, problem.first_entry[-1]))
    else:
        messages = scale * messages.normal(size=(3, problem.first_entry[-1]))
    return tree_bound(problem, trees.child, trees.root[units.layout.order], messages)


@pytest.mark.parametrize("name, edges, n", list(cyclic()), ids=str)
def test_it_holds_for_all_messages(name, edges, n):
    rng = np.random.default_rng(0)
    for strength in (0.3, 3.0):
        graph = Graph(edges, n, strength, forbidden=0.1, seed=n)
        for scale in (0.1, 1.0, 10.0):
            assert (bound_of(graph, rng, scale) > graph.solve()[0]).all()


@pytest.mark.parametrize("name, edges, n", [*forests(), *cyclic()], ids=str)
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_bounds_of_scores(name, edges, n, forbidden):
    graph = Graph(edges, n, 2.0, forbidden, seed=3)
    clamp = np.full((2, n), -1)
    clamp[1, 0] = 0
    field = np.random.default_rng(0).normal(size=graph.sizes.sum())
    best = np.array([graph.solve(field, row)[3] for row in clamp])
    for max_iter in (1, 4, 1000):
        options = {"field": field, "clamp": clamp, "max_iter": max_iter}
        found = mf.most_probable(graph.machine(), bound=True, **options)
        assert (found.bound >= np.maximum(best, found.score)).all()
    if "ring" not in name and len(edges) < n:
        np.testing.assert_allclose(found.bound, best, rtol=1e-12)


def test_bounds_prove_assignments():
    """Attractive couplings: the local polytope has an integral maximum (here of 256 spins)."""
    field = np.random.default_rng(0).normal(size=256)
    machine = mf.BoltzmannMachine(grid_couplings(16, torus=True), mf.Ising(field))
    found = mf.most_probable(machine, bound=True)
    assert found.reliable
    assert found.bound == pytest.approx(found.score)
    weights = np.random.default_rng(1).normal(size=(6, 5))
    model = mf.RBM(weights, mf.Ising(field[:6]), mf.Bernoulli(field[:5]))
    rows = mf.most_probable(model, bound=True, field=np.eye(6))
    states = np.indices((2,) * 11).reshape(11, -1).T
    pair = 2 * states[:, :6] - 1, states[:, 6:]
    assert (rows.bound >= (pair[0] - model.energy(*pair)[:, None]).max(0)).all()
    with pytest.raises(ValueError, match="bound: not available with sum_hidden"):
        mf.most_probable(model, bound=True, sum_hidden=True)


def test_forests_of_one_edge_are_exact_without_messages():
    graph = Graph([(0, 1)], 2, 2.0, seed=3)
    assert np.isclose(bound_of(graph)[0], graph.solve()[0], rtol=1e-12)
    for _, edges, n in forests():
        graph = Graph(edges, n, 2.0, seed=n)
        assert bound_of(graph)[0] >= graph.solve()[0] - 1e-12


def test_units_without_states_have_none():
    graph = Graph([(0, 1), (1, 2), (0, 2)], 3)
    graph.fields[1][:] = -np.inf
    graph.fields[1][0] = 0
    graph.tables[0, 1][:, 0] = -np.inf
    assert bound_of(graph)[0] == -np.inf


# --- uniqueness by the spectral radius of Mooij and Kappen ----------------------------------------


def radius_of(graph):
    """Spectral radius of the matrix over directed edges, written out."""
    directed = [*graph.edges, *(edge[::-1] for edge in graph.edges)]
    matrix = np.zeros((len(directed),) * 2)
    for row, (i, j) in enumerate(directed):
        table = graph.tables[min(i, j), max(i, j)]
        rows, columns = (list(itertools.combinations(range(size), 2)) for size in table.shape)
        largest = max(
            abs(table[a, b] + table[c, d] - table[a, d] - table[c, b])
            for a, c in rows
            for b, d in columns
        )
        for column, (k, other) in enumerate(directed):
            if other == i and k != j:
                matrix[row, column] = np.tanh(largest / 4)
    return abs(np.linalg.eigvals(matrix)).max()


@pytest.mark.parametrize("name, edges, n", list(cyclic()), ids=str)
@pytest.mark.parametrize("strength", [0.3, 2.0])
def test_bound_of_the_spectral_radius(name, edges, n, strength):
    graph = Graph(edges, n, strength)
    found, exact = spectral_radius(GraphUnits(graph.machine())), radius_of(graph)
    assert exact * (1 - 1e-6) <= found <= exact * 1.05


def test_two_valued_units():
    couplings = 0.4 * (np.ones((3, 3)) - np.eye(3))
    for units, strength in ((mf.Ising, 0.4), (mf.Bernoulli, 0.1)):
        model = mf.BoltzmannMachine(couplings, units(np.zeros(3)))
        assert abs(spectral_radius(GraphUnits(model)) - np.tanh(strength)) < 1e-6
    frozen = mf.BoltzmannMachine(1000 * couplings, mf.Ising(np.zeros(3)))
    assert mf.belief_propagation(frozen).unique is None


def test_layers():
    """The bound is the largest eigenvalue of the edge-to-edge matrix; trees get less than 1."""
    model = loopy(4, 3, prior=mf.Ising, scale=0.4)
    edges = list(itertools.product(range(4), range(3)))
    both = [(("v", i), ("h", j)) for i, j in edges] + [(("h", j), ("v", i)) for i, j in edges]
    strength = dict(zip(edges, np.tanh(abs(model.weights)).ravel(), strict=True))
    matrix = np.zeros((24, 24))
    for a, (source, target) in enumerate(both):
        i, j = (source[1], target[1]) if source[0] == "v" else (target[1], source[1])
        for b, (first, second) in enumerate(both):
            if second == source and first != target:
                matrix[a, b] = strength[i, j]
    expected = abs(np.linalg.eigvals(matrix)).max()
    result = mf.belief_propagation(model)
    assert result.spectral_radius >= expected - 1e-9
    assert result.spectral_radius == pytest.approx(expected, rel=1e-3)
    zero = mf.RBM(np.zeros((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    assert mf.belief_propagation(zero).spectral_radius < 1


@pytest.mark.parametrize("max_iter", [1, 3, 200])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_bound_of_matrices_holds_after_any_number_of_iterations(monkeypatch, max_iter, scale):
    monkeypatch.setattr(propagation, "MAX_POWER_ITERATIONS", max_iter)
    rng = np.random.default_rng(0)
    for share in (0.1, 0.5, 1.0):
        matrix = scale * rng.exponential(size=(12, 12)) * (rng.random((12, 12)) < share)
        exact = abs(np.linalg.eigvals(matrix)).max()
        found = perron_bound(lambda x, matrix=matrix: matrix @ x, np.ones(12))
        assert found >= exact * (1 - 1e-9)
        if max_iter == 200 and share > 0.1:
            assert found < exact * (1 + 1e-4)


# --- graphs of machines as the kernels see them ---------------------------------------------------


def test_deep_and_wide_trees():
    """A chain of 50,000 units, and a star: neither is a recursion."""
    n = 50_000
    for parents in (np.arange(n - 1), np.zeros(n - 1, int)):
        ends = np.stack([parents, np.arange(1, n)], 1)
        upper = grid_couplings(2)[:0, :0]
        upper = type(upper)((np.full(n - 1, 0.7), ends.T), shape=(n, n))
        model = mf.BoltzmannMachine(upper + upper.T, mf.Ising(np.zeros(n)))
        found = mf.belief_propagation(model)
        exact = n * np.log(2) + (n - 1) * np.log(np.cosh(0.7))
        assert found.converged and abs(found.log_partition / exact - 1) < 1e-12


@needs_fork
def test_a_fork_while_another_thread_lists_states(monkeypatch):
    """The child lists those of a graph of its own, and waits for no lock of the property."""
    begun, go_on, values = threading.Event(), threading.Event(), module.support
    one, other = (
        GraphUnits(mf.BoltzmannMachine(np.zeros((2, 2)), mf.Ising([0.0, 0.0]))) for _ in "12"
    )

    def support(prior):
        if threading.current_thread() is slow:
            begun.set()
            go_on.wait(TIMEOUT)
        return values(prior)

    monkeypatch.setattr(module, "support", support)
    slow = threading.Thread(target=lambda: one.states)
    slow.start()
    try:
        assert begun.wait(TIMEOUT)
        assert forked(lambda: other.states[1].tolist()) == [-1.0, 1.0, -1.0, 1.0]
    finally:
        go_on.set()
        slow.join()
