import subprocess
import sys

import pytest


@pytest.fixture
def timing(load):
    pytest.importorskip("threadpoolctl")
    return load("timing")


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
