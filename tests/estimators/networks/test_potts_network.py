"""Edges of Potts machines, against all graphs and the binary machine."""

import itertools

import numpy as np
import pytest
from network_data import labels, table
from normal_slabs import given_slabs
from potts_data import all_labels

import fastmf as mf

SIZES = [2, 3, 3, 4]


def machine_of_states():
    return mf.PottsMachine(n_states=SIZES).fit(labels(SIZES, 400))


def contrasts(machine):
    """Log-odds ratios in an orthonormal basis of each pair of positions, with naive covariances."""
    sizes, d = machine.sizes_, len(machine.sizes_)
    starts = np.append(0, np.cumsum(sizes))
    u, v = np.nonzero(np.triu(np.repeat(np.arange(d), sizes)[:, None] < np.repeat(range(d), sizes)))
    place = {pair: k for k, pair in enumerate(zip(u, v, strict=True))}
    rows, groups = [], []
    for i, j in itertools.combinations(range(d), 2):
        bases = []
        for q in (sizes[i], sizes[j]):
            bases.append(np.linalg.svd(np.eye(q) - 1 / q)[0][:, : q - 1].T)
        groups.append([])
        for a, b in itertools.product(*bases):
            row = np.zeros(len(u))
            for s, t in itertools.product(range(sizes[i]), range(sizes[j])):
                row[place[starts[i] + s, starts[j] + t]] = a[s] * b[t]
            groups[-1].append(len(rows))
            rows.append(row)
    L, sandwich = np.array(rows), machine._godambe()
    n = sandwich.objective.n_fields
    return L @ sandwich.parameters[n:], L @ sandwich.naive_covariance()[n:, n:] @ L.T, groups


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_probabilities_of_all_graphs(scale):
    machine = machine_of_states()
    found = machine.edge_inclusion(0.3, scale, errors="naive")
    estimate, C, groups = contrasts(machine)
    graphs, slabs = all_labels([2] * len(groups)), np.zeros((2 ** len(groups), len(estimate)))
    for included, own in zip(graphs.T, groups, strict=True):
        slabs[:, own] = included[:, None] * (scale / 2) ** 2
    logs = given_slabs(estimate, C, slabs)[0] + graphs.sum(1) * np.log(0.3 / 0.7)
    evidence = np.logaddexp.reduce(logs)
    expected = np.exp(logs - evidence) @ graphs
    np.testing.assert_allclose(found.probability[np.triu_indices(4, 1)], expected, atol=0.02)
    np.testing.assert_array_equal(found.probability, found.probability.T)
    assert found.log_evidence == pytest.approx(evidence + 6 * np.log(0.7), abs=0.05)
    assert found.probability[0, 1] > 0.99


@pytest.mark.parametrize("options", [
    {}, {"scale": 0.7, "errors": "naive"}, {"scale": None}, {"slab": "cauchy"},
    {"slab": "cauchy", "scale": 0.4, "errors": "naive"},
])  # fmt: skip
def test_positions_of_two_states_are_binary_units(options):
    X = table(400, 3)
    binary = mf.FullyVisibleBoltzmannMachine(tol=1e-8).fit(X).edge_inclusion(**options)
    found = mf.PottsMachine(tol=1e-10).fit(X).edge_inclusion(**options)
    np.testing.assert_allclose(found.probability, binary.probability, atol=0.02)
    close = 0.03 if "slab" in options else 0.02
    np.testing.assert_allclose(4 * found.mean[:, 1, :, 1], binary.mean, atol=close)
    if "slab" not in options:
        assert found.log_evidence - binary.log_evidence == pytest.approx(3 * np.log(2), abs=0.05)
    assert found.scale == pytest.approx(binary.scale, rel=0.02)
    assert found.slab == options.get("slab", "gaussian")


@pytest.mark.parametrize("errors, l2", [("sandwich", 0.0), ("naive", 0.0), ("naive", 0.02)])
def test_names_of_states_make_no_difference(errors, l2):
    scale = 0.94  # where the penalty's share hardly lets it be removed
    X = labels([3] * 4, 200, 21, 0.3)
    others = np.array(list("cab"))[X], np.where(np.arange(4) == 1, 2 - X, X)
    machine = mf.PottsMachine(tol=1e-9, l2=l2).fit(X)
    found = machine.edge_inclusion(errors=errors, scale=scale)
    off = ~np.eye(4, dtype=bool)
    for other in others:
        again = mf.PottsMachine(tol=1e-9, l2=l2).fit(other)
        odds = again.edge_inclusion(errors=errors, scale=scale).log_bayes_factor
        np.testing.assert_allclose(odds[off], found.log_bayes_factor[off], atol=1e-5)
        halves = [mf.PottsMachine(tol=1e-9, l2=l2).fit(part) for part in (other[:100], other[100:])]
        compared = mf.compare_groups(*halves, errors=errors)
        parts = [mf.PottsMachine(tol=1e-9, l2=l2).fit(part) for part in (X[:100], X[100:])]
        expected = mf.compare_groups(*parts, errors=errors)
        np.testing.assert_allclose(compared.p_value, expected.p_value, atol=1e-5)


def test_what_there_is_not():
    found, ridge = machine_of_states().edge_inclusion(), {"l2": 0.1, "l2_field": 0.1}
    with pytest.raises(ValueError, match="symmetric"):
        mf.PottsMachine(solver="asymmetric", **ridge).fit(labels(SIZES, 400)).edge_inclusion()
    assert repr(found).startswith("EdgeInclusion(")
    with pytest.raises(ValueError, match="single couplings"):
        found.interval()


@pytest.mark.slow
def test_cauchy_slabs_of_all_graphs():
    """Three positions: the sum over graphs, and over the variances of coupled pairs."""
    X = labels(SIZES, 400)[:, 1:]
    machine = mf.PottsMachine(n_states=[3, 3, 4]).fit(X)
    found = machine.edge_inclusion(0.3, 0.8, slab="cauchy", errors="naive")
    estimate, C, groups = contrasts(machine)
    # 1 / omega is the square of a standard normal variable.
    u = np.linspace(-6, 16, 45)
    log_weights = -(u + np.exp(-u)) / 2
    log_weights -= np.logaddexp.reduce(log_weights)
    graphs, chances = all_labels([2] * 3), []
    for graph in graphs:
        points = all_labels([45 if included else 1 for included in graph])
        slabs = np.zeros((len(points), len(estimate)))
        for included, own, k in zip(graph, groups, points.T, strict=True):
            slabs[:, own] = included * 0.16 * np.exp(u[k])[:, None]
        values = given_slabs(estimate, C, slabs)[0] + log_weights[points] @ graph
        chances.append(np.logaddexp.reduce(values) + sum(graph) * np.log(0.3 / 0.7))
    chances = np.exp(np.array(chances) - np.logaddexp.reduce(chances))
    expected = chances @ graphs
    np.testing.assert_allclose(found.probability[np.triu_indices(3, 1)], expected, atol=0.02)
    assert 0.002 < expected.min() < 0.5
