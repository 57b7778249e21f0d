"""Messages to users about the compilation of kernels.

Numba notifies listeners when the compilation of a function begins and ends; code that is loaded
from a cache is not compiled. A message goes to stderr and, at level INFO, to the logger "fastmf".
It is not printed if the environment variable FASTMF_QUIET is set (and not 0), nor if the level of
this logger is above INFO.
"""

import logging
import os
import sys
import time
from contextlib import suppress

from fastmf._jit.lazily import with_numba

LOGGER = logging.getLogger("fastmf")
NUMBAS_LOGGER = logging.getLogger("numba")

# Seconds of compilation after which a message is printed, when the next kernel begins.
SILENT_SECONDS = 1.0


def to_stderr(text):
    """Print a line to stderr, if that is possible."""
    with suppress(AttributeError, OSError, ValueError):  # None, a full disk, closed
        sys.stderr.write(f"{text}\n")  # print would use stdout instead of None
        sys.stderr.flush()


def is_quiet():
    """Return whether the user wants no messages on stderr."""
    by_level = LOGGER.level > logging.INFO  # 0 if it has not been set
    return by_level or os.environ.get("FASTMF_QUIET", "0") not in ("", "0")


class _Watch:
    """The compilation of kernels of this package, by one thread at a time.

    During compilation, Numba's logger is silenced: at level DEBUG of the root logger it would write
    some 40,000 lines for an estimator.
    """

    def __init__(self):
        self.start_anew()

    def start_anew(self):
        """Reset after a fork: the child process has no other threads that compile."""
        self._depth, self._since, self._seconds = 0, 0.0, 0.0
        self._told = self._silenced = False

    def on_start(self, event):
        if not _is_of_package(event):
            return
        now = time.monotonic()
        if not self._depth:
            self._since = now
            if NUMBAS_LOGGER.level == logging.NOTSET:  # otherwise the user has set it
                self._silenced = True
                NUMBAS_LOGGER.setLevel(logging.WARNING)
        self._depth += 1
        if not self._told and self._seconds + now - self._since >= SILENT_SECONDS:
            self._told = True
            _tell(event.data["dispatcher"].py_func.__module__)

    def on_end(self, event):
        if not _is_of_package(event) or not self._depth:
            return
        self._depth -= 1
        if self._depth:
            return
        self._seconds += time.monotonic() - self._since
        if self._silenced:
            self._silenced = False
            NUMBAS_LOGGER.setLevel(logging.NOTSET)


def _is_of_package(event):
    module = getattr(event.data["dispatcher"].py_func, "__module__", None) or ""
    return module.partition(".")[0] == __name__.partition(".")[0]


def _tell(module):
    from fastmf._jit.cache import folder

    where = "in every process, as no folder for a cache can be used"
    if folder() is not None:
        where = f"once; cached in {folder().parent} for the next time"
    text = (
        f"compiling kernels for {module}, which takes about 5 s for a solver and 10 s for an "
        f"estimator ({where})"
    )
    LOGGER.info(text)
    if not is_quiet():
        to_stderr(f"fastmf: {text}")


_WATCH = _Watch()


def _listen():
    """Register for good: Numba's list of listeners must not shrink while it is in use."""
    from numba.core import event

    methods = {name: staticmethod(getattr(_WATCH, name)) for name in ("on_start", "on_end")}
    event.register("numba:compile", type("Listener", (event.Listener,), methods)())


with_numba(_listen)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WATCH.start_anew)
