"""Inclusion of edges, against all graphs."""

import numpy as np
import pytest
from network_data import table
from normal_slabs import given_slabs
from potts_data import all_labels
from scipy.stats import norm

import fastmf as mf
from fastmf.estimators.networks.edges import EdgeInclusion

KINDS = mf.FullyVisibleBoltzmannMachine, mf.PottsMachine


def all_graphs(values, C, p=0.5, scale=1.0):
    """Inclusion probabilities by the sum over all graphs."""
    graphs = all_labels([2] * len(values))
    logs = given_slabs(values, C, scale**2 * graphs)[0] + graphs.sum(1) * np.log(p / (1 - p))
    return np.exp(logs - np.logaddexp.reduce(logs)) @ graphs


def mixed(sandwich, naive, n, min_ratio=0):
    """Variances of the sandwich, and correlations of both, weighted by couplings and rows."""
    p, ratio = len(sandwich), sandwich.diagonal() / naive.diagonal()
    sandwich = sandwich + np.diag(np.maximum(min_ratio - ratio, 0) * naive.diagonal())
    a, b = (C / np.sqrt(np.outer(C.diagonal(), C.diagonal())) for C in (sandwich, naive))
    errors = np.sqrt(sandwich.diagonal())
    return (n * a + p * b) / (n + p) * np.outer(errors, errors)


def naive_covariance(machine, n):
    """Inverse of the second derivatives of the log-pseudo-likelihood."""
    return np.linalg.inv(machine._objective.hessian(machine._parameters)) / n


@pytest.mark.parametrize("errors", ["sandwich", "naive"])
@pytest.mark.parametrize("seed, n", [(0, 60), (1, 200), (2, 1000)])
def test_probabilities_of_all_graphs(seed, n, errors):
    machine = mf.FullyVisibleBoltzmannMachine().fit(table(n, 5 if n > 60 else 4, seed))
    found = machine.edge_inclusion(0.3, 1.5, errors=errors)
    d = machine.n_features_in_
    naive = naive_covariance(machine, n)[d:, d:]
    C = naive if errors == "naive" else mixed(machine.covariance()[d:, d:], naive, n, 2)
    pairs = np.triu_indices(d, 1)
    expected = all_graphs(4 * machine.couplings_[pairs], 16 * C, 0.3, 1.5)
    np.testing.assert_allclose(found.probability[pairs], expected, atol=0.02)
    np.testing.assert_array_equal(found.probability, found.probability.T)
    some = (expected > 0.01) & (expected < 0.99)
    odds = np.log(expected[some] / (1 - expected[some])) - np.log(0.3 / 0.7)
    np.testing.assert_allclose(found.log_bayes_factor[pairs][some], odds, atol=0.1)


def test_names_of_values_make_no_difference():
    X = table(200, 4)
    numbers = mf.FullyVisibleBoltzmannMachine().fit(X).edge_inclusion()
    strings = mf.FullyVisibleBoltzmannMachine().fit(np.where(X, "yes", "no")).edge_inclusion()
    np.testing.assert_allclose(strings.probability, numbers.probability, atol=1e-8)
    swapped = mf.FullyVisibleBoltzmannMachine().fit(1 - X).edge_inclusion()
    np.testing.assert_allclose(swapped.probability, numbers.probability, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_sensitivity_has_other_scales(kind):
    machine = kind().fit(table(200, 4))
    found = machine.edge_inclusion(scale=0.8)
    for k, scale in enumerate((0.4, 0.8, 1.6)):
        other = machine.edge_inclusion(scale=scale)
        assert np.isclose(found.sensitivity.scale[k], scale)
        assert np.isclose(found.sensitivity.log_evidence[k], other.log_evidence)
        np.testing.assert_allclose(found.sensitivity.probability[k], other.probability, atol=1e-9)
    learned = machine.edge_inclusion(None, None)
    assert learned.log_evidence > found.log_evidence
    assert 0 < learned.inclusion_probability < 1 and learned.scale > 0


def test_intervals_are_quantiles_of_the_mixture():
    p = np.array([[0.0, 0.9], [0.9, 0.0]])
    slab_mean, slab_std = 0.5, 0.4
    mean = p * slab_mean
    std = np.sqrt(p * (slab_std**2 + slab_mean**2) - mean**2)
    found = EdgeInclusion(
        probability=p, log_bayes_factor=p, mean=mean, std=std, log_evidence=0.0,
        inclusion_probability=0.5, scale=1.0, slab="gaussian", converged=True, sensitivity=None,
        names=np.array(["a", "b"]),
    )  # fmt: skip
    low, high = found.interval(0.9)[0, 1]
    assert np.array_equal(found.interval()[0, 0], [0, 0])

    def below(x):
        return 0.9 * norm.cdf(x, slab_mean, slab_std) + 0.1 * (x >= 0)

    assert np.isclose(below(high), 0.95)
    assert low == 0 or np.isclose(below(low), 0.05)
    wide = found.interval(0.99)[0, 1]
    assert wide[0] < 0 and np.isclose(below(wide[0]), 0.005)
    with pytest.raises(ValueError, match="level"):
        found.interval(1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_arguments_are_named(kind):
    machine = kind().fit(table(200, 4))
    for options, name in (
        ({"inclusion_probability": 1.0}, "inclusion_probability"),
        ({"scale": 0.0}, "scale"),
        ({"slab": "laplace"}, "slab"),
        ({"errors": "robust"}, "errors"),
    ):
        with pytest.raises(ValueError, match=name):
            machine.edge_inclusion(**options)


def test_fewer_rows_than_couplings():
    """The sandwich is singular; with the correlations of both there is a posterior."""
    found = mf.FullyVisibleBoltzmannMachine(l2=0.1).fit(table(12, 8)).edge_inclusion()
    assert found.converged and np.isfinite(found.mean).all()


def test_nodes_of_many_couplings(monkeypatch):
    """Couplings of each feature together: with their covariances, and the mean at both ends."""
    machine = mf.FullyVisibleBoltzmannMachine().fit(table(500, 5))
    whole = machine.edge_inclusion()
    monkeypatch.setattr("fastmf.estimators.networks.edges.MAX_JOINT", 3)
    found, n = machine.edge_inclusion(), 500
    covariance, naive = machine.covariance()[5:, 5:], naive_covariance(machine, n)[5:, 5:]
    pairs = np.triu_indices(5, 1)
    odds = np.zeros((5, 5))
    for k in range(5):
        own = np.flatnonzero((pairs[0] == k) | (pairs[1] == k))
        C = 16 * mixed(covariance[np.ix_(own, own)], naive[np.ix_(own, own)], n)
        p = np.clip(all_graphs(4 * machine.couplings_[pairs][own], C), 1e-12, 1 - 1e-12)
        odds[k, np.delete(np.arange(5), k)] = np.log(p) - np.log1p(-p)
    expected = 1 / (1 + np.exp(-(odds + odds.T) / 2))
    np.testing.assert_allclose(found.probability[pairs], expected[pairs], atol=0.02)
    assert abs(found.probability - whole.probability).max() < 0.2
    assert found.sensitivity.probability.shape == (3, 5, 5)
    strength = machine.strength()
    monkeypatch.undo()
    np.testing.assert_allclose(strength.value, machine.strength().value)


def test_a_machine_without_couplings_has_no_edges():
    machine = mf.FullyVisibleBoltzmannMachine(graph=np.zeros((4, 4))).fit(table(200, 4))
    with pytest.raises(ValueError, match="no couplings"):
        machine.edge_inclusion()


@pytest.mark.slow
@pytest.mark.parametrize("l2", [0.02, 0.1])
def test_of_few_rows_likely_edges_are_as_frequent_as_said(l2):
    """Tables of 50 rows of 6 items, of machines drawn from the prior: 0.97 was true in 0.73."""
    states, said, true = all_labels([2] * 6), [], []
    pairs = np.triu_indices(6, 1)
    for seed in range(80):
        rng = np.random.default_rng(seed)
        present, W = rng.random(15) < 0.5, np.zeros((6, 6))
        W[pairs] = np.where(present, rng.normal(size=15), 0)
        field = rng.normal(size=6) - (W + W.T).sum(1) / 2
        logs = ((states @ W) * states).sum(1) + states @ field
        p = np.exp(logs - logs.max())
        X = states[rng.choice(64, 50, p=p / p.sum())]
        if (X.std(0) == 0).any():
            continue
        found = mf.FullyVisibleBoltzmannMachine(l2=l2).fit(X).edge_inclusion()
        said.append(found.probability[pairs])
        true.append(present)
    said, true = np.concatenate(said), np.concatenate(true)
    likely = said > 0.75
    n, difference = likely.sum(), said[likely].mean() - true[likely].mean()
    assert n > 60 and abs(difference) < 2.5 * 0.4 / np.sqrt(n)
    assert np.mean((said - true) ** 2) < 0.24
