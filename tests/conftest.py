import itertools
import os

import numpy as np
import pytest

# Whether something is compiled depends on the tests before; what a test finds on stderr should not.
os.environ["FASTMF_QUIET"] = "1"

from fastmf.learning.training import trainer


@pytest.fixture(autouse=True)
def _same_draws_in_each_run(monkeypatch):
    """Let random_state=None give the same numbers each time, whatever tests ran before."""
    np.random.seed(0)  # noqa: NPY002 (what scikit-learn draws from)
    seeds = itertools.count()
    monkeypatch.setattr(trainer, "fresh_seed", lambda: next(seeds))
