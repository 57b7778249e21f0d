"""When Numba compiles the package's kernels, and how long that has taken so far.

Numba tells listeners when code begins to be compiled, which it does not do for code that it loads
from its cache, and when its lock is taken, which it does for both. The lock is the better clock,
the beginning of compilation the better time for a message: it comes before the wait.
"""

import logging
import sys
import threading
import time
from contextlib import contextmanager
from functools import cache

from numba.core import event

from fastmf import _numba
from fastmf.models import CRBM

LOGGER = logging.getLogger("fastmf")


class _Clock(event.Listener):
    """Seconds in which some thread was compiling, or loading compiled code."""

    def __init__(self):
        self._lock = threading.Lock()
        self._n_open, self._since, self.seconds = 0, 0.0, 0.0

    def on_start(self, event):
        with self._lock:
            if self._n_open == 0:
                self._since = time.monotonic()
            self._n_open += 1

    def on_end(self, event):
        with self._lock:
            self._n_open -= 1
            if self._n_open == 0:
                self.seconds += time.monotonic() - self._since


class _Beginnings(event.Listener):
    """Calls functions whenever a kernel of this package begins to be compiled."""

    def __init__(self):
        self.functions = []

    def on_start(self, event):
        module = getattr(event.data["dispatcher"].py_func, "__module__", None) or ""
        if module.partition(".")[0] == __name__.partition(".")[0]:
            for function in tuple(self.functions):
                function()

    def on_end(self, event):
        pass


@cache
def _listeners():
    # Registered once and for all: Numba's list of listeners must not shrink while it is walked.
    clock, beginnings = _Clock(), _Beginnings()
    event.register("numba:compiler_lock", clock)
    event.register("numba:compile", beginnings)
    return clock, beginnings


def seconds_compiling():
    """Seconds that compilation and loading from the cache have taken since the first call."""
    return _listeners()[0].seconds


def to_stderr(text):
    """Print a line to stderr."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def announced(what, show=to_stderr):
    """While in use, say once when kernels begin to be compiled; nothing if all are in the cache.

    Parameters
    ----------
    what : str
        What they are compiled for.
    show : callable or None
        Called with the line of text, which the logger "fastmf" gets too, at level INFO.
    """
    functions = _listeners()[1].functions
    kept = "once; kept in the cache for the next time"
    if _numba._CACHE_FOLDER is None:
        kept = "in every process, as there is no folder for a cache that can be written"
    text = f"compiling kernels for {what} ({kept}), which may take half a minute"
    lock, said = threading.Lock(), []

    def say():
        with lock:
            if said:
                return
            said.append(text)
        LOGGER.info(text)
        if show is not None:
            show(f"fastmf: {text}")

    functions.append(say)
    try:
        yield
    finally:
        functions.remove(say)


def units_of(model):
    """The units of a model in words, such as "Bernoulli x Bernoulli, float32"."""
    if isinstance(model, CRBM):
        return f"a conditional RBM, {model.dtype}"
    return f"{' x '.join(type(prior).__name__ for prior in model.layers)}, {model.dtype}"
