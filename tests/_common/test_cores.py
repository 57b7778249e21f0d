import math
import os

import forks
import numba
import pytest
from numba.np.ufunc import parallel

from fastmf._threads import workers
from fastmf._threads.workers import n_cores, quota


def written(folder, files):
    """A folder with these files: name -> text."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        # In a container with a namespace of its own, the group is the root.
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 0.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        # The smallest limit from the group up to the root, whose file is missing.
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "150000 100000\n", "a/cpu.max": "300000 100000\n"}, 1.5),
        # The group's own folder is not to be seen in the container.
        ("0::/far/away\n", {"cpu.max": "100000 50000\n"}, 2),
        # What cannot be understood is no limit.
        ("0::/\n", {"cpu.max": "\n"}, math.inf),
        ("0::/\n", {"cpu.max": "many few\n"}, math.inf),
        ("0::/\n", {"cpu.max": "100000 0\n"}, math.inf),
        ("nonsense\n", {"cpu.max": "100000 100000\n"}, math.inf),
        ("", {}, math.inf),
    ],
)  # fmt: skip
def test_quota(tmp_path, groups, files, expected):
    root = written(tmp_path, {"root/" + name: text for name, text in files.items()}) / "root"
    (tmp_path / "groups").write_text(groups)
    assert quota(root, tmp_path / "groups") == expected


@pytest.mark.parametrize(
    ("affinity", "limit", "expected"),
    [(8, math.inf, 8), (8, 2.5, 3), (8, 0.2, 1), (2, 4.0, 2), (1, 1.0, 1)],
)
def test_cores_are_the_smaller_of_affinity_and_quota(monkeypatch, affinity, limit, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False)
    monkeypatch.setattr(workers, "_quota_of_this_process", lambda: limit)
    assert n_cores() == expected


def test_the_default_number_of_threads(monkeypatch):
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setattr(workers, "n_cores", lambda: 3)
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 8)
    monkeypatch.setattr(parallel, "_is_initialized", False)
    monkeypatch.setattr(numba, "get_num_threads", lambda: 8)
    assert workers.default_threads() == 3
    assert workers.workers_for(100, 10**9) == 3
    assert workers.workers_for(100, 10**9, 5) == 5
    # By set_num_threads, which starts Numba's threads.
    monkeypatch.setattr(parallel, "_is_initialized", True)
    monkeypatch.setattr(numba, "get_num_threads", lambda: 6)
    assert workers.default_threads() == 6
    monkeypatch.setattr(numba, "get_num_threads", lambda: 8)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "8")
    assert workers.default_threads() == 8


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_a_process_that_is_bound_to_one_core_has_one_thread(monkeypatch):
    program = (
        "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from fastmf._threads.workers import default_threads; print(default_threads())"
    )
    for name in [name for name in os.environ if "NUM_THREADS" in name]:
        monkeypatch.delenv(name)
    assert forks.fresh("-c", program).stdout == "1\n"
