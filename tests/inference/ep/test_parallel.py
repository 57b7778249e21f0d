"""The parallel schedule: damping, the end, one problem and many."""

import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf
from fastmf._outcomes import CONVERGED, IMPROPER, OUT_OF_ITERATIONS
from fastmf.inference.ep import parallel
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.sites import EPTrace, problem_of


@pytest.fixture
def task():
    return problem_of(problem(20, 10)[0])


def swept(task, damping, state=None, **options):
    trace = EPTrace(False)
    sweeps = parallel.parallel_sweeps(task, state or start_of(task), damping, trace, **options)
    return *parallel.run_one(task, sweeps), trace


def test_a_step_is_damped(task):
    start = start_of(task)
    state, outcome, _, trace = swept(task._replace(max_iter=2), 0.25, start)
    expected = start.site + 0.75 * (start.proposal - start.site)
    assert outcome == OUT_OF_ITERATIONS and len(trace.residuals) == 2
    assert min(trace.residuals) == state.residual()
    if state.residual() < trace.residuals[0]:
        np.testing.assert_allclose(state.site, expected)


@pytest.mark.parametrize("damping", [None, 0.0, 0.3])
def test_it_ends_at_a_fixed_point(task, damping):
    state, outcome, name, trace = swept(task, damping)
    assert (outcome, name) == (CONVERGED, "parallel")
    np.testing.assert_allclose(state.gaussian, state.tilted, atol=task.tol)
    assert trace.residuals[-1] == state.residual()


def test_near_its_end_it_takes_fewer_iterations_than_with_the_same_damping_alone():
    model, _ = problem(60, 200, 5)
    task = problem_of(model, tol=1e-10)
    ends = [swept(task, damping) for damping in (None, parallel.FIRST_DAMPING)]
    assert all(end[1] == CONVERGED for end in ends)
    np.testing.assert_allclose(ends[0][0].tilted, ends[1][0].tilted, atol=1e-8)
    fast, slow = (end[3].residuals for end in ends)
    far = [r for r in slow if r > 0.1]
    assert fast[: len(far)] == far and len(fast) < len(slow)


def test_where_dampings_do_not_help_it_ends_early_at_the_best_state():
    task = problem_of(problem(10, 25, 2, noise=0.005, inclusion_probability=0.2)[0])
    state, outcome, _, trace = swept(task, None, max_raises=0)
    assert outcome == OUT_OF_ITERATIONS and len(trace.residuals) < 100
    assert state.residual() == min(trace.residuals)


def test_without_a_proper_step_it_ends(task, monkeypatch):
    start = start_of(task)
    monkeypatch.setattr(type(task.side), "moments", lambda side, site: None)
    state, outcome, _, trace = swept(task, None, start)
    assert outcome == IMPROPER and state is start and len(trace.residuals) == 1


def test_a_batch_is_what_its_problems_are_alone():
    rng = np.random.default_rng(0)
    model = mf.RBM(rng.normal(size=(9, 5)) / 3, *(mf.Bernoulli(np.zeros(n)) for n in (9, 5)))
    task = problem_of(model)
    tasks = [task._replace(side=task.side.tilted(rng.normal(size=(2, 14)) ** 2)) for _ in range(15)]

    def sweeps(one):
        mean, precision = np.zeros(14), np.full(14, 2.0)
        state = yield from parallel.proper_start(np.stack([mean, precision]), mean)
        return (yield from parallel.parallel_sweeps(one, state, 0.1, EPTrace(False)))

    ends = parallel.run_batch(tasks, [sweeps(one) for one in tasks])
    for one, (state, outcome, _) in zip(tasks, ends, strict=True):
        alone, same, _ = parallel.run_one(one, sweeps(one))
        assert outcome == same == CONVERGED
        np.testing.assert_allclose(state.tilted, alone.tilted, atol=1e-7)


def test_a_start_is_made_proper_around_its_means():
    coupling = np.array([[0.0, 5.0], [5.0, 0.0]])
    task = problem_of(mf.BoltzmannMachine(coupling, mf.Ising(np.zeros(2))))
    site, mean = np.ones((2, 2)), np.array([0.5, -0.5])
    state = parallel.run_one(task, parallel.proper_start(site, mean))
    added = state.site - site
    assert (added[1] > 0).all() and (state.site[1] > 5).all()
    np.testing.assert_allclose(added[0], added[1] * mean)


def test_a_model_without_a_proper_gaussian_is_an_error(task, monkeypatch):
    monkeypatch.setattr(type(task.side), "moments", lambda side, site: None)
    with pytest.raises(ValueError, match="no proper Gaussian side"):
        start_of(task)


def lengths_of_steps(residuals):
    """Lengths of the steps of an adaptive run in which the residuals are these."""

    class State:
        site, proposal = np.zeros(1), np.ones(1)
        gaussian, tilted = np.ones((2, 1)), np.full((2, 1), 9.0)  # too far for extrapolation

        def __init__(self, residual):
            self.residual, self.agrees = lambda: residual, lambda tol: residual <= tol

    states = iter(map(State, residuals))
    task = problem_of(problem(20, 10)[0])._replace(max_iter=len(residuals))
    sweeps = parallel.parallel_sweeps(task, next(states), None, EPTrace(False))
    lengths = [float(next(sweeps)[0])]
    lengths += [float(sweeps.send(state)[0]) for state in [*states][:-1]]
    return lengths


def test_damping_rises_where_the_residual_does_not_fall_and_sinks_again_where_it_does():
    patience = parallel.DAMPING_PATIENCE
    flat, falling = [1.0] * (patience + 1), list(0.97 ** np.arange(1, 4 * patience))
    lengths = lengths_of_steps(flat + falling)
    assert lengths[:patience] == [0.9] * patience
    assert lengths[patience] == pytest.approx(0.45)
    raised = [length < 0.89 for length in lengths]
    assert 1 < sum(raised) <= 2 * patience and not raised[-1]
    # What had to be raised again is not lowered as soon as before.
    twice = [length < 0.89 for length in lengths_of_steps(2 * (flat + falling))]
    assert sum(twice[len(raised) :]) > sum(raised)
