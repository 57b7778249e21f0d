"""When kernels are compiled: what users are told, and how long it has taken so far.

Numba tells listeners when code begins to be compiled, which it does not do for code that it loads
from its cache, and when its lock is taken, which it does for both. The lock is the better clock,
the beginning of compilation the better start of a message.

A message goes to stderr and, at level INFO, to the logger "fastmf". It is not printed if the
environment variable FASTMF_QUIET is set (and not 0), nor if the level of that logger is above INFO.
"""

import logging
import os
import sys
import threading
import time
from contextlib import contextmanager, suppress

from fastmf._jit.lazily import with_numba

LOGGER = logging.getLogger("fastmf")
NUMBAS_LOGGER = logging.getLogger("numba")

# Seconds of compilation before a user is told.
SILENT_SECONDS = 1.0
# Without compilation for so long, what comes next is another call's.
GAP = 2.0


def to_stderr(text):
    """Print a line to stderr, if there is one that takes it."""
    with suppress(AttributeError, OSError, ValueError):  # None, a full disk, closed
        print(text, file=sys.stderr, flush=True)


def is_quiet():
    """Whether users want no messages on stderr."""
    by_level = LOGGER.level > logging.INFO  # 0 if it has not been set
    return by_level or os.environ.get("FASTMF_QUIET", "0") not in ("", "0")


class _Clock:
    """Seconds in which some thread was compiling, or loading compiled code."""

    def __init__(self):
        self.start_anew()

    def start_anew(self):
        """Forget what other threads are doing: in a forked process there are none."""
        self._lock = threading.Lock()
        self._n_open, self._since, self.seconds = 0, 0.0, 0.0

    def on_start(self, event):
        with self._lock:
            if self._n_open == 0:
                self._since = time.monotonic()
            self._n_open += 1

    def on_end(self, event):
        with self._lock:
            self._n_open = max(self._n_open - 1, 0)
            if self._n_open == 0:
                self.seconds += time.monotonic() - self._since


class _Watch:
    """Tells the user when kernels of this package have been compiled for `SILENT_SECONDS` seconds.

    Numba does not tell a root logger at level DEBUG, for its own developers, what it does: some
    40,000 lines for an estimator.
    """

    def __init__(self):
        self.purposes, self._silenced = [], False
        self.start_anew()

    def start_anew(self):
        """Forget what other threads are doing: in a forked process there are none."""
        self._lock = threading.Lock()
        self._depth, self._seconds, self._since, self._ended = 0, 0.0, 0.0, 0.0
        self._timer, self._told = None, set()
        self._let_numba_speak()

    def on_start(self, event):
        if not _is_own(event):
            return
        with self._lock:
            self._depth += 1
            self._silence_numba()
            if self._depth > 1:
                return
            self._since = time.monotonic()
            if self._since - self._ended > GAP:
                self._seconds = 0.0
                self._told.discard(None)
            if self._purpose()[0] not in self._told:
                self._start_timer(event)

    def on_end(self, event):
        if not _is_own(event):
            return
        with self._lock:
            self._depth = max(self._depth - 1, 0)
            if self._depth:
                return
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._ended = time.monotonic()
            self._seconds += self._ended - self._since
            self._let_numba_speak()

    def begin(self, purpose):
        """Purpose of all that is compiled from now on."""
        with self._lock:
            self.purposes.append(purpose)
            self._seconds = 0.0

    def end(self, purpose):
        with self._lock:
            self.purposes.remove(purpose)
            self._told.discard(purpose[0])

    def _purpose(self):
        return self.purposes[-1] if self.purposes else (None, to_stderr)

    def _start_timer(self, event):
        wait = max(SILENT_SECONDS - self._seconds, 0.0)
        self._timer = threading.Timer(wait, self._tell, (event,))
        # No thread can be started while the interpreter shuts down.
        with suppress(RuntimeError):
            self._timer.start()

    def _tell(self, event):
        with self._lock:
            what, show = self._purpose()
            if self._timer is not threading.current_thread() or what in self._told:
                return
            self._told.add(what)
        text = _message(event, what)
        LOGGER.info(text)
        if show is not None and not is_quiet():
            # Without stderr, or with one that is closed, nobody is there to be told.
            with suppress(OSError, ValueError, AttributeError):
                show(f"fastmf: {text}")

    def _silence_numba(self):
        if NUMBAS_LOGGER.level == logging.NOTSET:  # otherwise it is as the user wants it
            self._silenced = True
            NUMBAS_LOGGER.setLevel(logging.WARNING)

    def _let_numba_speak(self):
        if self._silenced:
            self._silenced = False
            NUMBAS_LOGGER.setLevel(logging.NOTSET)


def _is_own(event):
    module = getattr(event.data["dispatcher"].py_func, "__module__", None) or ""
    return module.partition(".")[0] == __name__.partition(".")[0]


def _message(event, what):
    from fastmf._jit.cache import folder

    if folder() is None:
        kept = "in every process, as no folder for a cache can be used"
    else:
        kept = f"once; kept in {folder().parent} for the next time"
    return (
        f"compiling kernels for {what or event.data['dispatcher'].py_func.__module__}, which takes "
        f"about 5 s for a solver and 10 s for an estimator ({kept})"
    )


_CLOCK, _WATCH = _Clock(), _Watch()


def _listen():
    """Register once and for all: Numba's lists of listeners must not shrink in use."""
    from numba.core import event

    for kind, listener in ("numba:compiler_lock", _CLOCK), ("numba:compile", _WATCH):
        methods = {"on_start": listener.on_start, "on_end": listener.on_end}
        methods = {name: staticmethod(method) for name, method in methods.items()}
        event.register(kind, type("Listener", (event.Listener,), methods)())


with_numba(_listen)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CLOCK.start_anew)
    os.register_at_fork(after_in_child=_WATCH.start_anew)


def seconds_compiling():
    """Seconds that compilation and loading from the cache have taken in this process."""
    return _CLOCK.seconds


@contextmanager
def announced(what, show=to_stderr):
    """While in use, messages about compilation say what for, and come once."""
    purpose = (what, show)
    _WATCH.begin(purpose)
    try:
        yield
    finally:
        _WATCH.end(purpose)
