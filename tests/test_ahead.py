"""Kernels that a second process compiles."""

import io
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numba.core import event, types

import fastmf as mf
from fastmf import _ahead, _cache
from fastmf._numba import kernel
from fastmf.cli._warmup_tasks import binary_rows, layered
from fastmf.kernels import (
    belief_propagation,
    bp_blocks,
    bp_groups,
    pseudo_likelihood,
    tap,
    training,
)
from fastmf.learning.layered import steps_of_fields

PACKAGE = Path(mf.__file__).parent

# Functions that another process can import.
MODULE = """
from fastmf._numba import kernel

@kernel
def once(x):
    return x

@kernel
def twice(x):
    return 2 * x

@kernel
def broken(x):
    return x.no_such_attribute
"""
ARGUMENTS = (types.float64,)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(_cache, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(_cache, "_MINE", set())
    _cache.FOLDER.mkdir()
    return _cache.FOLDER


@pytest.fixture
def module(folder, tmp_path, monkeypatch):
    """A module of kernels, of which none has been compiled."""
    (tmp_path / "some_kernels.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_kernels", raising=False)
    import some_kernels

    return some_kernels


@pytest.fixture
def sent(monkeypatch):
    """What is sent to the second process, which is not started."""
    monkeypatch.setenv("FASTMF_COMPILERS", "2")
    monkeypatch.setattr(_ahead, "n_cores", lambda: 2)
    monkeypatch.setattr(_ahead.sys, "executable", "/bin/python3.12")
    sent = []
    monkeypatch.setattr(_ahead._SECOND, "send", sent.append)
    return sent


def wanted(module, *names):
    return [(getattr(module, name), ARGUMENTS) for name in names]


def named(*names):
    return [("some_kernels", name, ARGUMENTS) for name in names]


# --- what is sent ---------------------------------------------------------------------------------


def test_kernels_are_sent_by_their_names(module, sent):
    _ahead.compile_ahead(*wanted(module, "once", "twice"))
    assert sent == [named("once", "twice")]


def test_a_single_kernel_is_left_to_this_process(module, sent):
    _ahead.compile_ahead(*wanted(module, "once"))
    assert sent == []


def test_a_second_process_that_is_there_is_sent_a_single_kernel(module, sent, monkeypatch):
    monkeypatch.setattr(_ahead._SECOND, "is_there", lambda: True)
    _ahead.compile_ahead(*wanted(module, "once"))
    assert sent == [named("once")]


def test_what_is_compiled_kept_or_claimed_is_not_sent(module, sent):
    module.once(1.0)
    path = module.twice._cache._path(ARGUMENTS, module.twice.targetctx.codegen())
    _ahead.compile_ahead(*wanted(module, "once", "twice", "broken"))
    path.with_suffix(".claim").touch()
    _ahead.compile_ahead(*wanted(module, "once", "twice", "broken"))
    assert sent == [named("twice", "broken")]


def test_before_it_waits_this_process_compiles_what_nobody_is_about(module):
    path = module.twice._cache._path(ARGUMENTS, module.twice.targetctx.codegen())
    path.with_suffix(".claim").touch()
    _ahead.compile_rest(*wanted(module, "twice", "once"))
    assert ARGUMENTS in module.once.overloads
    assert not module.twice.overloads


def test_without_a_cache_nothing_is_compiled_before_it_is_needed(module, monkeypatch):
    monkeypatch.setattr(_cache, "FOLDER", None)
    _ahead.compile_rest(*wanted(module, "once"))
    assert not module.once.overloads


def test_what_cannot_be_found_by_its_name_is_not_sent(module, sent):
    local = kernel(lambda x: x)
    _ahead.compile_ahead(*wanted(module, "once", "twice"), (local, ARGUMENTS))
    assert sent == [named("once", "twice")]


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (_ahead, "n_cores", lambda: 1),
        (_ahead.sys, "executable", "/usr/bin/a_program_with_python_inside"),
        (_ahead.sys, "executable", None),
        (_cache, "FOLDER", None),
    ],
)
def test_where_there_is_no_second_process(module, sent, monkeypatch, owner, name, value):
    monkeypatch.setattr(owner, name, value)
    _ahead.compile_ahead(*wanted(module, "once", "twice"))
    assert sent == []


def test_the_environment_can_forbid_it(module, sent, monkeypatch):
    monkeypatch.setenv("FASTMF_COMPILERS", "1")
    _ahead.compile_ahead(*wanted(module, "once", "twice"))
    assert sent == []


def grouped():
    groups = mf.Categorical(np.zeros((2, 3)))
    return mf.RBM(np.full((6, 3), 0.1), groups, mf.Bernoulli(np.zeros(3)))


# Each solver names its last kernel, the largest, for the types with which it is called then.
NAMED = {
    "tap": (
        lambda: mf.tap(layered("float32")),
        lambda: dict(tap.kernels_of_solve(np.dtype("float32"))),
        tap.tap,
    ),
    "belief_propagation": (
        lambda: mf.belief_propagation(layered("float32")),
        lambda: dict(named_by(lambda: bp_blocks.addresses.__wrapped__(0, np.dtype("float32")))),
        belief_propagation.belief_propagation,
    ),
    "belief_propagation, categorical": (
        lambda: mf.belief_propagation(grouped()),
        lambda: dict(named_by(bp_groups.sweep_address.__wrapped__)),
        bp_groups.group_propagation,
    ),
    "bslm": (
        lambda: mf.FullyVisibleBoltzmannMachine(solver="bslm", l2=0.1).fit(2 * binary_rows() - 1),
        lambda: dict(named_by(pseudo_likelihood.bslm_addresses.__wrapped__)),
        pseudo_likelihood.bslm,
    ),
}


def named_by(call):
    """What a function gives to `compile_ahead`."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (bp_blocks, bp_groups, pseudo_likelihood, steps_of_fields):
            patch.setattr(module, "compile_ahead", lambda *wanted: found.extend(wanted))
        call()
    return [(function, tuple(types)) for function, types in found]


@pytest.mark.parametrize("name", NAMED)
def test_solvers_name_the_types_with_which_they_call(name):
    call, kernels, last = NAMED[name]
    call()
    types = kernels()[last]
    assert types in last.overloads
    alike = [
        key for key in last.overloads if str(key).count("float32") == str(types).count("float32")
    ]
    assert alike == [types]


def test_training_names_its_steps():
    X = binary_rows("float32")
    rbm = mf.GeneralizedRBM(3, n_epochs=1, random_state=0)
    found = dict(named_by(lambda: rbm.fit(X)))
    assert found[training.train] in training.train.overloads


# --- the second process ---------------------------------------------------------------------------


def compiled_by_main(*batches):
    """Names of the functions that the second process compiles, in order."""
    names = []

    class Names(event.Listener):
        def on_start(self, event):
            names.append(event.data["dispatcher"].py_func.__name__)

        def on_end(self, event):
            pass

    stream = io.BytesIO(b"".join(map(pickle.dumps, batches)))
    with event.install_listener("numba:compile", Names()):
        _ahead.main(Slow(stream))
    return names


class Slow:
    """A stream that ends only after what was read has been worked on."""

    def __init__(self, stream):
        self.stream = stream

    def read(self, n=-1):
        return self.stream.read(n) or time.sleep(3) or b""

    def readline(self):
        return self.stream.readline() or time.sleep(3) or b""


def test_it_compiles_from_the_last_to_the_first(module):
    assert compiled_by_main(named("once", "twice")) == ["twice", "once"]


def test_it_leaves_out_what_others_have_compiled_and_what_fails(module):
    module.twice(1.0)
    assert compiled_by_main(named("once", "twice", "broken")) == ["broken", "once"]


def test_it_ends_without_work(monkeypatch):
    monkeypatch.setattr(_ahead, "IDLE", 0.05)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream, os.fdopen(writer, "wb"):
        _ahead.main(stream)


def test_it_stops_between_two_kernels_when_the_first_process_ends(module, monkeypatch):
    reader, writer = os.pipe()
    compile_once = module.once.compile
    done = []

    def compile_and_wait(types):
        os.close(writer)
        time.sleep(0.3)
        done.append(compile_once(types))

    monkeypatch.setattr(module.once, "compile", compile_and_wait)
    os.write(writer, pickle.dumps(named("twice", "once")))
    with os.fdopen(reader, "rb") as stream:
        _ahead.main(stream)
    assert len(done) == 1
    assert not module.twice.overloads


# --- both -----------------------------------------------------------------------------------------

PROGRAM = """
import sys, time
import numba
from fastmf import _ahead, _cache
import some_kernels
_ahead.n_cores = lambda: 2
kernels = some_kernels.once, some_kernels.twice
_ahead.compile_ahead(*((f, (numba.float64,)) for f in kernels))
end = time.monotonic() + 60
while len(list(_cache.FOLDER.glob("*.nbc"))) < 2 and time.monotonic() < end:
    time.sleep(0.01)
print(some_kernels.once(1.5), some_kernels.twice(1.5))
print(sum(f.stats.cache_hits[(numba.float64,)] for f in kernels))
print(_ahead._SECOND._process.pid)
print(*sorted(path.stem for path in _cache.FOLDER.glob("*.claim")))
"""


def run_program(tmp_path, program=PROGRAM):
    environment = {k: v for k, v in os.environ.items() if k != "FASTMF_COMPILERS"}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path)
    environment["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), str(tmp_path)])
    (tmp_path / "some_kernels.py").write_text(MODULE)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env=environment, capture_output=True,
        text=True, check=True,
    )  # fmt: skip


def test_two_processes(tmp_path):
    done = run_program(tmp_path)
    values, n_loaded, pid, claims = done.stdout.splitlines()
    assert (values, n_loaded, claims, done.stderr) == ("1.5 3.0", "2", "second_process", "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    assert list(tmp_path.rglob("*.claim")) == []


def test_there_is_one_for_all_who_share_a_folder(module, monkeypatch):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        claim = _cache.FOLDER / "second_process.claim"
        claim.write_text(f"{other.pid} {_cache.platform.node()}")
        second = _ahead._Second()
        second.send(named("once", "twice"))
        assert second._process is None
        other.kill()


def test_what_fails_is_not_felt(module, sent, monkeypatch):
    def fail(names):
        raise OSError("no process can be started")

    monkeypatch.setattr(_ahead._SECOND, "send", fail)
    _ahead.compile_ahead(*wanted(module, "once", "twice"))
    assert module.twice(2.0) == 4


def test_an_end_is_noticed(module):
    second = _ahead._Second()
    second.send([])
    process = second._process
    assert (_cache.FOLDER / "second_process.claim").exists()
    process.stdin.close()
    process.wait()
    end = time.monotonic() + 10
    while (_cache.FOLDER / "second_process.claim").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not (_cache.FOLDER / "second_process.claim").exists()
    second.end()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_none():
    before = _ahead._SECOND
    _ahead._forget()
    assert _ahead._SECOND is not before
    _ahead._SECOND = before


def test_threads_share_it(module, sent):
    threads = [
        threading.Thread(target=_ahead.compile_ahead, args=wanted(module, "once", "twice"))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sent == [named("once", "twice")] * 4  # the second process compiles them once
