import gc
import itertools
import os
import re
from pathlib import Path

import numpy as np
import pytest

# Whether something is compiled depends on the tests before; what a test finds on stderr should not.
os.environ["FASTMF_QUIET"] = "1"
# Dask's workers are forks of a process that has imported it.
if hasattr(os, "fork"):
    os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")

from fastmf.learning.training import trainer

# Files in order: kernels beside their twins, so that later tests find these compiled, then files
# that take long. Begun at the end, one would keep a single process busy.
FIRST = "test_twins.py", "test_conformance.py", "test_learning.py"
# Folders and files of tests that no user's answer depends on: run each night (`make nightly`).
NIGHTLY = "house", "scripts", "typing", "test_docstrings.py", "test_documentation.py"


def pytest_ignore_collect(collection_path, config):
    """Leave what is in the nightly group out unless a path in it is given."""
    if collection_path.parent == Path(__file__).parent and collection_path.name in NIGHTLY:
        given = [Path(argument.split("::")[0]).resolve() for argument in config.args]
        return not any(path.is_relative_to(collection_path) for path in given) or None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Search for unreachable cycles among what tests make, not in all that is imported for them.

    These are 1.5 million objects: the search took a fifth of the time of tests. It is not switched
    off, as Dask restores the state in which it was imported.
    """
    gc.set_threshold(1_000_000)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)


def pytest_collection_modifyitems(items):
    """Order the files."""
    rank = {name: k for k, name in enumerate(FIRST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(FIRST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Divide tests among processes by files, and kernels beside their twins by families."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid):
            family = re.search(r"test_twins\.py::\w+\[(\w+\.\w+)\.", nodeid)
            return family[1] if family else super()._split_scope(nodeid)

    return Scheduler(config, log)


@pytest.fixture(autouse=True)
def _same_draws_in_each_run(monkeypatch):
    """Let random_state=None give the same numbers each time, whatever tests ran before."""
    np.random.seed(0)  # noqa: NPY002 (what scikit-learn draws from)
    seeds = itertools.count()
    monkeypatch.setattr(trainer, "fresh_seed", lambda: next(seeds))
