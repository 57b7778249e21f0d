"""Edges free of the penalty of the fit: finite differences, and sums over all graphs."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from numpy.polynomial.hermite import hermgauss
from scipy.optimize import minimize
from scipy.special import logsumexp

import fastmf as mf

STATES = np.array(list(product((-1.0, 1.0), repeat=3)))
PAIRS = np.triu_indices(3, 1)
COUNTS = {
    "ferromagnet": [45, 22, 17, 27, 30, 18, 15, 51],
    "weak": [38, 20, 28, 23, 21, 28, 18, 22],
    "never meeting": [40, 50, 20, 60, 0, 0, 50, 40],
    "few rows": [3, 2, 1, 2, 2, 1, 2, 6],
}


def rows_of(counts):
    return np.repeat(STATES, counts, axis=0)


def log_pseudo_likelihood(parameters, counts):
    """Of many vectors of parameters, written out."""
    couplings = np.zeros((len(parameters), 3, 3))
    couplings[:, PAIRS[0], PAIRS[1]] = couplings[:, PAIRS[1], PAIRS[0]] = parameters[:, 3:]
    eta = np.einsum("sk,mjk->msj", STATES, couplings) + parameters[:, None, :3]
    return -np.logaddexp(0, -2 * STATES * eta).sum(2) @ counts


def probabilities_of_all_graphs(counts, n_nodes=6):
    """Probabilities of edges by quadrature over the parameters of each of eight graphs."""
    precision = 16.0  # of a coupling in {0, 1} coding with deviation 1
    x, w = hermgauss(n_nodes)
    graphs, evidence = np.array(list(product((0, 1), repeat=3))), []
    for graph in graphs:
        own = np.append([0, 1, 2], 3 + np.flatnonzero(graph))
        ridge = np.where(own < 3, 1e-3, precision)

        def log_joint(z, own=own, ridge=ridge):
            whole = np.zeros((len(z), 6))
            whole[:, own] = z
            return log_pseudo_likelihood(whole, counts) - (ridge * z**2).sum(1) / 2

        mode = minimize(lambda z: -log_joint(z[None])[0], np.zeros(len(own)), method="BFGS").x
        step = 1e-3 * np.eye(len(own))
        hessian = np.array([
            log_joint(mode + step + e) - log_joint(mode + step - e)
            - log_joint(mode - step + e) + log_joint(mode - step - e) for e in step
        ]) / 4e-6  # fmt: skip
        factor = np.linalg.cholesky(np.linalg.inv(-hessian))
        nodes = np.array(list(product(x, repeat=len(own))))
        log_weights = np.log(list(product(w, repeat=len(own)))).sum(1) + (nodes**2).sum(1)
        values = log_joint(mode + np.sqrt(2) * nodes @ factor.T) + log_weights
        volume = np.log(factor.diagonal()).sum() + len(own) / 2 * np.log(2)
        evidence.append(
            logsumexp(values) + volume + graph.sum() / 2 * np.log(precision / (2 * np.pi))
        )
    p = np.exp(evidence - logsumexp(evidence))
    return p @ graphs


@pytest.mark.parametrize("name", COUNTS)
def test_probabilities_of_edges_are_those_of_all_graphs_whatever_the_penalty(name):
    counts = np.array(COUNTS[name])
    expected, found = probabilities_of_all_graphs(counts), []
    for l2 in (1.0, 0.1, 1e-3):
        machine = mf.FullyVisibleBoltzmannMachine(l2=l2).fit(rows_of(counts))
        found.append(machine.edge_inclusion(errors="naive").probability[PAIRS])
    np.testing.assert_allclose(found, [expected] * 3, atol=0.015 + 0.3 / counts.sum())
    np.testing.assert_allclose(found[1:], np.tile(found[0], (2, 1)), atol=1e-4)


@pytest.mark.parametrize(
    "kind",
    [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine, partial(mf.PottsMachine, n_states=3)],
)
def test_the_penalty_makes_no_difference(kind):
    X = (rows_of(COUNTS["ferromagnet"]) > 0).astype(int)
    both = {} if kind is mf.FullyVisibleBoltzmannMachine else {"l2_field": 0.01}
    found = [kind(l2=l2, **both).fit(X).edge_inclusion() for l2 in (1.0, 1e-3)]
    np.testing.assert_allclose(found[0].probability, found[1].probability, atol=1e-4)
    np.testing.assert_allclose(found[0].mean, found[1].mean, atol=1e-4)


@pytest.mark.parametrize("options", [{"l2": 1e-3}, {"l2": 0.1}, {"solver": "firth"}])
def test_independent_rare_items_have_no_significant_couplings(options):
    rng, p, omnibus, covered = np.random.default_rng(0), [], [], []
    for _ in range(40):
        tables = ((rng.random((n, 4)) < 0.06).astype(int) for n in (120, 360))
        machines = [mf.FullyVisibleBoltzmannMachine(**options).fit(X) for X in tables]
        p.append(machines[0].test_couplings("none").p_value)
        covered.append(np.prod(machines[0].confint()[0], axis=-1)[PAIRS] <= 0)
        omnibus.append(mf.compare_groups(*machines).omnibus.p_value)
    assert np.mean(np.less(p, 0.05)) < 0.1 and np.mean(covered) > 0.9
    assert np.mean(np.less(omnibus, 0.05)) < 0.15


def test_of_many_rows_a_small_penalty_is_none():
    X = rows_of(20 * np.array(COUNTS["ferromagnet"]))
    plain, found = (
        mf.FullyVisibleBoltzmannMachine(l2=l2).fit(X).edge_inclusion() for l2 in (0, 1e-3)
    )
    np.testing.assert_allclose(found.probability, plain.probability, atol=2e-3)
    np.testing.assert_allclose(found.mean, plain.mean, atol=2e-3)
