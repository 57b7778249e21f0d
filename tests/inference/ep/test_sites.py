"""The problem and the state: cavities, tilted moments, the energy."""

import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf
from fastmf.inference.ep import sites


@pytest.fixture
def task():
    return sites.problem_of(problem(15, 6)[0])


def test_the_energy_is_stationary_at_the_fixed_point():
    model = problem(15, 6)[0]
    task, fixed = sites.problem_of(model), mf.expectation_propagation(model, tol=1e-12).sites

    def at(site):
        return sites.energy(task, sites.state_of(task, site))

    direction = np.random.default_rng(1).normal(size=(2, 6))
    up, down = (at(fixed + s * 1e-4 * direction) for s in (1, -1))
    elsewhere = [at(1.2 * fixed + s * 1e-4 * direction) for s in (1, -1)]
    assert abs(up - down) < 1e-4 * abs(elsewhere[0] - elsewhere[1])


def test_the_mismatch_of_wide_units_is_relative():
    wide = np.array([[3e6], [1e12]])
    assert sites.mismatch(wide, wide + [[500.0], [0.0]]) == pytest.approx(5e-4)
    assert sites.mismatch(wide, wide - [[0.0], [1e5]]) == pytest.approx(1e-7)


def test_the_log_partition_of_gaussians_is_their_integral():
    w = np.linspace(-30, 30, 200_001)
    expected = np.log(np.trapezoid(np.exp(0.7 * w - 0.4 * w * w), w))
    found = sites.gaussian_log_partition(np.array([[0.7, 0.7], [0.8, 0.8]]))
    assert found == pytest.approx(2 * expected, rel=1e-10)
