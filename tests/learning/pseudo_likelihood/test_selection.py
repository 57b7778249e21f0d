"""Couplings that the extended Bayesian information criterion chooses."""

import functools
import itertools

import numpy as np
import pytest
from populations import all_states
from scipy.optimize import minimize

import fastmf as mf


def ring(d, coupling, n_rows, seed):
    """Rows drawn from a ring of spins."""
    J = np.zeros((d, d))
    for i in range(d):
        J[i, (i + 1) % d] = J[(i + 1) % d, i] = coupling
    states = all_states(d)
    logs = (states @ J * states).sum(1) / 2
    p = np.exp(logs - np.logaddexp.reduce(logs))
    return states[np.random.default_rng(seed).choice(len(states), n_rows, p=p)], J != 0


@functools.cache
def maximum(edges):
    """Largest log-pseudo-likelihood over the couplings of a graph, by SciPy."""
    X, d = ring(4, 0.25, 300, 3)[0], 4
    rows, counts = np.unique(X, axis=0, return_counts=True)

    def loss(v):
        J = np.zeros((d, d))
        J[pairs] = v[d:]
        fields = rows @ (J + J.T) + v[:d]
        residuals = counts[:, None] * (np.tanh(fields) - rows)
        by_pair = rows.T @ residuals
        value = -counts @ (rows * fields - np.logaddexp(fields, -fields)).sum(1)
        return value, np.append(residuals.sum(0), (by_pair + by_pair.T)[pairs])

    pairs = tuple(np.array(edges, int).reshape(-1, 2).T)
    return -minimize(loss, np.zeros(d + len(edges)), jac=True, options={"gtol": 1e-6}).fun


@pytest.mark.parametrize("gamma", [0.0, pytest.param(0.25, marks=pytest.mark.slow), 1.0])
def test_the_choice_is_the_best_graph_of_all(gamma):
    X, _ = ring(4, 0.25, 300, 3)
    machine = mf.FullyVisibleBoltzmannMachine(l1="ebic", ebic_gamma=gamma).fit(X)
    pairs = list(itertools.combinations(range(4), 2))
    values = {
        edges: -2 * maximum(edges) + len(edges) * (np.log(300) + 4 * gamma * np.log(4))
        for k in range(len(pairs) + 1)
        for edges in itertools.combinations(pairs, k)
    }
    best = min(values, key=values.get)
    assert tuple(map(tuple, np.argwhere(np.triu(machine.couplings_)).tolist())) == best
    path = machine.path_
    assert path.ebic[path.chosen] == pytest.approx(values[best], abs=1e-3)
    assert path.n_edges[path.chosen] == len(best)


def test_a_ring_is_found():
    X, truth = ring(15, 0.3, 1500, 0)
    found = mf.FullyVisibleBoltzmannMachine(l1="ebic").fit(X).couplings_ != 0
    assert found[truth].all()
    assert (found & ~truth).sum() / 2 <= 6


def test_noise_keeps_no_couplings_and_bad_options_are_named():
    X = np.where(np.random.default_rng(0).random((500, 6)) < 0.4, 1, -1)
    machine = mf.FullyVisibleBoltzmannMachine(l1="ebic", ebic_gamma=2.0).fit(X)
    assert not machine.couplings_.any()
    np.testing.assert_allclose(machine.field_, np.arctanh(X.mean(0)), atol=1e-6)
    for options in ({"l1": "bic"}, {"l1": "ebic", "solver": "bslm"}):
        with pytest.raises(ValueError, match="l1"):
            mf.FullyVisibleBoltzmannMachine(**options).fit(X)
    with pytest.raises(ValueError, match="ebic_gamma"):
        mf.FullyVisibleBoltzmannMachine(ebic_gamma=-1).fit(X)
