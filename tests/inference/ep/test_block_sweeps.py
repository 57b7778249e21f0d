"""Parallel updates of blocks."""

import numpy as np
import pytest

import fastmf as mf
from fastmf._outcomes import CONVERGED, OUT_OF_ITERATIONS
from fastmf.inference.ep.block_sites import block_problem, most_included
from fastmf.inference.ep.block_sweeps import _Sweeps, block_sweeps
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
    state, outcome = block_sweeps(given, start(given), damping, trace)
    assert outcome == CONVERGED
    np.testing.assert_allclose(state.gaussian, state.tilted.moments, atol=1e-8)
    assert len(trace.residuals) <= 300


def test_extrapolation_takes_fewer_updates():
    counts = []
    for damping in (None, 0.1):
        given, trace = problem([4, 8]), EPTrace(False)
        _, outcome = block_sweeps(given, start(given), damping, trace)
        assert outcome == CONVERGED
        counts.append(len(trace.residuals))
    assert counts[0] < counts[1]


def test_patterns_grow_where_they_are_full():
    given = problem()
    assert given.patterns.largest.tolist() == [4, 2]
    state, _ = block_sweeps(given, start(given), None, EPTrace(False))
    # Three effects: of the blocks, only that of the first eight features needs all patterns.
    assert state.problem.patterns.largest[1] == most_included(8) == 8
    all_patterns = problem([4, 8])
    full, _ = block_sweeps(all_patterns, start(all_patterns), None, EPTrace(False))
    np.testing.assert_allclose(state.gaussian, full.gaussian, atol=1e-7)


def test_patterns_stay_small_if_they_shall():
    given = problem()
    state, outcome = block_sweeps(given, start(given), None, EPTrace(False), deepens=False)
    assert outcome == CONVERGED and state.problem.patterns.largest.tolist() == [4, 2]
    assert state.tilted.full[1] > 0.1


@pytest.mark.parametrize("patience", [3, 6])
def test_without_a_new_low_they_end(patience, monkeypatch):
    given = problem([4, 8])
    first = start(given)
    monkeypatch.setattr(_Sweeps, "_step", lambda *_: first)
    trace = EPTrace(False)
    state, outcome = block_sweeps(given, first, None, trace, patience=patience)
    assert outcome == OUT_OF_ITERATIONS and state is first
    assert len(trace.residuals) == patience + 2


def test_a_state_of_larger_patterns_keeps_its_gaussian():
    given = problem([4, 1])
    state = given.state_of(0.7 * start(given).site)
    deeper = given._replace(patterns=given.patterns._replace(largest=np.array([4, 8])))
    found, anew = deeper.retilted(state), deeper.state_of(state.site)
    assert found.problem is deeper and found.log_partition == anew.log_partition
    for name in ("site", "gaussian", "cavity", "proposal"):
        np.testing.assert_array_equal(getattr(found, name), getattr(anew, name))
    for own, other in zip(found.tilted, anew.tilted, strict=True):
        np.testing.assert_array_equal(own, other)
    # Larger patterns matter here: this is not the state from before.
    assert abs(found.tilted.moments - state.tilted.moments).max() > 1e-3
