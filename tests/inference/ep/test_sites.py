"""The problem and the state: cavities, tilted moments, the energy."""

import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf
from fastmf.inference.ep import sites


@pytest.fixture
def task():
    return sites.problem_of(problem(15, 6)[0])


def some_sites(n):
    rng = np.random.default_rng(0)
    return np.stack([rng.normal(size=n), rng.gamma(2.0, size=n)])


def test_the_problem_is_in_double_precision_with_the_precisions_of_the_priors():
    model = problem(15, 6, dtype=np.float32)[0]
    task = sites.problem_of(model, 0.5, 1e-3, 7, 2)
    assert {field.dtype for field in task.prior} == {np.dtype(np.float64)}
    mean, var = model.prior.moments(np.zeros(6), np.zeros(6))
    np.testing.assert_allclose(task.prior_precision, 1 / (mean**2 + var), rtol=1e-6)
    assert (task.min_site_precision, task.tol, task.max_iter, task.n_threads) == (0.5, 1e-3, 7, 2)
    flat = mf.TruncatedGaussian(np.zeros(6), 1e-30, 0.0, np.inf)
    task = sites.problem_of(mf.SparseLinearModel(model.X, model.y, 1.0, flat))
    assert np.isfinite(task.prior_precision).all() and (task.prior_precision > 0).all()


def test_the_state_is_consistent(task):
    site = some_sites(6)
    state = sites.state_of(task, site)
    mean, var = state.gaussian
    np.testing.assert_allclose(state.cavity + site, [mean / var, 1 / var])
    np.testing.assert_allclose(state.tilted, task.prior.moments(*state.cavity))
    mean, var = state.tilted
    np.testing.assert_allclose(state.proposal + state.cavity, [mean / var, 1 / var])
    assert state.residual() == abs(state.gaussian - state.tilted).max()
    assert sites.state_of(task, -1e6 * site) is None


def test_the_energy_is_stationary_at_the_fixed_point():
    model = problem(15, 6)[0]
    task, fixed = sites.problem_of(model), mf.expectation_propagation(model, tol=1e-12).sites

    def at(site):
        return sites.energy(task, sites.state_of(task, site))

    direction = np.random.default_rng(1).normal(size=(2, 6))
    up, down = (at(fixed + s * 1e-4 * direction) for s in (1, -1))
    elsewhere = [at(1.2 * fixed + s * 1e-4 * direction) for s in (1, -1)]
    assert abs(up - down) < 1e-4 * abs(elsewhere[0] - elsewhere[1])


def test_tilted_units_have_moments_and_log_partition_of_the_prior(task):
    cavity = some_sites(6)
    tilted, log_partition = sites.tilted_units(task, cavity)
    np.testing.assert_allclose(tilted, task.prior.moments(*cavity))
    np.testing.assert_allclose(log_partition, task.prior.log_partition(*cavity).sum())


def test_the_mismatch_is_the_largest_difference_and_infinite_where_there_is_none():
    moments = np.array([[1.0, 2.0], [0.5, 0.5]])
    assert sites.mismatch(moments, moments + [[0.5, -2.0], [0.1, 0.1]]) == 2
    assert sites.mismatch(moments, moments * [[1.0, 1.0], [1.0, np.inf]]) == np.inf


def test_the_mismatch_of_wide_units_is_relative():
    wide = np.array([[3e6], [1e12]])
    assert sites.mismatch(wide, wide + [[500.0], [0.0]]) == pytest.approx(5e-4)
    assert sites.mismatch(wide, wide - [[0.0], [1e5]]) == pytest.approx(1e-7)


def test_the_log_partition_of_gaussians_is_their_integral():
    w = np.linspace(-30, 30, 200_001)
    expected = np.log(np.trapezoid(np.exp(0.7 * w - 0.4 * w * w), w))
    found = sites.gaussian_log_partition(np.array([[0.7, 0.7], [0.8, 0.8]]))
    assert found == pytest.approx(2 * expected, rel=1e-10)


def test_first_sites_give_the_moments_wanted(task):
    mean, var = np.array([1.0, -2, 0, 3, 1, np.nan]), np.array([0.5, 2, 1, 1, -1, np.inf])
    cavity = some_sites(6)
    site, centre = sites.first_sites(task, mean, var, cavity)
    expected = np.array([[1.0, -2, 0, 3, 0, 0], [0.5, 2, 1, 1, 1, 1]])
    np.testing.assert_allclose(site + cavity, [expected[0] / expected[1], 1 / expected[1]])
    np.testing.assert_array_equal(centre, expected[0])
