"""Kernels compiled ahead of their first calls, by a second process.

A solver needs several kernels. Before the first is compiled it names them all, in the order in
which it will need them. A second process then compiles them from the last to the first, while this
one goes on. Both keep their code in the cache, whose claims see to it that neither compiles what
the other does: whoever needs a kernel that the other is compiling waits for it and loads it. Before
this process waits, it compiles what is left for both.

There is one such process at a time for each folder of the cache. It ends with the process that
started it, or when it has been without work for `IDLE` seconds. There is none without a cache, on a
single core, or if the environment variable FASTMF_COMPILERS is 1.
"""

import atexit
import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue

import numba

from fastmf import _cache
from fastmf._common.cores import n_cores

# Seconds without work after which the second process ends.
IDLE = 10.0
# For fewer kernels no second process is started: it would begin when they are done.
MIN_KERNELS = 2


def compile_ahead(*wanted):
    """Name kernels that are about to be needed, so that a second process compiles some of them.

    Parameters
    ----------
    *wanted : tuple (kernel, Numba types of the arguments)
        In the order in which they are needed.
    """
    if numba.config.DISABLE_JIT or _cache.FOLDER is None:
        return
    with suppress(Exception):  # whatever fails, this process compiles all of them
        wanted = [(f, tuple(types)) for f, types in wanted]
        missing = [(*_name_of(f), types) for f, types in wanted if _is_missing(f, types)]
        enough = 1 if _SECOND.is_there() else MIN_KERNELS
        if len(missing) >= enough and _is_wanted():
            _SECOND.send(missing)


def compile_rest(*wanted):
    """Compile those kernels that are missing and that no other process is about.

    Called before the first of them is needed, which another process may be compiling.

    Parameters
    ----------
    *wanted : tuple (kernel, Numba types of the arguments)
    """
    if numba.config.DISABLE_JIT or _cache.FOLDER is None:
        return
    for function, types in wanted:
        if _is_missing(function, tuple(types)):
            function.compile(tuple(types))


def _is_missing(function, types):
    """Whether a kernel has not been compiled for such arguments, and nobody is about it."""
    if types in function.overloads or function._cache.has(types, function.targetctx):
        return False
    # The other process finds it by its name.
    module, name = _name_of(function)
    return getattr(sys.modules.get(module), name, None) is function


def _name_of(function):
    return function.py_func.__module__, function.py_func.__name__


def _is_wanted():
    if os.environ.get("FASTMF_COMPILERS") == "1" or n_cores() < 2:
        return False
    # Where Python is part of another program, that is what would be started.
    return Path(sys.executable or "").stem.lower().startswith("python")


# --- the first process ----------------------------------------------------------------------------

# Finds the same package, and imports no script.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from fastmf._ahead import main; main()"


class _Second:
    """The second process, if there is one."""

    def __init__(self):
        self._process, self._lock = None, threading.Lock()

    def is_there(self):
        """Whether it has been started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def send(self, names):
        """Let it compile kernels of these names and types; start it if there is none."""
        with self._lock:
            if not self.is_there():
                if not _cache.claim_second_process():
                    return
                self._process = self._start()
            pickle.dump(names, self._process.stdin)
            self._process.stdin.flush()

    def _start(self):
        # Compilation has one thread; more of BLAS would only spin.
        own = {"FASTMF_COMPILERS": "1", "FASTMF_QUIET": "1", "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *sys.path],
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches the first process only
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        threading.Thread(target=_wait_for, args=(process,), daemon=True).start()
        return process

    def end(self):
        """End it, in the middle of what it compiles."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            with suppress(OSError):
                self._process.stdin.close()


def _wait_for(process):
    """Notice its end: claims of a process that nobody has waited for are those of a living one."""
    process.wait()
    _cache.release_second_process()


_SECOND = _Second()
# Through the name, which a forked process gives to another object.
atexit.register(lambda: _SECOND.end())


def _forget():
    """A forked process has no part in the second process of its parent."""
    global _SECOND
    _SECOND = _Second()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# --- the second process ---------------------------------------------------------------------------


def main(stream=None):
    """Compile what is read from a stream of pickled lists, by default stdin, until it ends."""
    stream, work = stream or sys.stdin.buffer, SimpleQueue()
    ended = threading.Event()
    threading.Thread(target=_read, args=(stream, work, ended), daemon=True).start()
    with suppress(Empty):
        while not ended.is_set():
            names = work.get(timeout=IDLE)
            while names and not ended.is_set():
                _compile(*names.pop())
    if stream is sys.stdin.buffer:
        os._exit(0)  # the thread that reads would be in the way of an orderly end


def _read(stream, work, ended):
    with suppress(EOFError, OSError, ValueError):  # the last, of a stream that is closed meanwhile
        while True:
            work.put(pickle.load(stream))
    ended.set()
    work.put([])


def _compile(module, name, types):
    function = getattr(import_module(module), name)
    if _is_missing(function, types):
        with suppress(Exception):  # the first process will say what is wrong
            function.compile(types)
