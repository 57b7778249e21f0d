"""Schedules agree where they converge, and the convergent one does where the parallel does not."""

import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf
from fastmf.inference.ep import schedules

SCHEDULES = tuple(schedules.SCHEDULES)


@pytest.mark.parametrize("shape", [(60, 40), (30, 90), (50, 200)])
def test_schedules_agree(shape):
    model, _ = problem(*shape, seed=2, noise=0.1, inclusion_probability=6 / shape[1])
    first, *others = (mf.expectation_propagation(model, schedule=s) for s in SCHEDULES)
    assert first.converged
    for other in others:
        assert other.converged
        np.testing.assert_allclose(other.mean, first.mean, atol=1e-6)
        np.testing.assert_allclose(other.var, first.var, atol=1e-6)
        np.testing.assert_allclose(other.log_evidence, first.log_evidence, rtol=1e-6)


def paper_problem(seed):
    """The setting of the paper's first experiment: 25 features, 10 rows, hardly any noise."""
    return problem(10, 25, seed, noise=0.005, inclusion_probability=0.2)[0]


# The last six failed where fewer units were taken together in a step.
@pytest.mark.parametrize("seed", [*range(12), 204, 347, 501, 557, 576, 633])
def test_convergent_schedule_converges_and_its_energy_never_rises(seed):
    result = mf.expectation_propagation(paper_problem(seed), schedule="convergent", history=True)
    assert result.converged and result.residual <= 1e-8
    # The energy's terms are a million times larger than itself.
    assert (np.diff(result.energies) <= 1e-8).all()


def test_convergent_schedule_converges_where_parallel_does_not():
    failed = 0
    for seed in range(12):
        model = paper_problem(seed)
        regular = mf.expectation_propagation(model, max_iter=300)
        failed += not regular.converged
        if not regular.converged:
            result = mf.expectation_propagation(model, schedule="auto")
            assert result.converged and result.schedule == "convergent"
    assert failed > 0
