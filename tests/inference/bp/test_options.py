"""Options of belief propagation, and what they imply."""

import numpy as np
import pytest

from fastmf.inference.bp import _options
from fastmf.inference.bp._options import BPOptions


@pytest.mark.parametrize(
    "options, error",
    [
        ({"damping": 1.0}, "damping"),
        ({"max_iter": 0}, "max_iter"),
        ({"pairwise": "sum"}, "pairwise"),
        ({"n_starts": 0}, "n_starts"),
        ({"n_threads": 0}, "n_threads"),
    ],
)
def test_bad_options(options, error):
    with pytest.raises(ValueError, match=error):
        BPOptions(**options)


def test_residuals_are_kept_as_far_as_they_are_affordable(monkeypatch):
    monkeypatch.setattr(_options, "MAX_BYTES", 8000)
    assert BPOptions(max_iter=100).history_length(10) == 100
    assert BPOptions(max_iter=100).history_length(11) == 0
    assert BPOptions(max_iter=100, history=False).history_length(1) == 0


def test_any_number_of_sweeps_is_allowed():
    assert BPOptions(max_iter=np.int64(10**15)).history_length(1) == 0
