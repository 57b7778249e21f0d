"""Comparisons of runs of training."""

import numpy as np

from fastmf.learning.layered.step import Plan
from fastmf.learning.training.ascent import initial_state
from fastmf.learning.training.trainer import stream
from fastmf.priors._protocol import learned_fields


def assert_equal(found, expected, **close):
    """Compare couplings, learned fields of all units, their last step, and persistent states."""

    def arrays(state):
        parts = (*state.model.layers, *state.velocity.layers)
        fields = [field for prior in parts for field in learned_fields(prior)]
        return [*state.model.couplings, *state.velocity.couplings, *state.chains, *fields]

    for one, other in zip(arrays(found), arrays(expected), strict=True):
        np.testing.assert_allclose(one, other, **close)


def assert_same(state, other):
    """Compare all that a run has left, bit by bit."""
    assert_equal(state, other, rtol=0)
    assert state.history == other.history
    for part, expected in zip(state.preconditioners, other.preconditioners, strict=True):
        np.testing.assert_array_equal(part, expected)


def states_by_threads(model, X, settings, rows, rate):
    """States after steps of one, two and three threads."""
    states = []
    for n_threads in (1, 2, 3):
        state, step = initial_state(model), Plan(model, settings, n_threads)
        for k, batch in enumerate(rows):
            step(state, X[batch], rate, stream(0, 0, k))
        states.append(state)
    return states
