"""Options of belief propagation: which go together, and what they imply."""

import numpy as np
import pytest

from fastmf.inference.bp import _options
from fastmf.inference.bp._options import BPOptions


@pytest.mark.parametrize(
    "options, error",
    [
        ({"algorithm": "min"}, "algorithm"),
        ({"damping": 1.0}, "damping"),
        ({"damping": 0.5, "algorithm": "mixed"}, "damping"),
        ({"max_iter": 0}, "max_iter"),
        ({"pairwise": "sum"}, "pairwise"),
        ({"pairwise": True, "algorithm": "max"}, "pairwise needs"),
        ({"polish": True}, "polish needs"),
        ({"messages": True, "algorithm": "mixed"}, "messages must be False"),
        ({"n_restarts": -1}, "n_restarts"),
        ({"n_threads": 0}, "n_threads"),
    ],
)
def test_bad_options(options, error):
    with pytest.raises(ValueError, match=error):
        BPOptions(**options)


def test_assignments_are_polished_unless_declined():
    assert not BPOptions().polishes
    for algorithm in ("max", "mixed"):
        assert BPOptions(algorithm=algorithm).polishes
        assert not BPOptions(algorithm=algorithm, polish=False).polishes


def test_residuals_are_kept_as_far_as_they_are_affordable(monkeypatch):
    monkeypatch.setattr(_options, "MAX_HISTORY_SIZE", 1000)
    assert BPOptions(max_iter=100).history_length(10) == 100
    assert BPOptions(max_iter=100).history_length(11) == 0
    assert BPOptions(max_iter=100, history=True).history_length(11) == 100
    # A fixed number of sweeps neither converges nor cycles.
    assert BPOptions(max_iter=100, tol=0).history_length(1) == 0


def test_any_number_of_sweeps_is_allowed():
    assert BPOptions(max_iter=np.int64(10**15)).history_length(1) == 0
