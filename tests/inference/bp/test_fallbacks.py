"""Rows that do not converge: recognised cycles, and the searches that replace them."""

import numpy as np
import pytest
from bp_models import centred

import fastmf as mf
from fastmf._outcomes import CYCLING, OUT_OF_ITERATIONS
from fastmf.inference.bp._binary_units import BinaryUnits
from fastmf.inference.bp._fallbacks import mark_cycles
from fastmf.inference.bp._kernel_arguments import prepared
from fastmf.inference.bp._options import BPOptions


@pytest.mark.parametrize("prior", [mf.Bernoulli, mf.Ising])
def test_what_does_not_converge_becomes_a_stationary_point(prior):
    model = centred(12, 12, 2.0 if prior is mf.Bernoulli else 0.6, 5, prior)
    field = np.stack([np.zeros(12), 200 * np.ones(12)])
    options = {"field": field, "max_iter": 200, "damping": 0.0}
    rough = mf.belief_propagation(model, **options)
    assert rough.converged.tolist() == [False, True]
    assert "cycling" in rough.message[0] and "on_failure" in rough.message[0]
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


@pytest.mark.parametrize("size_of_field", [1e3, 1e12, 1e18])
def test_fixed_points_beside_units_clamped_by_huge_fields(size_of_field):
    """What is found is a fixed point of the machine without those units, too."""
    rng, n_found = np.random.default_rng(5), 0
    for _ in range(12):
        weights, fields = rng.normal(scale=2, size=(10, 8)), rng.normal(size=10)
        signs = rng.choice([-1.0, 1.0], 2)
        fields[:2] = size_of_field * signs
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
        expected = again.log_partition + 2 * size_of_field
        assert found.log_partition == pytest.approx(expected, abs=1e-5, rel=1e-15)
    assert n_found > 3


def test_a_slow_approach_is_not_called_a_cycle():
    """A ferromagnet near its transition converges slowly; tol=0 asks for no convergence."""
    model = mf.RBM(np.full((20, 20), 0.0513), *(mf.Ising(np.full(20, 1e-7)) for _ in range(2)))
    result = mf.belief_propagation(model, max_iter=60)
    assert not result.converged and "still moving" in result.message
    result = mf.belief_propagation(centred(12, 12, 2.0, 5), max_iter=60, tol=0)
    assert "max_iter" in result.message


@pytest.mark.parametrize("kind, n_cycling", [("alternating", 1), ("falling", 0), ("short", 0)])
def test_cycles_are_told_by_their_residuals(kind, n_cycling):
    units = BinaryUnits(centred(3, 2, 1.0), (None, None))
    n_sweeps = 20 if kind == "short" else 100
    _, _, record = prepared(BPOptions(max_iter=n_sweeps), units, float, 1)
    falling = 0.99 ** np.arange(n_sweeps)
    record.history[0] = falling if kind == "falling" else 1 + np.arange(n_sweeps) % 2
    record.n_iter[:], record.status[:] = n_sweeps, OUT_OF_ITERATIONS
    mark_cycles(record)
    assert (record.status == CYCLING).sum() == n_cycling


def test_hard_decisions_that_cycle_are_said_to():
    n_cycling = 0
    for seed in range(10):
        result = mf.belief_propagation(centred(12, 12, 3.0, seed), algorithm="mixed", max_iter=50)
        n_cycling += "cycling" in result.message
        assert result.converged == (result.message == "converged")
    assert n_cycling > 0


@pytest.mark.parametrize("shape, scale", [((12, 12), 20.0), ((30, 10), 60.0), ((60, 30), 40.0)])
def test_decoding_or_newton_steps_where_minimisation_fails(shape, scale):
    n_solved = 0
    for seed in range(3):
        model = centred(*shape, scale, seed)
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


def test_fixed_points_from_assignments_are_near_probable_states():
    """There the log-partition is nearly the true one, unlike at a minimum of the free energy."""
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
