"""Belief propagation on graphs against enumeration."""

import pickle
from functools import partial

import numpy as np
import pytest
from bp_models import SOLVERS
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
    for k, row in enumerate(clamp):
        exact = mf.exact(model, clamp=row)
        assert abs(found.log_partition[k] - exact.log_partition) < 1e-10
        np.testing.assert_allclose(found.mean[k], exact.mean, atol=1e-12)
        products = exact.pairwise[tuple(found.edges.T)]
        np.testing.assert_allclose(found.pairwise[k], products, atol=1e-12)
    assert (found.var[~np.isnan(clamp)] == 0).all()
    best = mf.most_probable(model, clamp=clamp)
    assert ((best.assignment == clamp) | np.isnan(clamp)).all()


def test_discrete_units_of_other_kinds_and_groups_beside_two_valued_units():
    groups, spins = mf.Categorical([[0.1, 0.4, -0.2]]), mf.Ising(np.array([0.3, 0.2]))
    beside = np.zeros((5, 5))
    beside[:3, 3], beside[3, 4] = (0.5, -1.0, 0.2), 0.7
    chain = np.diag([0.4, -0.6], 1)
    for couplings, prior in (
        (beside, mf.Concatenated(groups, spins)),
        (chain, mf.Binomial(np.array([0.2, -0.3, 0.1]), np.array([2, 3, 2]))),
    ):
        model = mf.BoltzmannMachine(couplings + couplings.T, prior)
        exact, found = mf.exact(model), mf.belief_propagation(model)
        assert abs(found.log_partition - exact.log_partition) < 1e-12
        np.testing.assert_allclose(found.mean, exact.mean, atol=1e-12)
        np.testing.assert_allclose(found.var, exact.var, atol=1e-12)
        best = mf.most_probable(model)
        assert abs(best.objective + model.energy(best.assignment)) < 1e-12
        assert best.assignment.shape == (3,)
    assert found.b is None


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
    rows[rows[:, 2] == 1, 2] = 0
    found = mf.belief_propagation(model, clamp=rows, pairwise=True)
    again = mf.belief_propagation(model, clamp=rows, init=found)
    best = mf.most_probable(model, clamp=rows)
    for k, row in enumerate(rows):
        with np.errstate(invalid="ignore"):  # where no state is allowed the sum is no number
            right, _, _, top = graph.solve(clamp=row)
        right = top if top == -np.inf else right
        for value in (found.log_partition[k], again.log_partition[k]):
            assert value == pytest.approx(right, rel=1e-12, abs=1e-12)
        assert best.objective[k] == pytest.approx(top, rel=1e-12, abs=1e-12)
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
    for seed in range(4):
        rng = np.random.default_rng(seed)
        right, down = 1.5 * rng.normal(size=(side, side)), 1.5 * rng.normal(size=(side, side))
        field = 0.3 * rng.normal(size=(side, side))
        value = 0
        for r in range(side):
            own = states @ field[r] + (states[:, :-1] * states[:, 1:]) @ right[r, :-1]
            if r:
                value = ((states * down[r - 1]) @ states.T + value[:, None]).max(0)
            value = value + own
        couplings = grid_couplings(side, np.r_[right[:, :-1].ravel(), down[:-1].ravel()])
        model = mf.BoltzmannMachine(couplings, mf.Ising(field.ravel()))
        found = mf.most_probable(model)
        assert found.objective == pytest.approx(value.max(), rel=1e-12) and found.reliable
        decoded = mf.most_probable(model, search=False)
        is_poor = decoded.objective < value.max() - 1e-9
        n_poor += is_poor
        assert decoded.reliable == (not is_poor)
        assert ("more probable, by" in decoded.message) == is_poor
    assert n_poor


# --- shapes, tilts and assignments of results -----------------------------------------------------


def test_tilts_give_the_means():
    graph = Graph([(0, 1), (1, 2), (0, 2)], 4, 1.0)
    groups = mf.belief_propagation(graph.machine())
    mean, var = mf.Categorical(graph.fields).moments(groups.b, groups.a)
    np.testing.assert_allclose(mean, groups.mean, atol=1e-12)
    np.testing.assert_allclose(var, groups.var, atol=1e-12)
    for units in (mf.Ising, mf.Bernoulli):
        prior = units(np.array([0.3, -1.0, 0.2]))
        model = mf.BoltzmannMachine(np.ones((3, 3)) / 4 - np.eye(3) / 4, prior)
        for algorithm in ("sum", "tree_reweighted"):
            found = SOLVERS[algorithm](model)
            mean, var = prior.moments(found.b, found.a)
            np.testing.assert_allclose(mean, found.mean, atol=1e-12)
            np.testing.assert_allclose(var, found.var, atol=1e-12)


def test_shapes_with_and_without_rows():
    model = Graph([(0, 1), (1, 2)], 4).machine()
    n = model.n_units
    one = mf.belief_propagation(model)
    assert one.mean.shape == (n,) and one.assignment.shape == (4,)
    assert np.ndim(one.log_partition) == 0 and one.edges.tolist() == [[0, 1], [1, 2]]
    rows = mf.belief_propagation(model, field=np.zeros((2, n)), pairwise=True)
    assert rows.mean.shape == (2, n) and rows.log_partition.shape == (2,)
    assert rows.pairwise.shape[0] == 2
    averaged = mf.belief_propagation(model, field=np.zeros((2, n)), pairwise="mean")
    np.testing.assert_allclose(averaged.pairwise, rows.pairwise.mean(0))
    np.testing.assert_array_equal(one.assignment, rows.assignment[0])
    assert one.spectral_radius == 0


def test_tree_reweighted_results_have_probabilities_of_edges():
    model = Graph([(0, 1), (1, 2), (0, 2), (2, 3)], 4).machine()
    found = mf.tree_reweighted(model)
    np.testing.assert_allclose(found.edge_probability, [2 / 3, 2 / 3, 2 / 3, 1])
    assert found.unique is None and found.reliable is None
    short = mf.tree_reweighted(model, max_iter=2)
    assert not short.converged and short.log_partition > mf.exact(model).log_partition


# --- messages to start from -----------------------------------------------------------------------


def ferromagnet(coupling):
    couplings = coupling * (np.ones((4, 4)) - np.eye(4))
    return mf.BoltzmannMachine(couplings, mf.Ising(np.zeros(4)))


@pytest.mark.parametrize("coupling", [1.0, 150.0])
def test_starts_lead_to_other_fixed_points(coupling):
    """In odds, and in logarithms at couplings for which odds are no numbers."""
    model = ferromagnet(coupling)
    start = mf.belief_propagation(model, pairwise=True).messages
    assert start.shape == (12,)
    np.testing.assert_allclose(start, 0, atol=1e-12)
    found = mf.belief_propagation(model, init=np.outer([1, -1], start + 1), pairwise=True)
    assert found.converged.all()
    assert (found.mean[0] > 0.9).all() and (found.mean[1] < -0.9).all()
    again = mf.belief_propagation(model, init=found)
    assert (again.n_iter <= 2).all()
    np.testing.assert_allclose(again.mean, found.mean, atol=1e-12)


def test_starts_for_other_clamps():
    """Messages of -inf, facts of a clamp, are none without it."""
    graph = Graph([(0, 1), (1, 2), (0, 2)], 3, 1.0)
    clamp = np.array([0, -1, -1])
    held = mf.belief_propagation(graph.machine(), clamp=clamp, pairwise=True)
    free = mf.belief_propagation(graph.machine(), init=held)
    np.testing.assert_allclose(free.mean, mf.belief_propagation(graph.machine()).mean, atol=1e-8)


def test_bad_starts_are_refused():
    model = ferromagnet(0.1)
    with pytest.raises(ValueError, match="pairwise=True"):
        mf.belief_propagation(model, init=mf.belief_propagation(model))
    with pytest.raises(ValueError, match="init must have shape"):
        mf.belief_propagation(model, init=np.zeros(11))
    with pytest.raises(ValueError, match="NaN"):
        mf.belief_propagation(model, init=np.full(12, np.nan))
    with pytest.raises(TypeError, match="init"):
        mf.belief_propagation(model, init=np.full(12, "a"))
    with pytest.raises(ValueError, match="rows differ"):
        mf.belief_propagation(model, field=np.zeros((3, 4)), init=np.zeros((2, 12)))


# --- the result of belief propagation on graphs ---------------------------------------------------


def test_tables_need_pair_beliefs():
    model = Graph([(0, 1)], 3).machine()
    with pytest.raises(ValueError, match="pairwise=True"):
        mf.belief_propagation(model).table(0, 1)
    found = mf.belief_propagation(model, pairwise=True)
    with pytest.raises(ValueError, match="not coupled"):
        found.table(0, 2)
    np.testing.assert_allclose(found.table(0, 1).sum(), 1)


def test_results_are_pickled_and_shown():
    found = mf.belief_propagation(Graph([(0, 1), (1, 2), (0, 2)], 3, 0.3).machine())
    assert pickle.loads(pickle.dumps(found)).unique is None
    assert found.unique and found.reliable and found.message == "converged"
    again = pickle.loads(pickle.dumps(found))
    assert again.unique and again.reliable and np.array_equal(again.mean, found.mean)


# --- RBMs that are solved as graphs ---------------------------------------------------------------


def machine(visible, hidden, strength=0.3, n=4, m=3):
    rng = np.random.default_rng(1)
    if visible is mf.Categorical:
        units = mf.Categorical([rng.normal(size=size) for size in (2, 3, 4)])
    else:
        units = visible(rng.normal(size=n))
    weights = rng.normal(size=(len(units[0]), m)) * strength
    weights[0, 0] = 0
    return mf.RBM(weights, units, hidden(rng.normal(size=m)))


@pytest.mark.parametrize("visible", [mf.Ising, mf.Bernoulli, mf.Categorical])
@pytest.mark.parametrize("hidden", [mf.Ising, mf.Bernoulli])
def test_the_same_fixed_point_as_that_of_the_kernels_of_rbms(visible, hidden):
    model = machine(visible, hidden)
    plain = mf.belief_propagation(model, tol=1e-12)
    nothing = np.full(3 if visible is mf.Categorical else 4, np.nan)
    found = mf.belief_propagation(model, tol=1e-12, clamp=nothing, pairwise=True)
    assert abs(plain.log_partition - found.log_partition) < 1e-9
    for k in range(2):
        np.testing.assert_allclose(found.mean[k], plain.mean[k], atol=1e-9)
        np.testing.assert_allclose(found.var[k], plain.var[k], atol=1e-9)
        mean, _ = model.layers[k].moments(found.b[k], found.a[k])
        np.testing.assert_allclose(mean, plain.mean[k], atol=1e-9)
        np.testing.assert_array_equal(found.assignment[k], plain.assignment[k])
    exact = mf.exact(model)
    np.testing.assert_allclose(found.pairwise, exact.pairwise, atol=0.02)
    upper = mf.tree_reweighted(model).log_partition
    assert exact.log_partition < upper < exact.log_partition + 1
    assert found.unique and found.reliable
    best = mf.most_probable(model, clamp=nothing)
    assert best.score == pytest.approx(mf.most_probable(model).score)


@pytest.mark.parametrize("hidden", [mf.Ising, mf.Bernoulli])
def test_pair_beliefs_of_categorical_units_are_exact_on_a_tree(hidden):
    model = machine(mf.Categorical, hidden, 2.0, m=1)
    rows = np.random.default_rng(0).normal(size=(3, 9))
    found = mf.belief_propagation(model, field=rows, pairwise=True)
    for k, row in enumerate(rows):
        visible = mf.Categorical(model.visible.field + row, model.visible.state)
        exact = mf.exact(mf.RBM(model.weights, visible, model.hidden))
        np.testing.assert_allclose(found.pairwise[k], exact.pairwise, atol=1e-12)
    averaged = mf.belief_propagation(model, field=rows, pairwise="mean")
    np.testing.assert_allclose(averaged.pairwise, found.pairwise.mean(0), atol=1e-12)


def test_clamped_units():
    model = machine(mf.Ising, mf.Bernoulli, 1.0, m=1)
    clamp = np.full(4, np.nan)
    clamp[[0, 2]] = 1.0, -1.0
    found = mf.belief_propagation(model, clamp=clamp)
    states = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
    states = states[(states[:, 0] == 1) & (states[:, 2] == -1)]
    logs = np.concatenate([-model.energy(states, np.full((len(states), 1), h)) for h in (0.0, 1.0)])
    weights = np.exp(logs - logs.max())
    assert abs(found.log_partition - logs.max() - np.log(weights.sum())) < 1e-10
    mean = weights @ np.vstack([states, states]) / weights.sum()
    np.testing.assert_allclose(found.mean[0], mean, atol=1e-12)
    both = mf.belief_propagation(model, clamp=(clamp, np.array([1.0])), field=np.zeros((2, 4)))
    assert (both.mean[1] == 1).all() and both.mean[0].shape == (2, 4)


def test_what_graphs_lack_is_refused_by_name():
    model = machine(mf.Ising, mf.Ising)
    for options, name in (
        ({"init": np.zeros((4, 3))}, "init"),
        ({"sum_hidden": True}, "sum_hidden"),
        ({"n_starts": 2, "rng": 0}, "n_starts"),
    ):
        with pytest.raises(ValueError, match=name):
            mf.most_probable(model, clamp=np.full(4, np.nan), **options)
