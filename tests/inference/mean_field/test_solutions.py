import itertools

import numpy as np
import pytest

import fastmf as mf
from fastmf.evaluation import solutions
from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.mean_field.likelihood import posterior
from fastmf.inference.mean_field.solutions import (
    _log_partition_at,
    distinct,
    distinct_solutions,
    merge,
    phases,
)


def some_solutions(means, log_partition):
    means = np.array(means, dtype=float)
    log_partition = np.array(log_partition, dtype=float)
    converged = np.ones(len(means), bool)
    both, var = (means, means), (means - means**2,) * 2
    n_iter, residual = np.ones(len(means), int), np.zeros(len(means))
    ends = log_partition, converged, n_iter, residual, converged.astype(str)
    return FixedPoint(both, var, both, var, *ends)


def one_by_one(means, order, tol):
    """The definition: each row joins the first representative that it agrees with."""
    rows, members = [], np.full(len(means), -1)
    for row in order:
        for k, other in enumerate(rows):
            if abs(means[row] - means[other]).max() <= tol:
                members[row] = k
                break
        else:
            members[row] = len(rows)
            rows.append(row)
    return np.array(rows), members


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_units", [1, 3, 100])
def test_merge_is_what_its_definition_says(n_units, dtype):
    rng = np.random.default_rng(n_units)
    centres = rng.random((30, n_units)).round(1)
    means = (centres[rng.integers(30, size=300)] + 0.008 * rng.random((300, 1))).astype(dtype)
    order = rng.permutation(300)
    rows, members = merge(means, order, 0.004)
    expected_rows, expected_members = one_by_one(means, order, 0.004)
    np.testing.assert_array_equal(rows, expected_rows)
    np.testing.assert_array_equal(members, expected_members)
    assert 1 < len(rows) < 300


def test_distinct_solutions_are_ordered_by_log_partition():
    reached = some_solutions([[0], [1], [0], [0.5]], [1.0, 3.0, 1.0, 2.0])
    rows, members = distinct(mf.Bernoulli([0.0]), reached)
    assert rows.tolist() == [1, 3, 0]
    assert members.tolist() == [2, 0, 2, 1]
    found = distinct_solutions(mf.Bernoulli([0.0]), reached)
    assert found.counts.tolist() == [1, 1, 2]
    np.testing.assert_allclose(found.weights, np.exp([3, 2, 1]) / np.exp([3, 2, 1]).sum())
    assert repr(found).startswith("Solutions(3 distinct ones from 4 starts, ")


def test_solutions_of_a_ferromagnet():
    # Two phases, mirror images of each other; an odd number of units, so that no start is at zero,
    # from where sweeps lead to the paramagnet between them.
    model = mf.RBM(np.full((41, 41), 0.05), mf.Ising(np.zeros(41)), mf.Ising(np.zeros(41)))
    found = solutions(model, 200)
    assert len(found.free_energy) == 2
    assert found.counts.sum() == 200
    assert found.counts.min() > 50
    np.testing.assert_allclose(found.visible[0], -found.visible[1], atol=1e-6)
    np.testing.assert_allclose(found.weights, 0.5, atol=1e-6)
    assert len(solutions(model, np.zeros(41)).free_energy) == 1
    up = solutions(model, np.ones((5, 41)))
    assert up.members.tolist() == [0] * 5
    assert (up.visible > 0.5).all()


def test_weights_are_numbers_even_if_no_solution_exists():
    for logs, expected in (([-np.inf] * 2, [0, 0]), ([3.0, -np.inf], [1, 0])):
        found = distinct_solutions(mf.Bernoulli([0.0]), some_solutions([[0.0], [1.0]], logs))
        np.testing.assert_array_equal(found.weights, expected)


def spins(coupling, n=9):
    """A ferromagnet, and starts of either sign."""
    model = mf.RBM(np.full((n, n), coupling), mf.Ising(np.zeros(n)), mf.Ising(np.zeros(n)))
    return model, np.vstack([np.ones(n), -np.ones(n)])


def test_a_solution_that_splits_changes_the_log_partition_little_by_little():
    # Where the paramagnet becomes a ferromagnet two solutions take the place of one.
    in_full, as_phases = [], []
    for coupling in np.arange(0.1, 0.25, 0.001):
        model, starts = spins(coupling)
        reached = mf.tap(model, starts, tol=1e-10, max_iter=20_000)
        rows, log_weights = phases(model, reached)
        in_full.append(np.logaddexp.reduce(reached.log_partition[rows]))
        as_phases.append(np.logaddexp.reduce(log_weights))
    assert np.diff(in_full).max() > 0.69
    # Half of that is the log-partition itself, that of any phase, where couplings are strong.
    assert np.diff(as_phases).max() < 0.15
    assert as_phases[0] == pytest.approx(in_full[0])
    assert as_phases[-1] == pytest.approx(in_full[-1], abs=1e-3)


def test_iterations_that_have_not_converged_to_the_end_are_one_phase():
    model, _ = spins(0.1)
    starts = np.random.default_rng(0).choice([-1.0, 1.0], (30, 9))
    reached, end = mf.tap(model, starts, tol=0.03), mf.tap(model, starts)
    assert [len(distinct(model.visible, x, 1e-3)[0]) > 3 for x in (reached, end)] == [True, False]
    _, log_weights = phases(model, reached, merge_tol=1e-3)
    assert np.logaddexp.reduce(log_weights) == pytest.approx(end.log_partition[0], abs=0.05)


def test_phases_far_apart_count_in_full_unless_they_diverged():
    model, starts = spins(0.4)
    reached = mf.tap(model, starts)
    rows, log_weights = phases(model, reached)
    assert len(rows) == 2
    np.testing.assert_allclose(log_weights, reached.log_partition[rows], atol=1e-6)
    reached.log_partition[1] = -np.inf
    assert phases(model, reached)[0].tolist() == [0]
    reached.log_partition[0] = -np.inf
    assert phases(model, reached)[0].tolist() == []


def deep(sizes=(3, 3, 3), scale=0.7):
    rng = np.random.default_rng(0)
    weights = [
        scale * rng.normal(size=(n, m)) / np.sqrt(n + m) for n, m in itertools.pairwise(sizes)
    ]
    return mf.DBM(tuple(weights), tuple(mf.Bernoulli(rng.normal(size=n)) for n in sizes))


def test_on_the_way_it_is_entropy_less_energy_by_enumeration():
    model, rng = deep(), np.random.default_rng(3)
    b = [rng.normal(size=(1, 3)) for _ in range(3)]
    states = np.array(list(itertools.product([0, 1], repeat=9)), float)
    layers = states[:, :3], states[:, 3:6], states[:, 6:]
    log_q = 0.0
    for x, tilt, prior in zip(layers, b, model.layers, strict=True):
        field = tilt[0] + prior.field
        log_q = log_q + (x * field - np.logaddexp(0, field)).sum(1)
    expected = (np.exp(log_q) * (-model.energy(*layers) - log_q)).sum()
    none = [np.zeros((1, 3))] * 3
    assert _log_partition_at(model, b, none, 1) == pytest.approx([expected], abs=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_at_a_solution_it_is_the_log_partition_of_the_solver(order):
    rng = np.random.default_rng(4)
    groups = mf.Categorical(rng.normal(size=(2, 3))), mf.Categorical(rng.normal(size=(2, 2)))
    for model in (deep(), mf.RBM(rng.normal(size=(6, 4)) / 2, *groups), ferromagnet(0.1)):
        solved = mf.tap(model, order=order, tol=1e-12)
        layers = (x if isinstance(x, tuple) else (x,) for x in (solved.b, solved.a))
        tilts = ([x[None] for x in part] for part in layers)
        assert _log_partition_at(model, *tilts, order) == pytest.approx([solved.log_partition])


def test_solutions_of_equal_means_and_different_variances_are_distinct():
    """Means of 0 by symmetry; the two variances solve v = var(x) under the precision 1 - J^2 v."""
    n, strength = 12, 0.17
    couplings = strength * (1 - np.eye(n)) * np.resize([1, -1], (n, 1)) * np.resize([1, -1], n)
    zero, bound = np.zeros(n), np.full(n, 3.0)
    model = mf.BoltzmannMachine(couplings, mf.TruncatedGaussian(zero, zero + 1, -bound, bound))
    start = np.zeros((3, n)), np.stack([zero + 0.1, zero + 0.2, zero + 8])
    found = distinct_solutions(model.prior, mf.tap(model, start, max_iter=5000))
    assert found.converged.all() and (found.visible == 0).all()
    expected, x = [], np.linspace(-3, 3, 6_001)
    for v in (0.1, 8.0):
        for _ in range(2000):
            weight = np.exp(-(1 - strength**2 * (n - 1) * v) * x**2 / 2)
            v = np.trapezoid(weight * x**2, x) / np.trapezoid(weight, x)
        pairs = -n * (n - 1) * strength**2 * v**2 / 4
        expected.append(n * np.log(np.trapezoid(weight, x)) + pairs)
    np.testing.assert_allclose(found.log_partition, expected[::-1], rtol=1e-6)
    np.testing.assert_array_equal(found.counts, [1, 2])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("unit, mean", [(1e-5, 0.0), (1e5, 40.0)])
@pytest.mark.parametrize("bounded", [True, False])
def test_phases_of_real_units_do_not_depend_on_the_unit_of_measurement(dtype, unit, mean, bounded):
    """Real units of the range or standard deviation `unit`, against sums over the other layer."""
    weights = np.random.default_rng(0).uniform(0.9, 1.1, (10, 10)) * (0.3 if bounded else 0.15)
    precision, bounds = np.full(10, 0.01 if bounded else 1.0), np.array([[-1.0], [1.0]])
    scaled = mean * precision / unit, precision / unit**2, *((mean + bounds) * unit * np.ones(10))
    visible = mf.TruncatedGaussian(*scaled) if bounded else mf.Gaussian(*scaled[:2])
    hidden = mf.Ising((0.004 - mean * weights.sum(0)).astype(dtype))
    model = mf.RBM((weights / unit).astype(dtype), visible, hidden)
    result, exact = mf.mixture(mf.tap, model), mf.exact(model)
    assert len(result.solutions.weights) == len(solutions(model, 20).weights) == 2
    assert result.log_partition == pytest.approx(exact.log_partition, abs=0.02)
    np.testing.assert_allclose(result.mean[0], exact.mean[0], atol=0.01 * unit)


# --- TAP from several starts, against enumeration -------------------------------------------------


def ferromagnet(field=0.0):
    return mf.BoltzmannMachine(0.3 * (1 - np.eye(10)), mf.Ising(np.full(10, field)))


@pytest.mark.parametrize("order", [1, 2])
def test_two_phases_are_both_counted(order):
    found = mf.mixture(mf.tap, ferromagnet(), order=order)
    assert len(found.solutions.weights) == 2 and found.solutions.hidden is None
    one = found.solutions.log_partition[0]
    assert found.log_partition == pytest.approx(one + np.log(2), abs=1e-6)
    np.testing.assert_allclose(found.mean, 0, atol=1e-5)
    np.testing.assert_allclose(found.var, 1, atol=1e-5)
    assert found.log_partition == pytest.approx(mf.exact(ferromagnet()).log_partition, abs=0.1)


def test_rows_and_layers_have_solutions_of_their_own():
    weights, none = np.full((10, 10), 0.2), np.zeros(10)
    model = mf.RBM(weights, mf.Ising(none), mf.Ising(none))
    field = np.array([[0.0] * 10, [2.0] * 10])
    found = mf.mixture(mf.tap, model, 12, field=field)
    assert [len(x.weights) for x in found.solutions] == [2, 1]
    for k in range(2):
        exact = mf.exact(mf.RBM(weights, mf.Ising(field[k]), mf.Ising(none)))
        assert found.log_partition[k] == pytest.approx(exact.log_partition, abs=0.1)
        np.testing.assert_allclose(found.mean[1][k], exact.mean[1], atol=0.02)
    assert found.reliable.shape == found.message.shape == (2,)


def test_what_several_starts_do_not_have_is_refused():
    for options in ({"init": np.ones(10)}, {"history": True}, {"n_starts": 0}, {"rng": -1}):
        with pytest.raises(ValueError, match=r"init|mixture|n_starts|rng"):
            mf.mixture(mf.tap, ferromagnet(), **options)


@pytest.mark.parametrize("solver", [mf.tap, mf.relaxed_bp, mf.adaptive_tap, mf.belief_propagation])
def test_all_solvers_have_the_same_phases(solver):
    """Solutions of a ferromagnet in a weak field and their weights, against enumeration."""
    model, exact = ferromagnet(0.02), mf.exact(ferromagnet(0.02))
    result = mf.mixture(solver, model, rng=1)
    assert len(result.solutions.weights) == 2 and result.solutions.members.min() >= -1
    np.testing.assert_allclose(result.mean, exact.mean, atol=0.02)
    assert result.log_partition == pytest.approx(exact.log_partition, abs=0.1)
    fields = np.array([[0.0], [3.0]]) * np.ones(10)
    rows = mf.mixture(solver, model, 8, field=fields)
    assert rows.mean.shape == (2, 10)
    assert [len(x.weights) for x in rows.solutions] == [2, 1]


# --- the posterior of the hidden layers of a deep machine -----------------------------------------


@pytest.mark.parametrize("sizes", [(5, 4, 3), pytest.param((5, 4, 3, 2), marks=pytest.mark.slow)])
def test_it_is_the_machine_with_clamped_visible_units(sizes):
    dbm, X = deep(sizes, 2.0), np.random.default_rng(1).integers(0, 2, (6, 5))
    _, found = posterior(dbm, X, tol=1e-12)
    clamped = mf.tap(dbm, clamp=X, tol=1e-12)
    for mean, expected in zip(found.mean, clamped.mean[1:], strict=True):
        np.testing.assert_allclose(mean, expected, atol=1e-10)
    visible = X @ dbm.layers[0].field
    np.testing.assert_allclose(found.log_partition + visible, clamped.log_partition, atol=1e-10)
