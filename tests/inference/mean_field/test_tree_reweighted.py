"""Sums over spanning trees against trees that are enumerated one by one."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from fastmf.inference.mean_field.tree_reweighted import complete_bound, layers_bound, log_sum_exp


def by_states(tables, fields, edges):
    """Log-partition by all states: tables by pair (i, j), fields by unit."""
    shape = [len(f) for f in fields]
    values = [
        sum(f[a] for f, a in zip(fields, state, strict=True))
        + sum(tables[edge][state[edge[0]], state[edge[1]]] for edge in edges)
        for state in itertools.product(*map(range, shape))
    ]
    return logsumexp(values)


@pytest.mark.parametrize("strength", [0.3, 2.0, 10.0])
def test_bounds_hold_and_are_close_for_weak_tables(strength):
    rng = np.random.default_rng(0)
    n, m = 4, 3
    tables = rng.normal(size=(n, m, 2, 3)) * strength
    visible, hidden = rng.normal(size=(n, 2)), rng.normal(size=(m, 3))
    visible[0, 1] = hidden[1, 0] = -np.inf
    edges = {(i, n + j): tables[i, j] for i in range(n) for j in range(m)}
    right = by_states(edges, [*visible, *hidden], edges)
    bound = layers_bound(tables, visible, hidden)
    assert right <= bound < right + (0.2 if strength < 1 else 60)
    assert np.isclose(layers_bound(tables.transpose(1, 0, 3, 2), hidden, visible), bound, atol=1e-3)

    tables = np.triu(np.ones((5, 5)), 1)[..., None, None] * rng.normal(size=(5, 5, 3, 3)) * strength
    tables += tables.transpose(1, 0, 3, 2)
    fields = rng.normal(size=(5, 3))
    fields[2, :2] = -np.inf
    edges = {(i, j): tables[i, j] for i, j in itertools.combinations(range(5), 2)}
    right = by_states(edges, fields, edges)
    assert right <= complete_bound(tables, fields) < right + (0.5 if strength < 1 else 60)


def test_without_a_sweep_it_is_the_average_of_all_trees():
    rng = np.random.default_rng(1)
    n, m = 3, 2
    tables, rho = rng.normal(size=(n, m, 2, 2)), 4 / 6
    visible, hidden = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
    edges = {(i, n + j): tables[i, j] / rho for i in range(n) for j in range(m)}
    trees = [
        {(a, b): t for (a, b), t in edges.items() if a == i or b == n + j}
        for i in range(n)
        for j in range(m)
    ]
    right = np.mean([by_states(tree, [*visible, *hidden], tree) for tree in trees])
    assert np.isclose(layers_bound(tables, visible, hidden, 0), right)


def test_trees_are_exact():
    rng = np.random.default_rng(2)
    star = rng.normal(size=(1, 4, 2, 2)) * 3
    visible, hidden = rng.normal(size=(1, 2)), rng.normal(size=(4, 2))
    edges = {(0, 1 + j): star[0, j] for j in range(4)}
    right = by_states(edges, [*visible, *hidden], edges)
    assert np.isclose(layers_bound(star, visible, hidden), right, atol=1e-6)
    alone = layers_bound(np.zeros((1, 0, 2, 2)), visible, hidden[:0])
    assert np.isclose(alone, logsumexp(visible))
    assert np.isclose(complete_bound(np.zeros((1, 1, 2, 2)), visible), logsumexp(visible))


def test_log_sum_exp_of_nothing_is_minus_infinity():
    assert log_sum_exp(np.array([[-np.inf, -np.inf], [1000.0, 1000.0]]), 1).tolist() == [
        -np.inf,
        1000 + np.log(2),
    ]
