"""When missing values are drawn, and what a state keeps of them."""

from types import SimpleNamespace

import numpy as np
import pytest

from fastmf.learning.training.completion import FIRST_SWEEPS, SWEEPS, Completion

X = np.array([[0.0, 1.0], [np.nan, 2.0], [np.nan, np.nan]])


def test_values_are_drawn_from_those_before():
    calls = []

    def draw(model, rows, before, missing, n_sweeps, rng, n_threads):
        calls.append((rows.tolist(), n_sweeps))
        return np.where(missing, np.nan_to_num(before) + 1, before)

    features = np.ones(3)
    complete = Completion(X.copy(), draw, lambda model, x: x.max() < 9, others=(features,))
    state = SimpleNamespace(model=None, epoch=0, batch=0, completed=())
    complete.check(state)
    complete(state, "rng", 1)
    complete(state, "rng", 1)
    assert calls == [([1, 2], FIRST_SWEEPS), ([1, 2], SWEEPS)]
    np.testing.assert_array_equal(complete.data[0], [[0, 1], [2, 2], [2, 2]])
    assert complete.data[1] is features
    state.epoch = 1
    complete.check(state)
    again = Completion(X.copy(), draw, lambda model, x: True)
    again(state, None, 1)  # as a run that resumes within an epoch does
    assert len(calls) == 2
    np.testing.assert_array_equal(again.data, complete.data[0])
    state.completed = (np.full((1, 3), 9.0),)
    with pytest.raises(ValueError, match="values of the visible units"):
        complete.check(state)
    state.completed = ()
    with pytest.raises(ValueError, match=r"must have shapes \[\(1, 3\)\]"):
        complete.check(state)
