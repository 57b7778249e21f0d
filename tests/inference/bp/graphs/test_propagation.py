"""Belief propagation on graphs against enumeration."""

from functools import partial

import numpy as np
import pytest
from graph_models import Graph, cyclic, forests, grid_couplings
from scipy.integrate import quad
from scipy.sparse import csr_array

import fastmf as mf

STRENGTHS = (0.3, 0.0), (3.0, 0.0), (10.0, 0.0), (1.0, 0.25)


def name_alone(value):
    """Name of a test: that of the graph."""
    return value if isinstance(value, str) else ""


with_strengths = pytest.mark.parametrize("strength, forbidden", STRENGTHS)


@with_strengths
@pytest.mark.parametrize("name, edges, n", list(forests()), ids=name_alone)
def test_forests_are_exact(name, edges, n, strength, forbidden):
    graph = Graph(edges, n, strength, forbidden)
    log_partition, marginals, pairs, top = graph.solve()
    for sparse in (True, False):
        model = graph.machine(sparse)
        for found in (mf.belief_propagation(model, pairwise=True), mf.tree_reweighted(model)):
            assert found.converged and found.n_iter == 2
            assert abs(found.log_partition - log_partition) < 1e-10
            np.testing.assert_allclose(found.mean, marginals, atol=1e-12)
            np.testing.assert_allclose(found.var, marginals * (1 - marginals), atol=1e-12)
            for (i, j), table in pairs.items():
                np.testing.assert_allclose(found.table(i, j), table, atol=1e-12)
                np.testing.assert_allclose(found.table(j, i), table.T, atol=1e-12)
        decoded = mf.most_probable(model, search=False)
        assert abs(decoded.objective - top) < 1e-10
        assert abs(model.energy(decoded.assignment) + top) < 1e-10


@with_strengths
@pytest.mark.parametrize("name, edges, n", list(cyclic()), ids=name_alone)
def test_bounds_enclose_the_log_partition(name, edges, n, strength, forbidden):
    graph = Graph(edges, n, strength, forbidden)
    log_partition, _, _, top = graph.solve()
    model = graph.machine()
    assert mf.tree_reweighted(model).log_partition > log_partition - 1e-9
    few = mf.tree_reweighted(model, max_iter=3)
    assert few.log_partition > log_partition - 1e-9  # converged or not
    lower = mf.most_probable(model).score
    assert lower < log_partition and top - lower < 1e-9
    if not forbidden:
        mean = mf.belief_propagation(model).mean
        naive = mean @ (np.concatenate(graph.fields) - np.log(np.maximum(mean, 1e-300)))
        assert naive + mean @ model.couplings @ mean / 2 < log_partition


@pytest.mark.parametrize("name, edges, n", list(cyclic()), ids=name_alone)
def test_damped_and_undamped_messages_find_one_fixed_point(name, edges, n):
    graph = Graph(edges, n, 0.5)
    exact = graph.solve()
    found = [mf.belief_propagation(graph.machine(), damping=d, tol=1e-11) for d in (None, 0.5)]
    for other in found:
        assert other.converged and other.unique
        np.testing.assert_allclose(other.mean, found[0].mean, atol=1e-9)
        assert abs(other.log_partition - found[0].log_partition) < 1e-9
    assert abs(found[0].log_partition - exact[0]) < 0.05
    np.testing.assert_allclose(found[0].mean, exact[1], atol=0.05)


@pytest.mark.parametrize("units", [mf.Ising, mf.Bernoulli])
@pytest.mark.parametrize("strength", [0.5, 30.0, 300.0])
def test_two_valued_units_in_odds_and_in_logarithms(units, strength, monkeypatch):
    """Messages are odds, or logarithms where products of odds would be no numbers."""
    rng, n = np.random.default_rng(2), 7
    mask = np.triu(rng.random((n, n)) < 0.4, 1)
    upper = np.where(mask, rng.normal(size=(n, n)) * strength, 0)
    field = rng.normal(size=n) * strength / 3
    model = mf.BoltzmannMachine(upper + upper.T, units(field))
    options = {"tol": 1e-12, "pairwise": True, "max_iter": 300}
    found = [mf.belief_propagation(model, **options)]
    monkeypatch.setattr("fastmf.inference.bp.graphs.units.MAX_LOG_OF_PRODUCT", {np.dtype(float): 0})
    found.append(mf.belief_propagation(model, **options))
    assert all(np.isfinite(part.log_partition) for part in found)
    if strength > 1:
        return  # several fixed points: other rounding errors may lead elsewhere
    for name in ("mean", "var", "b", "log_partition", "pairwise"):
        odds, logs = (getattr(part, name) for part in found)
        np.testing.assert_allclose(odds, logs, atol=1e-9, err_msg=name)
    exact = mf.exact(model)
    assert abs(found[0].log_partition - exact.log_partition) < 0.1
    products = exact.pairwise[tuple(found[0].edges.T)]
    np.testing.assert_allclose(found[0].pairwise, products, atol=0.1)


@pytest.mark.parametrize("units", [mf.Ising, mf.Bernoulli])
@pytest.mark.parametrize("strength", [1.0, 20.0, 400.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_trees_of_two_valued_units_are_exact_at_any_strength(units, strength, dtype):
    rng, n = np.random.default_rng(3), 9
    couplings = np.zeros((n, n), dtype)
    for j in range(1, n):
        i = rng.integers(j)
        couplings[i, j] = couplings[j, i] = rng.normal() * strength
    model = mf.BoltzmannMachine(couplings, units(rng.normal(size=n).astype(dtype) * strength))
    exact = mf.exact(model)
    found = mf.belief_propagation(model, pairwise=True)
    close = 1e-12 if dtype is np.float64 else 1e-6
    assert found.mean.dtype == dtype
    np.testing.assert_allclose(found.mean, exact.mean, atol=close)
    np.testing.assert_allclose(found.pairwise, exact.pairwise[tuple(found.edges.T)], atol=close)
    np.testing.assert_allclose(found.log_partition, exact.log_partition, rtol=1e-12)


def test_rows_of_fields_and_clamps():
    graph = Graph([(0, 1), (1, 2), (2, 3), (1, 4)], 6, 2.0)
    rng = np.random.default_rng(0)
    field = rng.normal(size=(4, graph.sizes.sum()))
    clamp = np.full((4, 6), -1)
    clamp[1, 1], clamp[2, [0, 3, 5]], clamp[3] = 1, (0, 1, 1), graph.sizes - 1
    found = mf.belief_propagation(graph.machine(), field=field, clamp=clamp, pairwise=True)
    for k in range(4):
        log_partition, marginals, pairs, _ = graph.solve(field[k], clamp[k])
        assert abs(found.log_partition[k] - log_partition) < 1e-10
        np.testing.assert_allclose(found.mean[k], marginals, atol=1e-12)
        np.testing.assert_allclose(found.table(1, 2, row=k), pairs[1, 2], atol=1e-12)
        alone = mf.belief_propagation(graph.machine(), field=field[k], clamp=clamp[k])
        assert alone.log_partition == found.log_partition[k]
        np.testing.assert_array_equal(alone.mean, found.mean[k])


@pytest.mark.parametrize("units, low", [(mf.Ising, -1.0), (mf.Bernoulli, 0.0)])
def test_clamped_two_valued_units(units, low):
    rng, n = np.random.default_rng(4), 8
    couplings = np.zeros((n, n))
    for j in range(1, n):
        couplings[j // 2, j] = couplings[j, j // 2] = rng.normal()
    field = rng.normal(size=n)
    model = mf.BoltzmannMachine(couplings, units(field))
    clamp = np.full((3, n), np.nan)
    clamp[0, [0, 5]], clamp[1, 3], clamp[2] = (1.0, low), low, np.where(np.arange(n) % 2, 1, low)
    found = mf.belief_propagation(model, clamp=clamp, pairwise=True)
    states = np.array(np.meshgrid(*[[low, 1.0]] * n)).reshape(n, -1).T
    logs = -model.energy(states)
    for k in range(3):
        allowed = (np.isnan(clamp[k]) | (states == clamp[k])).all(1)
        top = logs[allowed].max()
        weights = np.exp(logs[allowed] - top)
        assert abs(found.log_partition[k] - top - np.log(weights.sum())) < 1e-10
        x, weights = states[allowed], weights / weights.sum()
        np.testing.assert_allclose(found.mean[k], weights @ x, atol=1e-12)
        products = (x.T * weights) @ x
        np.testing.assert_allclose(found.pairwise[k], products[tuple(found.edges.T)], atol=1e-12)
        held = ~np.isnan(clamp[k])
        assert (found.var[k][held] == 0).all()
    best = mf.most_probable(model, clamp=clamp)
    assert ((best.assignment == clamp) | np.isnan(clamp)).all()


def test_other_discrete_units():
    prior = mf.Binomial(np.array([0.2, -0.3, 0.1]), np.array([2, 3, 2]))
    couplings = np.zeros((3, 3))
    couplings[0, 1] = couplings[1, 0] = 0.4
    couplings[1, 2] = couplings[2, 1] = -0.6
    model = mf.BoltzmannMachine(couplings, prior)
    exact, found = mf.exact(model), mf.belief_propagation(model)
    assert abs(found.log_partition - exact.log_partition) < 1e-12
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-12)
    np.testing.assert_allclose(found.var, exact.var, atol=1e-12)
    assert found.b is None
    best = mf.most_probable(model)
    assert abs(best.objective + model.energy(best.assignment)) < 1e-12


def test_groups_beside_two_valued_units():
    groups, spins = mf.Categorical([[0.1, 0.4, -0.2]]), mf.Ising(np.array([0.3, 0.2]))
    prior = mf.Concatenated(groups, spins)
    couplings = np.zeros((5, 5))
    couplings[:3, 3], couplings[3, 4] = (0.5, -1.0, 0.2), 0.7
    couplings += couplings.T
    model = mf.BoltzmannMachine(couplings, prior)
    exact, found = mf.exact(model), mf.belief_propagation(model)
    assert abs(found.log_partition - exact.log_partition) < 1e-12
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-12)
    best = mf.most_probable(model).assignment
    assert best.shape == (3,) and best[1] in (-1, 1)


def test_infeasible_models_say_so():
    forbidden = np.zeros((4, 4))
    forbidden[:2, 2:] = -np.inf
    couplings = csr_array(forbidden + forbidden.T)
    model = mf.BoltzmannMachine(couplings, mf.Categorical(np.zeros((2, 2))))
    for solve in (mf.belief_propagation, mf.most_probable, mf.tree_reweighted):
        found = solve(model)
        assert found.log_partition == -np.inf and not found.converged
        assert found.message.startswith("infeasible")
        assert not np.isnan(found.mean).any()
    ring = Graph([(0, 1), (1, 2), (0, 2)], 3, 1.0)
    ring.tables = {edge: np.where(np.eye(*t.shape), -np.inf, t) for edge, t in ring.tables.items()}
    clamp = np.array([[0, 0, -1], [0, 1, -1]])
    found = mf.belief_propagation(ring.machine(), clamp=clamp)
    assert found.log_partition[0] == -np.inf and np.isfinite(found.log_partition[1])
    assert found.converged.tolist() == [False, True]


def test_results_do_not_depend_on_the_number_of_threads():
    rng, n = np.random.default_rng(5), 100
    couplings = grid_couplings(n, rng.normal(size=2 * n * (n - 1)) / 3)
    model = mf.BoltzmannMachine(couplings, mf.Ising(rng.normal(size=n * n)))
    options = {"field": rng.normal(size=(3, n * n)), "pairwise": True, "max_iter": 20}
    one, two = (mf.belief_propagation(model, n_threads=k, **options) for k in (1, 2))
    for name in ("mean", "log_partition", "residual", "pairwise"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("inverse_temperature", [0.2, 0.6])
def test_onsagers_free_energy_within_what_bethe_gives(inverse_temperature):
    """Below and above the critical temperature, 0.4407."""
    n, k = 64, inverse_temperature
    model = mf.BoltzmannMachine(grid_couplings(n, k, torus=True), mf.Ising(np.full(n * n, 1e-9)))
    bethe = mf.belief_propagation(model, max_iter=3000).log_partition / n**2
    modulus = 2 * np.sinh(2 * k) / np.cosh(2 * k) ** 2

    def integrand(angle):
        return np.log((1 + np.sqrt(1 - modulus**2 * np.sin(angle) ** 2)) / 2)

    exact = np.log(2 * np.cosh(2 * k)) + quad(integrand, 0, np.pi / 2)[0] / np.pi
    assert abs(bethe - exact) < 0.01
    # The Bethe lattice of degree 4, whose sites are all alike: half an edge pair for each bond.
    u = 1.0
    for _ in range(10_000):
        u = np.arctanh(np.tanh(k) * np.tanh(1e-9 + 3 * u))
    site = np.logaddexp(4 * u, -4 * u)
    bond = np.logaddexp(k + np.logaddexp(6 * u, -6 * u), np.log(2) - k)
    lattice = site + 2 * (bond - 2 * site)
    assert abs(bethe - lattice) < 1e-6


def test_damping_and_iterations():
    graph = Graph([(0, 1), (1, 2), (0, 2)], 3, 1.0)
    model = graph.machine()
    fixed = mf.belief_propagation(model, tol=1e-13)
    for damping in (0.3, 0.9):
        found = mf.belief_propagation(model, damping=damping, tol=1e-10, max_iter=5000)
        assert found.converged and found.damping == damping
        np.testing.assert_allclose(found.mean, fixed.mean, atol=1e-8)
    few = mf.belief_propagation(model, max_iter=3)
    assert not few.converged and few.n_iter == 3 and few.message.startswith("not converged")
    all_of_them = mf.belief_propagation(model, tol=0, max_iter=40)
    assert all_of_them.n_iter == 40 and all_of_them.history.shape == (40,)
    again = mf.belief_propagation(model, init=mf.belief_propagation(model, pairwise=True))
    assert again.n_iter <= 3
    best = mf.most_probable(model)
    for start in (best, best.assignment, best.assignment[None]):
        assert np.all(mf.most_probable(model, init=start, max_iter=3).score >= best.score - 1e-12)


def test_bad_arguments_are_refused_by_name():
    model = Graph([(0, 1)], 3).machine()
    n = model.n_units
    for name, error, options in (
        ("algorithm", ValueError, {"algorithm": "mixed"}),
        ("init", ValueError, {"algorithm": "max", "init": np.full(3, np.nan)}),
        ("field", ValueError, {"field": np.zeros(n + 1)}),
        ("field", ValueError, {"field": np.full(n, np.nan)}),
        ("clamp", ValueError, {"clamp": np.zeros(n, bool)}),
        ("labels", ValueError, {"clamp": np.full(3, 9)}),
        ("init", ValueError, {"init": np.zeros(1)}),
    ):
        with pytest.raises(error, match=name):
            mf.belief_propagation(model, **options)
    for values in (1e200, 1e13):
        large = mf.BoltzmannMachine(values * (np.ones((3, 3)) - np.eye(3)), mf.Ising(np.zeros(3)))
        with pytest.raises(ValueError, match="at most"):
            mf.belief_propagation(large)
    spins = mf.BoltzmannMachine(np.zeros((3, 3)), mf.Ising(np.zeros(3)))
    with pytest.raises(ValueError, match="at most"):
        mf.belief_propagation(spins, field=np.full(3, 1e300))
    real = mf.BoltzmannMachine(np.zeros((2, 2)), mf.Gaussian(np.zeros(2), np.ones(2)))
    with pytest.raises(TypeError, match="discrete"):
        mf.belief_propagation(real)
    spins = mf.BoltzmannMachine(np.ones((2, 2)) - np.eye(2), mf.Ising(np.zeros(2)))
    with pytest.raises(ValueError, match="support"):
        mf.belief_propagation(spins, clamp=np.array([0.5, np.nan]))


def test_rows_are_solved_in_chunks_that_fit_in_memory(monkeypatch):
    graph = Graph([(0, 1), (1, 2), (0, 2), (2, 3)], 4)
    fields = np.random.default_rng(0).normal(size=(20, graph.sizes.sum()))
    for solve in (partial(mf.belief_propagation, pairwise=True), mf.tree_reweighted):
        together = solve(graph.machine(), field=fields)
        monkeypatch.setattr("fastmf.inference.bp.graphs.propagation.MAX_BYTES", 2000)
        parts = solve(graph.machine(), field=fields)
        monkeypatch.undo()
        for name in ("mean", "log_partition", "pairwise", "messages", "n_iter", "history"):
            np.testing.assert_array_equal(getattr(parts, name), getattr(together, name))


@pytest.mark.parametrize("seed", range(8))
def test_forests_with_forbidden_pairs_and_decided_units_are_exact(seed):
    rng = np.random.default_rng(seed)
    n, strength = 6, (1e-3, 1.0, 30.0)[seed % 3]
    edges = [(int(rng.integers(j)), j) for j in range(1, n)]
    graph = Graph(edges, n, strength, 0.4, seed)
    rows = np.full((4, n), -1)
    for row in rows[1:]:
        row[rng.integers(n)] = rng.integers(2)
    graph.fields[2][1:] = -np.inf
    model = graph.machine()
    energies = {}
    for state in np.ndindex(*graph.sizes):
        energies[state] = sum(f[a] for f, a in zip(graph.fields, state, strict=True)) + sum(
            table[state[i], state[j]] for (i, j), table in graph.tables.items()
        )
    rows[rows[:, 2] == 1, 2] = 0
    found = mf.belief_propagation(model, clamp=rows, pairwise=True)
    again = mf.belief_propagation(model, clamp=rows, init=found)
    best = mf.most_probable(model, clamp=rows)
    for k, row in enumerate(rows):
        given = np.flatnonzero(row >= 0)
        logs = [e for s, e in energies.items() if (np.array(s)[given] == row[given]).all()]
        right = np.logaddexp.reduce(logs)
        for value in (found.log_partition[k], again.log_partition[k]):
            assert value == pytest.approx(right, rel=1e-12, abs=1e-12)
        assert best.objective[k] == pytest.approx(max(logs), rel=1e-12, abs=1e-12)
        assert found.converged[k] == (right > -np.inf)


def test_messages_of_certain_events_may_grow_without_bound():
    # A parity-check code: checks are units with a state for each even pattern of their bits.
    checks = np.array([[0, 1, 2, 3], [2, 3, 4, 5], [0, 2, 4, 6], [1, 3, 5, 6]])
    even = np.array([s for s in np.ndindex(2, 2, 2, 2) if sum(s) % 2 == 0])
    evidence = 10 + 3 * np.random.default_rng(0).normal(size=7)
    fields = [np.array([0, -x]) for x in evidence] + [np.zeros(8)] * 4
    starts = np.cumsum([0, *map(len, fields)])
    couplings = np.zeros((starts[-1], starts[-1]))
    for k, bits in enumerate(checks):
        for i, values in zip(bits, even.T, strict=True):
            pairs = np.ix_(starts[i] + np.arange(2), starts[7 + k] + np.arange(8))
            couplings[pairs] = np.where(np.arange(2)[:, None] == values, 0, -np.inf)
    words = [w for w in np.ndindex(*[2] * 7) if not (np.array(w)[checks].sum(1) % 2).any()]
    logs = -(np.array(words) @ evidence)
    log_z = np.logaddexp.reduce(logs)
    model = mf.BoltzmannMachine(np.minimum(couplings, couplings.T), mf.Categorical(fields))
    found = mf.belief_propagation(model)
    assert found.converged and found.n_iter < 200
    assert found.log_partition == pytest.approx(log_z, abs=1e-6)
    bits = found.mean[1:14:2]
    np.testing.assert_allclose(bits, np.exp(logs - log_z) @ np.array(words), atol=1e-6)


def test_assignments_are_compared_with_the_most_probable_ones():
    # Transfer matrices of an 8 x 8 grid give the largest exponent.
    side, n_poor = 8, 0
    states = np.array(list(np.ndindex(*[2] * side))) * 2.0 - 1
    for seed in range(8):
        rng = np.random.default_rng(seed)
        right, down = 1.5 * rng.normal(size=(side, side)), 1.5 * rng.normal(size=(side, side))
        field = 0.3 * rng.normal(size=(side, side))
        value = 0
        couplings = np.zeros((side, side, side, side))
        for r in range(side):
            own = states @ field[r] + (states[:, :-1] * states[:, 1:]) @ right[r, :-1]
            if r:
                value = ((states * down[r - 1]) @ states.T + value[:, None]).max(0)
            value = value + own
            for c in range(side):
                if c + 1 < side:
                    couplings[r, c, r, c + 1] = right[r, c]
                if r + 1 < side:
                    couplings[r, c, r + 1, c] = down[r, c]
        couplings = couplings.reshape(side**2, side**2)
        model = mf.BoltzmannMachine(csr_array(couplings + couplings.T), mf.Ising(field.ravel()))
        found = mf.most_probable(model)
        assert found.objective == pytest.approx(value.max(), rel=1e-12) and found.reliable
        decoded = mf.most_probable(model, search=False)
        is_poor = decoded.objective < value.max() - 1e-9
        n_poor += is_poor
        assert decoded.reliable == (not is_poor)
        assert ("more probable, by" in decoded.message) == is_poor
    assert n_poor
