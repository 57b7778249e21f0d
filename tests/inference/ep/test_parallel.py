"""The parallel schedule: steps, damping, the end."""

import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf
from fastmf._outcomes import CONVERGED, IMPROPER, OUT_OF_ITERATIONS
from fastmf.inference.ep import parallel
from fastmf.inference.ep.block_sites import block_problem
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.sites import EPTrace, problem_of
from fastmf.inference.gaussian.blocks import Blocks


@pytest.fixture
def task():
    return problem_of(problem(20, 10)[0])


def swept(task, damping, state=None, **options):
    trace = EPTrace(False)
    state = state or start_of(task)
    return *parallel.parallel_sweeps(task, state, damping, trace, **options), trace


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


def test_extrapolation_takes_fewer_iterations_to_the_same_fixed_point():
    model, _ = problem(60, 200, 5)
    task = problem_of(model, tol=1e-10)
    ends = [swept(task, damping) for damping in (None, 0.1)]
    assert all(end[1] == CONVERGED for end in ends)
    np.testing.assert_allclose(ends[0][0].tilted, ends[1][0].tilted, atol=1e-8)
    fast, slow = (end[3].residuals for end in ends)
    assert len(fast) < len(slow)


@pytest.mark.parametrize("patience", [3, 16])
def test_without_a_new_low_it_ends_early_at_the_best_state(patience):
    task = problem_of(problem(10, 25, 2, noise=0.005, inclusion_probability=0.2)[0])
    state, outcome, _, trace = swept(task, None, patience=patience)
    assert outcome == OUT_OF_ITERATIONS and len(trace.residuals) < 300
    assert state.residual() == min(trace.residuals)
    assert np.argmin(trace.residuals) == len(trace.residuals) - 2 - patience


def test_without_a_proper_step_it_ends(task, monkeypatch):
    start = start_of(task)
    monkeypatch.setattr(type(task.side), "moments", lambda side, site: None)
    state, outcome, _, trace = swept(task, None, start)
    assert outcome == IMPROPER and state is start and len(trace.residuals) == 1


def test_a_start_is_made_proper_around_its_means():
    coupling = np.array([[0.0, 5.0], [5.0, 0.0]])
    task = problem_of(mf.BoltzmannMachine(coupling, mf.Ising(np.zeros(2))))
    site, mean = np.ones((2, 2)), np.array([0.5, -0.5])
    state = parallel.proper_start(task, site, mean)
    added = state.site - site
    assert (added[1] > 0).all() and (state.site[1] > 5).all()
    np.testing.assert_allclose(added[0], added[1] * mean)


def test_a_model_without_a_proper_gaussian_is_an_error(task, monkeypatch):
    monkeypatch.setattr(type(task.side), "moments", lambda side, site: None)
    with pytest.raises(ValueError, match="no proper Gaussian side"):
        start_of(task)


def test_a_step_after_which_the_residual_is_much_larger_is_shortened(task, monkeypatch):
    start, lengths = start_of(task), []
    change = np.linalg.norm(start.proposal - start.site)

    def worse(self, site):
        lengths.append(np.linalg.norm(site - start.site) / change)
        return start._replace(tilted=start.tilted + 100)

    monkeypatch.setattr(type(task), "state_of", worse)
    assert swept(task, None, start)[1] == IMPROPER
    np.testing.assert_allclose(lengths, 0.9 * 0.4 ** np.arange(parallel.MAX_REJECTED))


def block_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 12)) + rng.normal(size=(60, 1))
    y = X[:, :3].sum(1) + rng.normal(size=60)
    return X, y, mf.GaussBernoulli(np.zeros(12), np.ones(12), np.full(12, -2.0))


def block_task():
    X, y, prior = block_data()
    model = mf.SparseLinearModel(X, y, 1.0, prior)
    blocks = Blocks([np.arange(8), np.arange(8, 12)], 12)
    return block_problem(model, blocks, (-np.inf, 1e-9, 300, 1))


def block_start(task):
    blocks = task.blocks
    elements = np.concatenate([np.eye(len(units)).ravel() for units in blocks.members])
    return task.state_of(np.concatenate([np.zeros(blocks.n_units), elements]))


@pytest.mark.parametrize("damping", [None, 0.5])
def test_blocks_share_the_schedule(damping):
    given = block_task()
    state, outcome, _, trace = swept(given, damping, block_start(given))
    assert outcome == CONVERGED and len(trace.residuals) <= 300
    np.testing.assert_allclose(state.gaussian, state.tilted.moments, atol=1e-8)
