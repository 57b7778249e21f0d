import gc
import io
import logging
import os
import sys
import time
from pathlib import Path

import forks
import numba
import pytest
from new_kernels import compile_for, new_kernel

import fastmf
from fastmf._jit import cache, messages
from fastmf._jit.lazily import activate

# Stands for the second after which a user is told.
DELAY = 0.05


@pytest.fixture(autouse=True)
def short_delay(monkeypatch):
    monkeypatch.setattr(messages, "SILENT_SECONDS", DELAY)
    monkeypatch.delenv("FASTMF_QUIET", raising=False)
    messages._WATCH.start_anew()
    activate()


def test_the_user_is_told_while_code_is_compiled(capsys, caplog):
    with caplog.at_level("INFO", "fastmf"):
        compile_for(2 * DELAY)
    line = capsys.readouterr().err
    assert line.startswith("fastmf: compiling kernels for fastmf.kernels.new, which takes")
    assert str(cache.folder().parent) in line
    assert [f"fastmf: {r.getMessage()}\n" for r in caplog.records] == [line]


def test_nothing_is_said_of_what_takes_no_time(capsys):
    new_kernel()
    compile_for(DELAY / 10)
    time.sleep(2 * DELAY)
    assert capsys.readouterr().err == ""


def test_many_kernels_of_one_call_are_told_of_once(capsys):
    for _ in range(20):
        compile_for(DELAY / 5)
    compile_for(4 * DELAY, inside=lambda: compile_for(2 * DELAY))
    assert capsys.readouterr().err.count("compiling") == 1


def test_without_a_folder_for_the_cache_no_such_promise_is_made(monkeypatch, capsys):
    monkeypatch.setattr(cache, "folder", lambda: None)
    compile_for(2 * DELAY)
    assert "in every process" in capsys.readouterr().err


def test_nothing_is_said_of_what_users_compile(capsys):
    compile_for(2 * DELAY, new_kernel("theirs"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("value, n_lines", [("1", 0), ("0", 1), ("", 1)])
def test_quiet_by_the_environment(capsys, caplog, monkeypatch, value, n_lines):
    monkeypatch.setenv("FASTMF_QUIET", value)
    with caplog.at_level("INFO", "fastmf"):
        compile_for(2 * DELAY)
    assert capsys.readouterr().err.count("\n") == n_lines
    assert len(caplog.records) == 1


def test_quiet_by_the_level_of_the_logger(capsys, caplog):
    with caplog.at_level(logging.WARNING, "fastmf"):
        compile_for(2 * DELAY)
    assert capsys.readouterr().err == "" and caplog.records == []


@pytest.mark.parametrize("closed", [False, True])
def test_without_stderr_all_goes_on(monkeypatch, closed, recwarn):
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream if closed else None)
    compile_for(2 * DELAY)
    assert recwarn.list == []


def lines_of_numba(caplog):
    return sum(record.name.startswith("numba") for record in caplog.records)


def test_numba_tells_a_debugging_logger_nothing_of_these_kernels(caplog):
    numba.njit(lambda x: x + 1)(1.0)
    caplog.set_level("DEBUG")
    new_kernel()(1.0)
    assert lines_of_numba(caplog) == 0
    numba.njit(lambda x: x + 2)(1.0)  # what users compile
    assert lines_of_numba(caplog) > 0
    caplog.clear()
    with caplog.at_level("DEBUG", "numba"):  # as a user wishes
        new_kernel()(1.0)
        assert lines_of_numba(caplog) > 0
    assert logging.getLogger("numba").level == logging.NOTSET


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_in_the_middle_begins_anew():
    statuses = []

    def fork():
        pid = os.fork()
        if pid == 0:
            ok = gc.isenabled() and messages._WATCH._depth == 0
            compile_for(0)
            os._exit(0 if ok and gc.isenabled() else 1)
        statuses.append(os.waitpid(pid, 0)[1])

    compile_for(0, inside=fork)
    assert statuses == [0]


SLOW_CALL = """
import numpy as np, fastmf as mf
from fastmf._jit import messages
messages.SILENT_SECONDS = 0.05
mf.Bernoulli(np.zeros(100_000)).moments(np.zeros(100_000), 0.0)
"""


@pytest.mark.slow
def test_a_first_call_says_so_once_and_from_the_cache_nothing(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    environment["PYTHONPATH"] = str(Path(fastmf.__file__).parents[1])
    said = [forks.python(SLOW_CALL, out=tmp_path, environment=environment) for _ in range(2)]
    assert [done.returncode for done in said] == [0, 0]
    assert said[0].stderr.count("fastmf: compiling kernels") == 1
    assert said[1].stderr == ""
