"""Converters, with stand-ins of the other packages' classes and, where installed, with these."""

import itertools
import math
import sys
import types

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.convert import from_pgmpy, to_pgmpy


# --- stand-ins: the parts of their interfaces that are used ---------------------------------------
class DiscreteFactor:
    """A table over variables, as pgmpy keeps it."""

    def __init__(self, variables, cardinality, values, state_names=None):
        self.variables = list(variables)
        self.cardinality = np.array(cardinality, int)
        self.values = np.array(values, float).reshape(tuple(cardinality))
        self.state_names = state_names or {
            v: list(range(q)) for v, q in zip(variables, cardinality, strict=True)
        }


class DiscreteMarkovNetwork:
    """Nodes, edges and factors, as pgmpy keeps them."""

    def __init__(self, edges=()):
        self._nodes, self._edges, self.factors = {}, list(edges), []
        self.add_nodes_from(itertools.chain.from_iterable(edges))

    def nodes(self):
        return list(self._nodes)

    def add_nodes_from(self, names):
        self._nodes.update(dict.fromkeys(names))

    def add_edges_from(self, edges):
        self._edges += list(edges)

    def add_factors(self, *factors):
        assert all(variable in self._nodes for f in factors for variable in f.variables)
        self.factors += factors

    def get_factors(self):
        return self.factors


def module(name, **members):
    made = types.ModuleType(name)
    vars(made).update(members)
    return made


STAND_INS = {
    "pgmpy": module("pgmpy"),
    "pgmpy.models": module("pgmpy.models", DiscreteMarkovNetwork=DiscreteMarkovNetwork),
    "pgmpy.factors": module("pgmpy.factors"),
    "pgmpy.factors.discrete": module("pgmpy.factors.discrete", DiscreteFactor=DiscreteFactor),
}


@pytest.fixture(params=["stand-ins", "installed"])
def packages(request, monkeypatch):
    """The modules of the other packages, by name."""
    if request.param == "stand-ins":
        for name, stand_in in STAND_INS.items():
            monkeypatch.setitem(sys.modules, name, stand_in)
        return STAND_INS

    class Installed(dict):
        def __missing__(self, name):
            return pytest.importorskip(name, exc_type=ImportError)

    return Installed()


def random_machine(kind, n=5, seed=0):
    rng = np.random.default_rng(seed)
    matrix = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.6), 1)
    if kind == "categorical":
        sizes = [2, 3, 2]
        matrix = np.triu(rng.normal(size=(7, 7)), 1)
        for a, b in ((0, 2), (2, 5), (5, 7)):
            matrix[a:b, a:b] = 0
        matrix[0, 3] = -np.inf
        prior = mf.Categorical([rng.normal(size=q) for q in sizes])
    else:
        prior = {"ising": mf.Ising, "bernoulli": mf.Bernoulli}[kind](rng.normal(size=n))
    return mf.BoltzmannMachine(csr_array(matrix + matrix.T), prior)


def assert_same(found, expected, rtol=1e-12):
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(
        csr_array(found.couplings).toarray(), csr_array(expected.couplings).toarray(), rtol=rtol,
        atol=1e-15,
    )  # fmt: skip
    np.testing.assert_allclose(found.prior.field, expected.prior.field, rtol=rtol, atol=1e-15)


# --- pgmpy ----------------------------------------------------------------------------------------


def test_networks_and_back(packages):
    packages["pgmpy.models"]
    machine = random_machine("categorical")
    names, states = ["x", "y", "z"], [["no", "yes"], ["low", "mid", "high"], ["off", "on"]]
    network = to_pgmpy(machine, names, states)
    found = from_pgmpy(network)
    assert found.names == names
    assert found.states == states
    assert_same(found.model, machine)
    if hasattr(network, "get_partition_function"):
        expected = network.get_partition_function()
        assert mf.exact(machine).log_partition == pytest.approx(math.log(expected))


def test_a_network_against_the_product_of_its_factors(packages):
    factor = packages["pgmpy.factors.discrete"].DiscreteFactor
    network = packages["pgmpy.models"].DiscreteMarkovNetwork([("a", "b"), ("b", "c")])
    rng = np.random.default_rng(1)
    first, second, third = rng.random((3, 2)), rng.random((2, 2)), rng.random(3)
    second[0, 1] = 0
    # The second factor lists the states of b the other way round.
    network.add_factors(
        factor(["b", "a"], [3, 2], first, {"b": ["p", "q", "r"], "a": [0, 1]}),
        factor(["b"], [3], third[::-1], {"b": ["r", "q", "p"]}),
        factor(["c", "b"], [2, 3], np.hstack([second, second[:, :1]]),
               {"c": [0, 1], "b": ["q", "r", "p"]}),
    )  # fmt: skip
    model, names, states, log_factor = from_pgmpy(network)
    assert (names, log_factor) == (["b", "a", "c"], 0)
    assert states == [["p", "q", "r"], [0, 1], [0, 1]]
    rows = np.hstack([second, second[:, :1]])
    for b, a, c in itertools.product(range(3), range(2), range(2)):
        # p, q, r are columns 2, 0, 1 of the third factor.
        weight = first[b, a] * third[b] * rows[c, (2, 0, 1)[b]]
        with np.errstate(divide="ignore"):
            assert -model.energy([b, a, c]) == pytest.approx(np.log(weight), rel=1e-12)


def test_a_bayesian_network():
    tables = [
        DiscreteFactor(["a"], [2], [0.2, 0.8]),
        DiscreteFactor(["b", "a"], [2, 2], [0.9, 0.3, 0.1, 0.7]),
    ]
    cpds = [types.SimpleNamespace(to_factor=lambda table=table: table) for table in tables]
    found = mf.exact(from_pgmpy(types.SimpleNamespace(get_cpds=lambda: cpds)).model)
    assert found.log_partition == pytest.approx(0, abs=1e-14)
    np.testing.assert_allclose(found.mean, [0.2, 0.8, 0.42, 0.58], atol=1e-14)


def test_a_variable_with_one_state(packages):
    factor = packages["pgmpy.factors.discrete"].DiscreteFactor
    network = packages["pgmpy.models"].DiscreteMarkovNetwork([("a", "b")])
    network.add_factors(factor(["a", "b"], [1, 2], [1.0, 3.0]))
    model, _, states, _ = from_pgmpy(network)
    assert states == [[0, None], [0, 1]]
    assert mf.exact(model).log_partition == pytest.approx(math.log(4))


def test_factors_that_would_overflow(packages):
    packages["pgmpy.models"]
    machine = mf.BoltzmannMachine([[0.0, 900.0], [900.0, 0.0]], mf.Bernoulli([0.0, -900.0]))
    network = to_pgmpy(machine)
    assert all(np.isfinite(f.values).all() for f in network.get_factors())
    found, expected = mf.exact(from_pgmpy(network).model), mf.exact(machine)
    assert found.log_partition == pytest.approx(expected.log_partition)
    np.testing.assert_allclose(found.mean[1::2], expected.mean, atol=1e-12)


def test_states_are_the_same_if_their_names_are_equal():
    network = DiscreteMarkovNetwork([("a", "b")])
    network.add_factors(
        DiscreteFactor("a", [2], [1, 3], {"a": [0, 1]}),
        DiscreteFactor("ab", [2, 2], [5, 1, 1, 2], {"a": [np.int64(1), 0.0], "b": [0, 1]}),
    )
    result = from_pgmpy(network)  # b: 3 (5, 1) + 1 (1, 2)
    np.testing.assert_allclose(mf.exact(result.model).mean[2:], np.array([16, 5]) / 21)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([], "a factor for each variable"),
        ([DiscreteFactor("ab", [2, 2], [1, 1, -1, 1])], "entries at least 0"),
        ([DiscreteFactor("ab", [2, 2], [1, 1, np.nan, 1])], "entries at least 0"),
        ([DiscreteFactor("ab", [2, 2], np.zeros(4))], "one of them positive"),
        ([DiscreteFactor("a", [2], [1, 1]), DiscreteFactor("a", [3], [1, 1, 1])], "states of 'a'"),
        ([DiscreteFactor("a", [2], [1, 0]), DiscreteFactor("a", [2], [0, 1])], "no state of"),
        ([DiscreteFactor("a", [2], [1, 2], {"a": [0, False]})], "states of 'a' must differ"),
    ],
)
def test_networks_that_are_refused(factors, message):
    network = DiscreteMarkovNetwork()
    network.add_nodes_from("abc"[:1])
    network.factors = factors
    with pytest.raises(ValueError, match=message):
        from_pgmpy(network)
    with pytest.raises(TypeError, match="get_factors"):
        from_pgmpy(factors)


def test_names_and_states_that_do_not_fit(packages):
    packages["pgmpy.models"]
    machine = random_machine("categorical")
    with pytest.raises(ValueError, match="names must be 3 different ones"):
        to_pgmpy(machine, ["a", "b"])
    with pytest.raises(ValueError, match="names must be 3 different ones"):
        to_pgmpy(machine, ["a", "b", "b"])
    with pytest.raises(ValueError, match="states must be"):
        to_pgmpy(machine, states=[[0, 1], [0, 1], [0, 1]])
    with pytest.raises(ValueError, match="states must be"):
        to_pgmpy(machine, states=[[0, 0], [0, 1, 2], [0, 1]])


# --- all ------------------------------------------------------------------------------------------


def test_models_that_are_refused():
    with pytest.raises(TypeError, match="must be a BoltzmannMachine"):
        to_pgmpy(mf.RBM([[1.0]], mf.Ising([0.0]), mf.Ising([0.0])))
    with pytest.raises(ValueError, match="units"):
        to_pgmpy(mf.BoltzmannMachine([[0.0]], mf.Gaussian([0.0], [1.0])))


def test_without_pgmpy_the_error_says_what_to_install(monkeypatch):
    for name in ("pgmpy", "pgmpy.models"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="needs pgmpy: pip install pgmpy"):
        to_pgmpy(random_machine("ising"))
