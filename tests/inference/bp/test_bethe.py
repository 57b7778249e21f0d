"""Rows that belief propagation leaves: what they are called, and where minimisation takes them."""

import itertools

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.bp.bethe import minimise_bethe, pairs_given_units
from fastmf.inference.bp.newton_messages import _Sweep, newton


def machine(n, m, scale, seed=0, prior=mf.Bernoulli):
    """Strong weights, and fields that centre the units: undamped messages cycle."""
    rng = np.random.default_rng(seed)
    weights = scale * rng.normal(size=(n, m))
    fields = rng.normal(size=n), rng.normal(size=m)
    if prior is mf.Bernoulli:
        fields = fields[0] - weights.sum(1) / 2, fields[1] - weights.sum(0) / 2
    return mf.RBM(weights, *map(prior, fields))


def minus_bethe(model, tau_v, tau_h, pairs):
    """Minus energy plus entropy, one term after another."""

    def entropy(p):
        return -sum(x * np.log(x) for x in p if x > 0)

    n, m = model.weights.shape
    total = model.visible.field @ tau_v + model.hidden.field @ tau_h + (model.weights * pairs).sum()
    for i, j in itertools.product(range(n), range(m)):
        both, first, second = pairs[i, j], tau_v[i] - pairs[i, j], tau_h[j] - pairs[i, j]
        total += entropy([both, first, second, 1 - both - first - second])
    total -= (m - 1) * sum(entropy([x, 1 - x]) for x in tau_v)
    return total - (n - 1) * sum(entropy([x, 1 - x]) for x in tau_h)


def by_descent(weights, visible_field, hidden_field, tol):
    start = [np.zeros(n) for n in weights.shape]
    return minimise_bethe(weights, visible_field, hidden_field, start, tol)


BOTH = pytest.mark.parametrize("search", [by_descent, newton])


def solve(search, model, tol):
    return search(model.weights, model.visible.field, model.hidden.field, tol)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_pairs_given_units_are_consistent_and_minimise():
    rng = np.random.default_rng(0)
    weights = rng.normal(scale=8, size=(6, 5))
    weights[0] = 0
    visible, hidden = 4 * rng.normal(size=6), 4 * rng.normal(size=5)
    both, first, second, neither = pairs_given_units(weights, visible, hidden)
    np.testing.assert_allclose(both + first, np.tile(sigmoid(visible)[:, None], 5), rtol=1e-12)
    np.testing.assert_allclose(neither + first, np.tile(sigmoid(-hidden), (6, 1)), rtol=1e-12)
    # The derivative by the pair's belief is zero.
    slope = np.log(both) + np.log(neither) - np.log(first) - np.log(second) - weights
    np.testing.assert_allclose(slope, 0, atol=1e-10)


@BOTH
@pytest.mark.parametrize("shape", [(9, 7), (4, 12), (1, 1), (1, 6), (60, 30)])
def test_they_find_the_fixed_point_where_messages_converge(shape, search):
    model = machine(*shape, 2 / np.sqrt(sum(shape)))
    expected = mf.belief_propagation(model, tol=1e-14)
    found = solve(search, model, 1e-12)
    assert expected.converged and found.residual <= 1e-12 and found.n_iter < 40
    for log_odds, mean in zip(found.log_odds, expected.mean, strict=True):
        np.testing.assert_allclose(sigmoid(log_odds), mean, atol=1e-10)
    assert found.log_partition == pytest.approx(expected.log_partition, abs=1e-9)


@pytest.mark.parametrize("search, scale", [(by_descent, 12), (newton, 12), (newton, 80)])
def test_exact_on_a_tree_with_large_weights(search, scale):
    rng = np.random.default_rng(1)
    weights = np.zeros((5, 4))
    for i, j in [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (4, 3), (0, 3)]:
        weights[i, j] = scale * rng.normal()
    model = mf.RBM(weights, *(mf.Bernoulli(5 * rng.normal(size=n)) for n in (5, 4)))
    found, truth = solve(search, model, 1e-9), mf.exact(model)
    assert found.log_partition == pytest.approx(truth.log_partition, abs=1e-8)
    for log_odds, mean in zip(found.log_odds, truth.mean, strict=True):
        np.testing.assert_allclose(sigmoid(log_odds), mean, atol=1e-8)


@pytest.mark.parametrize("prior", [mf.Bernoulli, mf.Ising])
def test_what_does_not_converge_becomes_a_stationary_point(prior):
    model = machine(12, 12, 2.0 if prior is mf.Bernoulli else 0.6, 5, prior)
    field = np.stack([np.zeros(12), 200 * np.ones(12)])
    options = {"field": field, "max_iter": 200, "damping": 0.0}
    rough = mf.belief_propagation(model, **options)
    assert rough.converged.tolist() == [False, True] and "cycling" in rough.message[0]
    options |= {"on_failure": "minimise", "tol": 1e-10, "messages": True, "pairwise": True}
    result = mf.belief_propagation(model, **options)
    assert result.converged.all() and result.residual[0] <= 1e-10
    assert "direct minimisation" in result.message[0] and result.message[1] == "converged"
    # A row that converges is left alone.
    for after, before in zip(result.mean, rough.mean, strict=True):
        np.testing.assert_allclose(after[1], before[1], atol=1e-8)
    # A fixed point: two more sweeps from its messages find the same beliefs and log-partition.
    again = mf.belief_propagation(
        model, init=result.messages[0], max_iter=2, tol=1e-7, damping=0.0, pairwise=True
    )
    assert again.converged
    for after, before in zip(again.mean, result.mean, strict=True):
        np.testing.assert_allclose(after, before[0], atol=1e-8)
    np.testing.assert_allclose(again.pairwise, result.pairwise[0], atol=1e-7)
    assert again.log_partition == pytest.approx(result.log_partition[0], abs=1e-7)


@pytest.mark.parametrize("held_by", [1e3, 1e12, 1e18])
def test_units_held_by_huge_fields_hide_nothing(held_by):
    """What is found is a fixed point of the machine without those units, too."""
    rng, n_found = np.random.default_rng(5), 0
    for _ in range(12):
        weights, fields = rng.normal(scale=2, size=(10, 8)), rng.normal(size=10)
        signs = rng.choice([-1.0, 1.0], 2)
        fields[:2] = held_by * signs
        whole = mf.RBM(weights, mf.Ising(fields), mf.Ising(rng.normal(size=8)))
        options = {"damping": 0.0, "max_iter": 40, "messages": True}
        found = mf.belief_propagation(whole, on_failure="minimise", **options)
        if found.message == "converged":
            continue
        rest = mf.RBM(
            weights[2:], mf.Ising(fields[2:]), mf.Ising(whole.hidden.field + signs @ weights[:2])
        )
        again = mf.belief_propagation(rest, init=found.messages[2:], damping=0.0, max_iter=2)
        assert found.converged
        n_found += 1
        np.testing.assert_array_equal(found.mean[0][:2], signs)
        np.testing.assert_allclose(again.mean[0], found.mean[0][2:], atol=1e-6)
        np.testing.assert_allclose(again.mean[1], found.mean[1], atol=1e-6)
        expected = again.log_partition + 2 * held_by
        assert found.log_partition == pytest.approx(expected, abs=1e-5, rel=1e-15)
    assert n_found > 3


def test_the_free_energy_is_energy_minus_entropy_and_lowest_there():
    model = machine(8, 7, 2.5, 5)
    result = mf.belief_propagation(
        model, damping=0.0, max_iter=100, on_failure="minimise", pairwise=True, tol=1e-12
    )
    assert "direct minimisation" in result.message
    best = minus_bethe(model, *result.mean, result.pairwise)
    assert result.log_partition == pytest.approx(best, abs=1e-9)
    rng, slopes = np.random.default_rng(0), []
    for _ in range(5):
        move = [1e-4 * rng.normal(size=8), 1e-4 * rng.normal(size=7)]
        values = []
        for sign in (1, -1):
            units = [m + sign * d for m, d in zip(result.mean, move, strict=True)]
            log_odds = [np.log(x / (1 - x)) for x in units]
            pairs = pairs_given_units(model.weights, *log_odds).both
            values.append(minus_bethe(model, *units, pairs))
        assert max(values) < best
        slopes.append((values[0] - values[1]) / 2e-4)
    np.testing.assert_allclose(slopes, 0, atol=1e-4)


def test_a_slow_approach_is_not_called_a_cycle():
    """A ferromagnet near its transition creeps; a fixed number of sweeps is neither."""
    model = mf.RBM(np.full((20, 20), 0.0513), *(mf.Ising(np.full(20, 1e-7)) for _ in range(2)))
    result = mf.belief_propagation(model, max_iter=60)
    assert not result.converged and "still moving" in result.message
    result = mf.belief_propagation(machine(12, 12, 2.0, 5), max_iter=60, tol=0)
    assert "max_iter" in result.message


def test_any_number_of_sweeps_may_be_allowed():
    result = mf.belief_propagation(machine(9, 7, 0.4), max_iter=10**15)
    assert result.converged and result.history is None


def test_hard_decisions_that_cycle_are_said_to():
    n_cycling = 0
    for seed in range(10):
        result = mf.belief_propagation(machine(12, 12, 3.0, seed), algorithm="mixed", max_iter=50)
        n_cycling += "cycling" in result.message
        assert result.converged == (result.message == "converged")
    assert n_cycling > 0


@pytest.mark.parametrize("shape, scale", [((12, 12), 20.0), ((30, 10), 60.0), ((60, 30), 40.0)])
def test_where_descent_does_not_settle_decoding_or_newton_steps_do(shape, scale):
    n_solved = 0
    for seed in range(3):
        model = machine(*shape, scale, seed)
        options = {"max_iter": 50, "messages": True}
        result = mf.belief_propagation(model, on_failure="minimise", **options)
        n_solved += "direct minimisation settled" in result.message and result.converged
        assert result.converged == (result.residual <= 1e-8)
        for part in (*result.mean, *result.var, *result.b, result.log_partition):
            assert np.isfinite(part).all()
        if result.converged:
            again = mf.belief_propagation(
                model, init=result.messages, damping=0.0, tol=1e-6, max_iter=2
            )
            assert again.converged
            assert again.log_partition == pytest.approx(result.log_partition, rel=1e-9)
    assert n_solved >= 2


def test_fixed_points_from_assignments_are_about_the_likeliest_states():
    """There the log-partition is nearly the true one, which it is not at a minimum of Bethe's."""
    n_solved = 0
    for seed in (5, 7, 10, 11):
        rng = np.random.default_rng(seed)
        priors = mf.Bernoulli(rng.normal(size=30)), mf.Bernoulli(rng.normal(size=14))
        model = mf.RBM(20 * rng.normal(size=(30, 14)), *priors)
        result = mf.belief_propagation(model, max_iter=50, on_failure="minimise", messages=True)
        if "decoded" in result.message:
            n_solved += 1
            assert result.converged and result.residual <= 1e-8
            true = mf.exact(model).log_partition
            assert result.log_partition == pytest.approx(true, rel=1e-4)
            again = mf.belief_propagation(model, init=result.messages, tol=1e-6, max_iter=2)
            assert again.converged
            for after, before in zip(again.mean, result.mean, strict=True):
                np.testing.assert_allclose(after, before, atol=1e-6)
    assert n_solved >= 2


def test_the_steps_are_those_of_newton():
    """Along a small part of one, the change that a sweep makes falls by that part."""
    model, rng, share = machine(9, 7, 3.0), np.random.default_rng(0), 1e-6
    parts = model.weights, model.visible.field, model.hidden.field
    here = _Sweep(*parts, model.weights * rng.random((9, 7)))
    there = _Sweep(*parts, here.messages + share * here.step())
    slope = (there.change - here.change) / share
    np.testing.assert_allclose(slope, -here.change, atol=1e-4 * abs(here.step()).max())


@pytest.mark.parametrize(
    "options", [{"on_failure": "ignore"}, {"algorithm": "max"}, {"algorithm": "mixed"}, {"tol": 0}]
)
def test_bad_input(options):
    with pytest.raises(ValueError, match="on_failure"):
        mf.belief_propagation(machine(3, 2, 1.0), **{"on_failure": "minimise", **options})
