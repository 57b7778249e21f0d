"""Messages to users about the compilation of kernels, and the time that it has taken.

Numba tells listeners when a function begins to be compiled and when that ends; code that it loads
from a cache is not compiled. A message goes to stderr and, at level INFO, to the logger "fastmf".
It is not printed if the environment variable FASTMF_QUIET is set (and not 0), nor if the level of
that logger is above INFO.
"""

import logging
import os
import sys
import time
from contextlib import contextmanager, suppress

from fastmf._jit.lazily import with_numba

LOGGER = logging.getLogger("fastmf")
NUMBAS_LOGGER = logging.getLogger("numba")

# Seconds of compilation after which a user is told, with the next kernel.
SILENT_SECONDS = 1.0
# Without compilation for this time, the next one belongs to another call.
GAP = 2.0


def to_stderr(text):
    """Print a line to stderr, if there is one that takes it."""
    with suppress(AttributeError, OSError, ValueError):  # None, a full disk, closed
        print(text, file=sys.stderr, flush=True)


def is_quiet():
    """Whether users want no messages on stderr."""
    by_level = LOGGER.level > logging.INFO  # 0 if it has not been set
    return by_level or os.environ.get("FASTMF_QUIET", "0") not in ("", "0")


class _Watch:
    """The kernels of this package that are being compiled, by one thread at a time.

    Meanwhile Numba does not write messages for its own developers to a root logger at level DEBUG:
    some 40,000 lines for an estimator.
    """

    def __init__(self):
        self.seconds, self.purposes = 0.0, []
        self.start_anew()

    def start_anew(self):
        """Forget the compilation of other threads: in a forked process there are none."""
        self._depth, self._since, self._ended = 0, 0.0, 0.0
        self._start_of_call, self._told = self.seconds, set()
        self._silenced = False

    def on_start(self, event):
        if not _is_own(event):
            return
        now = time.monotonic()
        if not self._depth:
            self._since = now
            if now - self._ended > GAP:
                self._start_of_call = self.seconds
                self._told.discard(None)
            if NUMBAS_LOGGER.level == logging.NOTSET:  # otherwise it is as the user wants it
                self._silenced = True
                NUMBAS_LOGGER.setLevel(logging.WARNING)
        self._depth += 1
        if self.seconds - self._start_of_call + now - self._since >= SILENT_SECONDS:
            self._tell(event)

    def on_end(self, event):
        if not _is_own(event) or not self._depth:
            return
        self._depth -= 1
        if self._depth:
            return
        self._ended = time.monotonic()
        self.seconds += self._ended - self._since
        if self._silenced:
            self._silenced = False
            NUMBAS_LOGGER.setLevel(logging.NOTSET)

    def _tell(self, event):
        purpose, show = self.purposes[-1] if self.purposes else (None, to_stderr)
        if purpose in self._told:
            return
        self._told.add(purpose)
        text = _message(purpose or event.data["dispatcher"].py_func.__module__)
        LOGGER.info(text)
        if show is not None and not is_quiet():
            show(f"fastmf: {text}")


def _is_own(event):
    module = getattr(event.data["dispatcher"].py_func, "__module__", None) or ""
    return module.partition(".")[0] == __name__.partition(".")[0]


def _message(purpose):
    from fastmf._jit.cache import folder

    if folder() is None:
        where = "in every process, as no folder for a cache can be used"
    else:
        where = f"once; cached in {folder().parent} for the next time"
    return (
        f"compiling kernels for {purpose}, which takes about 5 s for a solver and 10 s for an "
        f"estimator ({where})"
    )


_WATCH = _Watch()


def _listen():
    """Register once and for all: Numba's list of listeners must not shrink in use."""
    from numba.core import event

    methods = {name: staticmethod(getattr(_WATCH, name)) for name in ("on_start", "on_end")}
    event.register("numba:compile", type("Listener", (event.Listener,), methods)())


with_numba(_listen)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WATCH.start_anew)


def seconds_compiling():
    """Seconds of compilation of this package's kernels in this process."""
    return _WATCH.seconds


@contextmanager
def announced(purpose, show=to_stderr):
    """While in use, messages about compilation name this purpose, and come once."""
    item = (purpose, show)
    _WATCH.purposes.append(item)
    try:
        yield
    finally:
        _WATCH.purposes.remove(item)
        _WATCH._told.discard(purpose)
