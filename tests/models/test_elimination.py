"""`exact` by elimination, against sums over all states one at a time."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from graph_models import Graph, cyclic, forests, grid_couplings
from own_priors import Levels, ThreeLevels
from scipy.sparse import block_diag, coo_array, csr_array, diags_array

import fastmf as mf
from fastmf.models._elimination import elimination_plan, sum_over_states
from fastmf.models._graph_sums import reduction_of, sum_in_rounds
from fastmf.models._state_tables import Tables

GRAPHS = [
    pytest.param(Graph(edges, n, strength, forbidden, seed), id=f"{name}, {strength}")
    for seed, (name, edges, n) in enumerate((*forests(), *cyclic()))
    for strength, forbidden in ((0.5, 0.0), (3.0, 0.2), (10.0, 0.2))
]


def assert_solved(graph, found, field=0.0, clamp=None):
    log_partition, mean, pairs, top = graph.solve(field, clamp)
    assert found.log_partition == pytest.approx(log_partition, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(found.mean, mean, atol=1e-12)
    np.testing.assert_allclose(found.var, mean * (1 - mean), atol=1e-12)
    pairwise = csr_array(found.pairwise).toarray()
    for (i, j), table in pairs.items():
        np.testing.assert_allclose(pairwise[graph.block(i), graph.block(j)], table, atol=1e-12)
    if found.mode is not None:
        exponent = field @ graph.machine().prior.one_hot(found.mode) if np.ndim(field) else 0.0
        assert exponent - graph.machine().energy(found.mode) == pytest.approx(top, rel=1e-12)


@pytest.mark.parametrize("graph", GRAPHS)
def test_small_graphs(graph):
    machine = graph.machine()
    found = mf.exact(machine, mode=True)
    assert_solved(graph, found)
    assert_solved(graph, mf.exact(graph.machine(sparse=False)))
    alone = mf.exact(machine, averages=False)
    assert alone.log_partition == found.log_partition
    assert alone[1:] == (None, None, None, None)


@pytest.mark.parametrize("graph", GRAPHS[::2])
def test_fields_and_clamped_units(graph):
    """With their first states there is always a state of all units."""
    machine = graph.machine()
    field = np.random.default_rng(0).normal(size=graph.sizes.sum())
    some = np.where(np.arange(len(graph.sizes)) % 3 == 2, 0, -1)
    for clamp in (some, 0 * some):
        assert_solved(graph, mf.exact(machine, field=field, clamp=clamp, mode=True), field, clamp)


def machine_of(fields, couplings, *, dense=False, dtype=float):
    sizes = list(map(len, fields))
    first = np.cumsum(sizes) - sizes
    matrix = np.zeros((sum(sizes), sum(sizes)), dtype)
    for (i, j), table in couplings.items():
        rows, columns = (slice(first[k], first[k] + sizes[k]) for k in (i, j))
        matrix[rows, columns], matrix[columns, rows] = table, table.T
    prior = mf.Categorical([field.astype(dtype) for field in fields])
    return mf.BoltzmannMachine(matrix if dense else csr_array(matrix), prior)


def test_mixed_kinds_of_units():
    rng = np.random.default_rng(5)
    prior = mf.Concatenated(
        mf.Bernoulli(rng.normal(size=2)),
        mf.Categorical([rng.normal(size=3), rng.normal(size=2)]),
        mf.Ising(rng.normal(size=2)),
        mf.Binomial(rng.normal(size=1), 3),
    )
    matrix = np.triu(rng.normal(size=(10, 10)) * (rng.random((10, 10)) < 0.6), 1)
    matrix[2:5, 2:5] = matrix[5:7, 5:7] = 0
    machine = mf.BoltzmannMachine(csr_array(matrix + matrix.T), prior)
    values = [[(0.0,), (1.0,)]] * 2 + [list(map(tuple, np.eye(3))), list(map(tuple, np.eye(2)))]
    values += [[(-1.0,), (1.0,)]] * 2 + [[(float(k),) for k in range(4)]]
    x = np.array([np.concatenate(state) for state in itertools.product(*values)])
    weights = -machine.energy(x)
    log_partition = weights.max() + math.log(np.exp(weights - weights.max()).sum())
    p = np.exp(weights - log_partition)
    found = mf.exact(machine, mode=True)
    assert found.log_partition == pytest.approx(log_partition, rel=1e-12)
    np.testing.assert_allclose(found.mean, p @ x, atol=1e-12)
    np.testing.assert_allclose(found.var, p @ x**2 - (p @ x) ** 2, atol=1e-12)
    pairwise = x.T @ (p[:, None] * x)
    stored = (matrix + matrix.T != 0) | np.eye(10, dtype=bool)
    np.testing.assert_allclose(found.pairwise.toarray()[stored], pairwise[stored], atol=1e-12)
    assert -machine.energy(found.mode) == pytest.approx(weights.max(), rel=1e-12)
    best = mf.most_probable(machine)
    np.testing.assert_array_equal(found.mode, best.assignment)


def test_strong_couplings_and_float32():
    # Weights of e^1000 would overflow; a frustrated ring of five has ten best states.
    n, strength = 5, 1000.0
    fields, ring = [np.zeros(2)] * n, strength * np.array([[0.0, 1.0], [1.0, 0.0]])
    couplings = {(min(k, (k + 1) % n), max(k, (k + 1) % n)): ring for k in range(n)}
    found = mf.exact(machine_of(fields, couplings))
    assert found.log_partition == pytest.approx(4 * strength + math.log(10), rel=1e-14)
    np.testing.assert_allclose(found.mean, 0.5, atol=1e-12)
    single = mf.exact(machine_of(fields, couplings, dtype=np.float32))
    assert single.log_partition == pytest.approx(4 * strength + math.log(10), rel=1e-14)


def test_ising_torus_against_kaufman():
    # Exact partition function of the m x n torus (Kaufman 1949), by 2n eigenvalues of a row.
    n, K = 8, 0.4
    torus = grid_couplings(n, K, torus=True)
    found = mf.exact(mf.BoltzmannMachine(torus, mf.Ising(np.zeros(n * n))))
    c = math.cosh(2 * K) ** 2 / math.sinh(2 * K)
    gamma = [math.acosh(c - math.cos(math.pi * r / n)) for r in range(1, 2 * n)]
    gamma = [2 * K + math.log(math.tanh(K)), *gamma]
    odd, even = gamma[1::2], gamma[0::2]
    terms = [
        math.prod(2 * function(n * g / 2) for g in part)
        for part in (odd, even)
        for function in (math.cosh, math.sinh)
    ]
    log_partition = (n * n / 2) * math.log(2 * math.sinh(2 * K)) + math.log(sum(terms) / 2)
    assert found.log_partition == pytest.approx(log_partition, rel=1e-12)


def test_layers_that_cannot_be_enumerated():
    # 22 independent pairs.
    weights = np.diag(np.linspace(-1, 1, 22))
    rbm = mf.RBM(weights, mf.Ising(np.zeros(22)), mf.Ising(np.zeros(22)))
    found = mf.exact(rbm)
    strengths = weights.diagonal()
    assert found.log_partition == pytest.approx(np.log(4 * np.cosh(strengths)).sum(), rel=1e-13)
    np.testing.assert_allclose(found.pairwise.diagonal(), np.tanh(strengths), atol=1e-13)
    assert [mean.shape for mean in found.mean] == [(22,), (22,)]
    dbm = mf.DBM((weights, np.eye(22)), [mf.Ising(np.zeros(22))] * 3)
    found = mf.exact(dbm)
    expected = np.log(8 * np.cosh(strengths) * np.cosh(1)).sum()
    assert found.log_partition == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(found.pairwise[1].diagonal(), np.tanh(1), atol=1e-13)


# --- sizes ----------------------------------------------------------------------------------------


def network(rng, n, n_parents, window):
    """Parents and tables of binary variables in causal order."""
    for i in range(n):
        low = max(0, i - window)
        k = min(int(rng.integers(1, n_parents + 1)), i - low)
        parents = sorted(rng.choice(np.arange(low, i), k, replace=False).tolist()) if k else []
        yield [*parents, i], rng.dirichlet(np.ones(2), size=(2,) * k)


@pytest.mark.parametrize("seed", range(3))
def test_tables_of_many_variables_as_units_with_many_states(seed):
    # A unit has a state for each row of a table, tied to its variables by couplings of -inf. Fill
    # that counts units, not states, makes tables of 2^35 entries.
    n, tables = 30, list(network(np.random.default_rng(seed), 30, 4, 8))
    fields, couplings = [np.zeros(2) for _ in range(n)], {}
    for scope, table in tables:
        states = np.indices(table.shape).reshape(len(scope), -1)
        fields.append(np.log(table.ravel()))
        for i, values in zip(scope, states, strict=True):
            couplings[i, len(fields) - 1] = np.where(np.arange(2)[:, None] == values, 0.0, -np.inf)
    machine = machine_of(fields, couplings)
    found = mf.exact(machine, max_bytes=2**24)
    assert found.log_partition == pytest.approx(0, abs=1e-10)
    np.testing.assert_allclose(found.mean[:2], tables[0][1], atol=1e-12)
    beliefs = mf.belief_propagation(machine, algorithm="auto")
    assert beliefs.method == "elimination"
    np.testing.assert_allclose(beliefs.mean, found.mean, atol=1e-12)


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_long_grid_by_its_shorter_side(shuffled):
    # Transfer matrices of the rows give log Z.
    n, m, K = 40, 9, 0.5
    rng = np.random.default_rng(0)
    field = 0.3 * rng.normal(size=(n, m))
    states = np.array(list(itertools.product((-1.0, 1.0), repeat=m)))
    inner = K * (states[:, :-1] * states[:, 1:]).sum(1)
    transfer, log_z = np.exp(K * states @ states.T), states @ field[0] + inner
    for row in field[1:]:
        top = log_z.max()
        log_z = states @ row + inner + top + np.log(transfer @ np.exp(log_z - top))
    log_z = np.logaddexp.reduce(log_z)
    site = np.arange(n * m).reshape(n, m)
    edges = [(site[:, :-1], site[:, 1:]), (site[:-1], site[1:])]
    rows, columns = (np.concatenate([part[k].ravel() for part in edges]) for k in (0, 1))
    number = rng.permutation(n * m) if shuffled else np.arange(n * m)
    couplings = csr_array((np.full(len(rows), K), (number[rows], number[columns])), (n * m, n * m))
    moved = np.empty(n * m)
    moved[number] = field.ravel()
    machine = mf.BoltzmannMachine(couplings + couplings.T, mf.Ising(moved))
    found = mf.exact(machine, averages=False, max_bytes=2**19)
    assert found.log_partition == pytest.approx(log_z, rel=1e-12)


def test_tables_fit_into_the_bytes_that_are_announced():
    n = 12
    grid = grid_couplings(n, 0.3)
    machine = mf.BoltzmannMachine(grid, mf.Ising(np.zeros(n * n)))
    plan = elimination_plan(np.full(n * n, 2), np.argwhere(np.triu(grid.toarray())))
    everything = mf.exact(machine)
    most = plan.n_bytes(averages=True)
    cases = [
        (plan.n_bytes(averages=False), {"averages": False}),
        (most, {}),
        (most, {"averages": False, "mode": True}),
    ]
    for limit, options in cases:
        tracemalloc.start()
        found = mf.exact(machine, max_bytes=limit, **options)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert limit / 4 < peak < limit + 2**20
        assert found.log_partition == everything.log_partition
        if not options:
            np.testing.assert_array_equal(found.mean, everything.mean)
            np.testing.assert_array_equal(found.pairwise.data, everything.pairwise.data)
        elif "mode" in options:  # all units alike
            assert abs(found.mode.sum()) == n * n
    with pytest.raises(ValueError, match="cannot eliminate"):
        mf.exact(machine, max_bytes=most - 1)


def test_models_that_are_too_large_are_refused_before_tables_are_made():
    machine = mf.BoltzmannMachine(np.ones((30, 30)) - np.eye(30), mf.Ising(np.zeros(30)))
    message = r"width of 29.*2\^30\.0 entries.*belief_propagation.*log_partition_bounds"
    with pytest.raises(ValueError, match=message):
        mf.exact(machine)
    small = mf.BoltzmannMachine(np.ones((9, 9)) - np.eye(9), mf.Ising(np.zeros(9)))
    with pytest.raises(ValueError, match="max_bytes=1e\\+03"):
        mf.exact(small, max_bytes=1000)
    dense = csr_array(np.ones((300, 300)) - np.eye(300))
    with pytest.raises(ValueError, match="width of at least 60"):
        mf.exact(mf.BoltzmannMachine(dense, mf.Ising(np.zeros(300))))
    rbm = mf.RBM(np.ones((70, 70)), mf.Ising(np.zeros(70)), mf.Ising(np.zeros(70)))
    with pytest.raises(ValueError, match=r"a layer of at most 20.*width of at least 60"):
        mf.exact(rbm)


# --- bad input ------------------------------------------------------------------------------------


def test_models_without_a_possible_state():
    # Three units of two states that must all differ.
    unequal = np.where(np.eye(2), -np.inf, 0.0)
    couplings = {(0, 1): unequal, (1, 2): unequal, (0, 2): unequal}
    machine = machine_of([np.zeros(2)] * 3, couplings)
    for clamp in (None, [0, -1, -1], [0, 0, -1], [0, 1, 0]):
        for averages in (False, True):
            with pytest.raises(ValueError, match="no states that are possible"):
                mf.exact(machine, clamp=clamp, averages=averages)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"clamp": [2.0, np.nan, np.nan]}, ValueError, "support.*unit 0"),
        ({"clamp": [np.nan] * 2}, ValueError, r"clamp must have shape \(3,\)"),
        ({"clamp": [[1.0, 1.0, 1.0]]}, ValueError, r"clamp must have shape \(3,\)"),
        ({"clamp": [True, False, False]}, ValueError, "got booleans"),
        ({"field": [1.0, np.inf, 0.0]}, ValueError, "field must be finite"),
        ({"field": [1.0]}, ValueError, r"field must have shape \(3,\)"),
        ({"max_bytes": "1 GB"}, TypeError, "max_bytes must be a number"),
        ({"mode": 2}, TypeError, "mode must be True or False"),
    ],
)
def test_bad_options(options, error, message):
    machine = mf.BoltzmannMachine(np.ones((3, 3)) - np.eye(3), mf.Ising(np.zeros(3)))
    with pytest.raises(error, match=message):
        mf.exact(machine, **options)


@pytest.mark.parametrize("options", [{"field": [0.0]}, {"clamp": [1.0]}, {"mode": True}])
def test_options_that_layered_machines_do_not_have(options):
    rbm = mf.RBM([[1.0]], mf.Ising([0.0]), mf.Ising([0.0]))
    with pytest.raises(TypeError, match="needs a BoltzmannMachine of all units"):
        mf.exact(rbm, **options)


class Silent(Levels):
    support = (-1.0, 0.0, 1.0)


class Telling(ThreeLevels):
    support = (-1.0, 0.0, 1.0)


def test_priors_of_users():
    couplings, field = np.array([[0.0, 0.7], [0.7, 0.0]]), np.array([0.2, -0.4])
    values = list(itertools.product((-1, 0, 1), repeat=2))
    weights = [math.exp(0.7 * x * y + 0.2 * x - 0.4 * y) for x, y in values]
    found = mf.exact(mf.BoltzmannMachine(couplings, Telling(field)))
    assert found.log_partition == pytest.approx(math.log(sum(weights)), rel=1e-14)
    np.testing.assert_allclose(found.mean, weights @ np.array(values) / sum(weights), atol=1e-14)
    with pytest.raises(TypeError, match="log_prob"):
        mf.exact(mf.BoltzmannMachine(couplings, Silent(field)))


# --- narrow graphs --------------------------------------------------------------------------------


def sums(tables, **options):
    """Marginals in rounds, with the core one unit after the other, and the number of its units."""
    reduction = reduction_of(len(tables.sizes), tables.edges)
    plan = elimination_plan(tables.sizes[reduction.core], reduction.edges)
    result = sum_in_rounds(
        tables, reduction, lambda core: sum_over_states(core, plan, **options), **options
    )
    return result, len(reduction.core)


def narrow_graph(n, rng, share=0.8):
    """Edges of a random graph of width two at most: a part of those of a tree of triangles."""
    pairs = [(0, 1)]
    for unit in range(2, n):
        a, b = pairs[rng.integers(len(pairs))]
        pairs += [(a, unit), (b, unit)]
    number = rng.permutation(max(n, 2))
    pairs = [pair for pair in pairs if n > 1 and rng.random() < share]
    return np.sort(number[np.array(pairs, int).reshape(-1, 2)])


def tables_of(sizes, edges, rng):
    couplings = [3 * rng.normal(size=(sizes[i], sizes[j])) for i, j in edges]
    return Tables.of([2 * rng.normal(size=q) for q in sizes], edges, couplings)


def test_larger_graphs_against_elimination_unit_by_unit():
    for seed, n in ((0, 60), (1, 300), (2, 200)):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(2, 5, size=n)
        edges = narrow_graph(n, rng)
        if seed == 2:  # trees that hang from eight units, all of which are coupled
            core = itertools.combinations(range(8), 2)
            edges = np.array([*core, *((int(rng.integers(k)), k) for k in range(8, n))])
        tables = tables_of(sizes, edges, rng)
        plan = elimination_plan(sizes, tables.edges)
        (found, n_core), expected = sums(tables), sum_over_states(tables, plan)
        assert n_core == (0 if seed < 2 else 8)
        assert abs(found.log_partition - expected.log_partition) < 1e-9
        np.testing.assert_allclose(found.units, expected.units, atol=1e-11)
        np.testing.assert_allclose(found.pairs, expected.pairs, atol=1e-11)
        best, expected = sums(tables, maximum=True)[0], sum_over_states(tables, plan, maximum=True)
        np.testing.assert_array_equal(best.units, expected.units)
        np.testing.assert_array_equal(best.pairs, expected.pairs)


def test_a_long_chain_beside_a_dense_part():
    rng, n = np.random.default_rng(3), 4000
    J = np.triu(rng.normal(size=(9, 9)), 1)
    dense = mf.BoltzmannMachine(J + J.T, mf.Ising(rng.normal(size=9)))
    bonds = rng.normal(size=n)
    line = diags_array([bonds, bonds], offsets=[-1, 1])
    both = block_diag([csr_array(dense.couplings), line], format="csr")
    model = mf.BoltzmannMachine(both, mf.Ising(np.append(dense.prior.field, np.zeros(n + 1))))
    exact = mf.exact(dense)
    expected = exact.log_partition + np.log(2) + np.log(2 * np.cosh(bonds)).sum()
    found = mf.belief_propagation(model, algorithm="auto")
    assert found.method == "elimination" and found.reliable
    assert found.log_partition == pytest.approx(expected, rel=1e-12)
    assert abs(found.mean[:9] - exact.mean).max() < 1e-10
    (entry,) = mf.evaluation.log_partition_report(model)
    assert entry.log_partition == pytest.approx(expected, rel=1e-12)


def chain(couplings, field):
    J = diags_array([couplings, couplings], offsets=[-1, 1], format="csr")
    return mf.BoltzmannMachine(J, mf.Ising(field))


def test_long_chain_by_closed_form():
    n = 50_001
    couplings = np.random.default_rng(0).normal(size=n - 1)
    found = mf.exact(chain(couplings, np.zeros(n)), mode=True)
    expected = np.log(2) + np.log(2 * np.cosh(couplings)).sum()
    assert abs(found.log_partition - expected) < 1e-9 * n
    assert abs(found.mean).max() < 1e-9
    assert (found.mode[1:] * found.mode[:-1] == np.sign(couplings)).all()
    assert abs(found.pairwise.diagonal(1) - np.tanh(couplings)).max() < 1e-9


def test_star_with_clamped_and_single_valued_units():
    n, rng = 3001, np.random.default_rng(1)
    w, field = rng.normal(size=n - 1), rng.normal(size=n)
    hub, leaf = np.zeros(n - 1, int), np.arange(1, n)
    J = coo_array((np.r_[w, w], (np.r_[hub, leaf], np.r_[leaf, hub])), shape=(n, n)).tocsr()
    model = mf.BoltzmannMachine(J, mf.Bernoulli(field))
    for clamp in (None, np.where(np.arange(n) % 3 == 1, 1.0, np.nan)):
        free = np.ones(n - 1, bool) if clamp is None else np.isnan(clamp[1:])
        logs = []
        for x in (0.0, 1.0):
            tilt = w * x + field[1:]
            logs.append(x * field[0] + np.where(free, np.logaddexp(0, tilt), tilt).sum())
        found = mf.exact(model, clamp=clamp)
        assert abs(found.log_partition - np.logaddexp(*logs)) < 1e-8
        assert abs(found.mean[0] - 1 / (1 + np.exp(logs[0] - logs[1]))) < 1e-9
