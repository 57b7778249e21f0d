"""Parallel updates of blocks."""

import numpy as np
import pytest

import fastmf as mf
from fastmf._outcomes import CONVERGED
from fastmf.inference.ep.block_sites import block_problem, most_included
from fastmf.inference.ep.block_sweeps import Extrapolation, block_sweeps
from fastmf.inference.ep.sites import EPTrace
from fastmf.inference.gaussian.blocks import Blocks


def problem(n_included=None, p=12):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, p)) + rng.normal(size=(60, 1))
    y = X[:, :3].sum(1) + rng.normal(size=60)
    prior = mf.GaussBernoulli(np.zeros(p), np.ones(p), np.full(p, -2.0))
    model = mf.SparseLinearModel(X, y, 1.0, prior)
    blocks = Blocks([np.arange(8), np.arange(8, 12)], p)
    return block_problem(model, blocks, (-np.inf, 1e-9, 300, 1), n_included)


def start(problem):
    blocks = problem.blocks
    elements = np.concatenate([np.eye(len(units)).ravel() for units in blocks.members])
    return problem.state_of(np.concatenate([np.zeros(blocks.n_units), elements]))


@pytest.mark.parametrize("damping", [None, 0.5])
def test_they_end_where_moments_agree(damping):
    given = problem()
    trace = EPTrace(False)
    state, outcome, _ = block_sweeps(given, start(given), damping, trace)
    assert outcome == CONVERGED
    np.testing.assert_allclose(state.gaussian, state.tilted.moments, atol=1e-8)
    assert len(trace.residuals) <= 300


def test_extrapolation_takes_fewer_updates():
    counts = []
    for damping in (None, 0.1):
        given, trace = problem([4, 8]), EPTrace(False)
        _, outcome, _ = block_sweeps(given, start(given), damping, trace)
        assert outcome == CONVERGED
        counts.append(len(trace.residuals))
    assert counts[0] < counts[1]


def test_patterns_grow_where_they_are_full():
    given = problem()
    assert given.patterns.largest.tolist() == [4, 2]
    state, _, _ = block_sweeps(given, start(given), None, EPTrace(False))
    # Three effects: of the blocks, only that of the first eight features needs all patterns.
    assert state.problem.patterns.largest[1] == most_included(8) == 8
    all_patterns = problem([4, 8])
    full, _, _ = block_sweeps(all_patterns, start(all_patterns), None, EPTrace(False))
    np.testing.assert_allclose(state.gaussian, full.gaussian, atol=1e-7)


def test_a_linear_iteration_is_solved_in_as_many_steps_as_it_has_dimensions():
    """Anderson's extrapolation of a linear map of rank two, here of made-up states."""
    given = problem()
    state = start(given)
    rng = np.random.default_rng(1)
    n = len(state.site)
    directions = rng.normal(size=(2, n))
    goal = rng.normal(size=n)
    coefficients, site = np.array([3.0, -2.0]), None
    extrapolation = Extrapolation(given)
    extrapolation._difference = lambda made: made.proposal - made.site
    rates = np.array([0.5, -0.7])
    for _ in range(3):
        site = goal + coefficients @ directions if site is None else site
        coordinates = np.linalg.lstsq(directions.T, site - goal, rcond=None)[0]
        step = (rates - 1) * coordinates @ directions
        extrapolation.add(state._replace(site=site, proposal=site + step))
        site = extrapolation(1.0)
    np.testing.assert_allclose(site, goal, atol=1e-6)
