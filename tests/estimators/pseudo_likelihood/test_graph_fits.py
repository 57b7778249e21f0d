"""Pseudo-likelihood with the couplings of a graph alone; see also `test_available_cases`."""

from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone

import fastmf as mf
from fastmf.estimators import FullyVisibleBoltzmannMachine, PottsMachine

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)]


def table(seed=0, n=600):
    rng = np.random.default_rng(seed)
    couplings = np.zeros((5, 5))
    for k, (i, j) in enumerate(EDGES):
        couplings[i, j] = couplings[j, i] = 0.5 - 0.2 * k
    model = mf.BoltzmannMachine(couplings, mf.Ising(0.2 * rng.normal(size=5)))
    return mf.evaluation.gibbs_chains(model, n, 1, n_warmup=30, rng=seed)["visible"][:, 0]


def test_pairs_that_are_no_edges_are_refused():
    machine = FullyVisibleBoltzmannMachine(graph=EDGES).fit(table(2, 300))
    couplings, _ = machine.standard_errors()
    assert couplings[0, 1] > 0 and couplings[0, 2] == 0
    tests = machine.test_couplings()
    assert len(tests.p_value) == 5 and tests.first.tolist() == machine.graph_[:, 0].tolist()
    assert 0 <= machine.likelihood_ratio_test([[0, 1]]).p_value < 0.01
    potts = PottsMachine(graph=EDGES).fit((table(2, 300) > 0).astype(int))
    assert len(potts.likelihood_ratio_test().weights) == len(EDGES)
    for ask in (
        machine.standard_errors, machine.likelihood_ratio_test, potts.likelihood_ratio_test
    ):  # fmt: skip
        with pytest.raises(ValueError, match="edges of the graph"):
            ask([[0, 2]])


def test_l1_and_names_of_columns():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(table(3), columns=list("abcde"))
    graph = [("a", "b"), ("b", "c"), ("e", "d")]
    machine = FullyVisibleBoltzmannMachine(graph=graph, l1=0.05).fit(X)
    assert machine.graph_.tolist() == [[0, 1], [1, 2], [3, 4]]
    assert not machine.couplings_[0, 3]
    assert clone(machine).graph == graph
    adjacent = pandas.DataFrame(np.zeros((5, 5), int), index=X.columns, columns=X.columns)
    for first, second in graph:
        adjacent.loc[first, second] = adjacent.loc[second, first] = 1
    again = FullyVisibleBoltzmannMachine(graph=adjacent, l1=0.05).fit(X)
    np.testing.assert_array_equal(again.couplings_, machine.couplings_)
    labels = X.replace(-1, 0).astype(int)
    for other in (machine, PottsMachine(l2=0.1)):
        other.set_params(graph=adjacent.iloc[::-1, ::-1])
        with pytest.raises(ValueError, match="graph must name the features in the order of X"):
            other.fit(labels)
        other.fit(labels.to_numpy())  # without names to compare with
        with pytest.raises(ValueError, match=r"take graph\.loc"):
            other.set_params(graph=adjacent.iloc[::-1]).fit(labels)


def test_separated_data_have_no_maximum():
    X = np.array([[1, 1, 1, -1, 1], [-1, -1, 1, 1, 1], [1, 1, -1, 1, -1]] * 4, float)
    with pytest.warns(UserWarning, match="no maximum exists: the data separate units"):
        machine = FullyVisibleBoltzmannMachine(graph=EDGES).fit(X)
    assert machine.existence_.exists is False


# --- several states -------------------------------------------------------------------------------

SIZES = (2, 3, 2, 4)
GRAPH = [(0, 1), (1, 3), (2, 3)]


@cache
def labels(seed=0, n=800):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.integers(q, size=n) for q in SIZES])
    x[:, 1] = np.where(rng.random(n) < 0.4, x[:, 0], x[:, 1])
    x[:, 3] = np.where(rng.random(n) < 0.4, x[:, 1], x[:, 3])
    return x


def potts_value(parameters, X, l2):
    starts = np.cumsum([0, *SIZES])
    field, rest = parameters[: starts[-1]], parameters[starts[-1] :]
    couplings = np.zeros((starts[-1], starts[-1]))
    for i, j in GRAPH:
        block, rest = np.split(rest, [SIZES[i] * SIZES[j]])
        block = block.reshape(SIZES[i], SIZES[j])
        couplings[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = block
        couplings[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = block.T
    one_hot = np.zeros((len(X), starts[-1]))
    np.put_along_axis(one_hot, X + starts[:-1], 1, 1)
    eta, total = one_hot @ couplings + field, 0.0
    for i in range(len(SIZES)):
        own = eta[:, starts[i] : starts[i + 1]]
        total += (own[np.arange(len(X)), X[:, i]] - np.logaddexp.reduce(own, axis=1)).mean()
    return total - l2 / 4 * (couplings**2).sum() - l2 / 2 * field @ field


@cache
def potts_maximum(l2):
    n = sum(SIZES) + sum(SIZES[i] * SIZES[j] for i, j in GRAPH)
    return minimize(lambda p: -potts_value(p, labels(), l2), np.zeros(n), tol=1e-10)


@pytest.mark.parametrize("solver", ["lbfgs", "newton"])
def test_a_markov_random_field_of_mixed_positions(solver):
    X, l2 = labels(), 0.02
    machine = PottsMachine(
        n_states=list(SIZES), graph=GRAPH, l2=l2, l2_field=l2, solver=solver, tol=1e-9
    ).fit(X)
    expected = potts_maximum(l2)
    starts = np.cumsum([0, *SIZES])
    blocks = [
        machine.couplings_[starts[i] : starts[i + 1], starts[j] : starts[j + 1]].ravel()
        for i, j in GRAPH
    ]
    found = np.concatenate([machine.field_, *blocks])
    assert potts_value(found, X, l2) > -expected.fun - 1e-9
    np.testing.assert_allclose(found, expected.x, atol=2e-4)
    position = np.repeat(np.arange(4), SIZES)
    adjacency = np.zeros((4, 4), bool)
    adjacency[tuple(np.transpose(GRAPH))] = True
    absent = ~(adjacency | adjacency.T)[position][:, position]
    assert not machine.couplings_[absent].any()
    assert machine.graph_.tolist() == [list(edge) for edge in GRAPH]


def test_existence_of_several_states():
    X = labels(1)
    assert PottsMachine(n_states=list(SIZES), graph=GRAPH).fit(X).existence_.exists
    never = X[~((X[:, 0] == 1) & (X[:, 2] == 1))]  # two states of positions that are not neighbours
    machine = PottsMachine(n_states=list(SIZES), graph=GRAPH).fit(never)
    assert machine.existence_.exists and machine.converged_
    met = X[~((X[:, 0] == 1) & (X[:, 1] == 2))]
    with pytest.warns(UserWarning, match="never meet"):
        machine = PottsMachine(n_states=list(SIZES), graph=GRAPH).fit(met)
    assert machine.existence_.units == (0, 1)


def test_errors_of_mixed_positions(tmp_path):
    X = labels()
    machine = PottsMachine(n_states=list(SIZES), graph=GRAPH, l2=0.1, solver="newton").fit(X)
    couplings, field = machine.standard_errors()
    n = int(np.sum(SIZES))
    assert couplings.shape == (n, n) and field.shape == (n,)
    assert np.array_equal(couplings > 0, machine.model_.couplings != 0) and (field > 0).all()
    machine.save(tmp_path / "machine.npz")
    loaded = PottsMachine.load(tmp_path / "machine.npz")
    assert np.allclose(loaded.standard_errors()[0], couplings)
    with pytest.raises(ValueError, match="solver='newton', with a small l2"):
        FullyVisibleBoltzmannMachine(graph=EDGES, solver="firth").fit(table())
