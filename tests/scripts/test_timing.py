import subprocess
import sys
from contextlib import nullcontext

import pytest


@pytest.fixture
def timing(load):
    pytest.importorskip("threadpoolctl")
    return load("timing")


@pytest.fixture
def speed_table(load, timing):
    return load("speed_table")


def test_a_script_starts_anew_without_the_kernels_of_another_processor(timing, monkeypatch):
    calls = []

    def run(command, env):
        calls.append((command, env))
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-u", "script.py", "--write"])
    for name in timing.CHOICES:
        monkeypatch.delenv(name, raising=False)
    timing.with_own_blas(lambda: calls.append("called"))
    assert calls == ["called"]
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    with pytest.raises(SystemExit) as end:
        timing.with_own_blas(lambda: calls.append("called"))
    ((command, environment),) = calls[1:]
    assert end.value.code == 3 and command == [sys.executable, "-u", "script.py", "--write"]
    assert not set(timing.CHOICES) & set(environment) and "PATH" in environment


def test_numpy_counts_with_the_number_of_threads_of_blas_that_is_faster(speed_table, monkeypatch):
    limits, seconds = [], iter([3.0, 2.0, 2.0, 5.0])

    def blas_threads(n_threads):
        limits.append(n_threads)
        return nullcontext()

    monkeypatch.setattr(speed_table, "THREADS", 2)
    monkeypatch.setattr(speed_table, "blas_threads", blas_threads)
    assert speed_table.by_numpy(next, seconds) == 2.0
    assert speed_table.by_numpy(next, seconds) == 2.0
    assert limits == [1, 2, 1, 2]
