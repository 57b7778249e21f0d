"""Signs of progress of long calculations."""

import subprocess
import sys

import numpy as np
import pytest

from fastmf._common import progress
from fastmf._common.progress import followed


def test_iterations_are_reported_every_few_seconds(monkeypatch, capsys):
    assert progress.reported(False) is None
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    report = progress.reported(True)
    for iteration, now[0] in enumerate([1.0, 6.0, 10.0, 11.5]):
        report(iteration, 0.25 - iteration)
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "iteration 2", "iteration 4",
    ]  # fmt: skip


def test_steps_are_followed_by_a_bar_or_by_lines_and_else_in_silence(monkeypatch, capsys):
    assert list(followed(range(3), "samples", False)) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    assert list(followed([5, 6], "samples", True)) == [5, 6]
    shown = capsys.readouterr().err
    assert "samples" in shown and "2/2" in shown
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr("fastmf._common.progress.SECONDS", 0.0)
    assert list(followed([5, 6], "samples", True)) == [5, 6]
    assert capsys.readouterr().err == "0/2 samples\n1/2 samples\n"
    monkeypatch.setattr("fastmf._common.progress.SECONDS", np.inf)
    assert list(followed([5, 6], "samples", True)) == [5, 6]
    assert capsys.readouterr().err == ""


def test_a_loop_that_is_left_ends_what_followed_it(capsys):
    for step in followed(range(100), "samples", True):
        if step == 3:
            break
    shown = capsys.readouterr().err
    assert "100/100" not in shown and shown.endswith("\n")


@pytest.mark.parametrize("before", ["sys.stderr = None", "os.close(2)"])
def test_progress_without_a_stderr(before):
    """tqdm's bar, and lines where it is not installed."""
    code = f"""
import os, sys
from fastmf._common.progress import followed, reported
{before}
assert list(followed(range(3), "steps", True)) == [0, 1, 2]
sys.modules["tqdm"] = None
from fastmf._common import progress
progress.SECONDS = 0
assert list(followed(range(3), "steps", True)) == [0, 1, 2]
reported(True)(0, 1.0)
print("done", flush=True)
os._exit(0)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.stdout.strip() == "done"
