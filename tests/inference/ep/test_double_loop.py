"""The double loop, and bounds on site precisions, which only it can hold."""

import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf
from fastmf.inference.ep import curvature, schedules

SCHEDULES = tuple(schedules.SCHEDULES)


@pytest.mark.parametrize("newton", [150, 0])
def test_double_loop_and_descent_on_the_moments_are_one_minimisation(newton, from_the_first_sites):
    """Two algorithms for one energy, one of them with two inner solvers."""
    model, _ = problem(20, 30, inclusion_probability=0.1)
    energies = []
    for other in ({}, {"DESCENTS": ()}):
        with pytest.MonkeyPatch.context() as patch:
            from_the_first_sites(patch)
            patch.setattr(curvature, "MAX_NEWTON_UNITS", newton)
            for name, function in other.items():
                patch.setattr(schedules, name, function)
            result = mf.expectation_propagation(model, schedule="convergent", history=True)
        assert result.converged
        assert len(result.energies) > 3
        # To what the inner problem is solved.
        assert (np.diff(result.energies) <= 1e-8).all()
        assert result.energies[0] > result.energies[-1] + 0.1
        energies.append(result.energies[-1])
        np.testing.assert_allclose(-result.log_partition, result.energies[-1], rtol=1e-8)
    np.testing.assert_allclose(*energies, rtol=1e-8)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bound_on_site_precisions(schedule):
    """Eq. 13 of the paper; the double loop bounds the cavities too."""
    model, _ = problem(10, 25, noise=1.0, inclusion_probability=0.2, seed=0)
    options = dict(schedule=schedule, max_iter=300, history=True)
    if schedule in ("parallel", "sequential"):
        options["damping"] = 0.5
    free = mf.expectation_propagation(model, **options)
    bound = mf.expectation_propagation(model, site_precision_min=0.01, **options)
    assert free.sites[1].min() < 0
    assert bound.sites[1].min() >= 0.01 - 1e-12
    assert np.isfinite(bound.log_evidence)
    if schedule in ("parallel", "sequential"):
        assert "site_precision_min" in bound.message
    if schedule == "convergent":
        assert bound.a.min() >= 0.01 - 1e-12
        np.testing.assert_allclose(-bound.log_partition, bound.energies[-1], rtol=1e-9)
        assert (np.diff(bound.energies) <= 1e-8).all()
        # A bound that is active moves the solution off the fixed point: the price of the option.
        assert free.residual <= 1e-8 < bound.residual


def test_what_is_returned_under_a_bound_is_what_was_minimised():
    """Also where a site is held, so that the Gaussian and the units differ at the solution."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(5, 3))
    y = X @ [1, 0, 0.3] + 0.1 * rng.normal(size=5)
    model = mf.SparseLinearModel(X, y, 0.01, mf.GaussBernoulli(np.zeros(3), 1, -1.0))
    held = 0
    for least in (-0.5, 0.0, 0.01):
        result = mf.expectation_propagation(
            model, schedule="convergent", site_precision_min=least, history=True, max_iter=30
        )
        np.testing.assert_allclose(-result.log_partition, result.energies[-1], rtol=1e-9)
        assert min(result.a.min(), result.sites[1].min()) >= least - 1e-12
        np.testing.assert_allclose(result.mean, model.prior.moments(result.b, result.a)[0])
        held += result.residual > 1e-3
    assert held


def test_bounded_energy_never_rises_where_the_inner_problem_is_hard():
    """Where one pass of its solver used to end half a nat short of the maximum."""
    model, _ = problem(10, 25, noise=0.05, inclusion_probability=0.2, seed=0)
    options = dict(schedule="convergent", site_precision_min=0.0, max_iter=100, history=True)
    result = mf.expectation_propagation(model, **options)
    assert result.n_iter > 2
    assert (np.diff(result.energies) <= 1e-8).all()
