"""Messages to users about the compilation of kernels.

Numba notifies listeners of the start and the end of each compilation; loading of cached code is not
compilation. A message goes to stderr and, at level INFO, to the logger "fastmf". It is not printed
if the environment variable FASTMF_QUIET is set (and not 0), nor if the level of that logger is
above INFO.
"""

import logging
import os
import sys
import time
from contextlib import suppress

from fastmf._jit.lazily import with_numba

LOGGER = logging.getLogger("fastmf")
NUMBAS_LOGGER = logging.getLogger("numba")

# Seconds of compilation after which a message is printed, when the next kernel is compiled.
SILENT_SECONDS = 1.0


def to_stderr(text):
    """Print a line to stderr, if it exists and can be written."""
    with suppress(AttributeError, OSError, ValueError):  # None, a full disk, closed
        sys.stderr.write(f"{text}\n")  # print would take stdout in the place of None
        sys.stderr.flush()


def is_quiet():
    """Return whether messages on stderr are turned off."""
    by_level = LOGGER.level > logging.INFO  # 0 if it has not been set
    return by_level or os.environ.get("FASTMF_QUIET", "0") not in ("", "0")


class _Watch:
    """Listener that times the compilation of this package's kernels, by one thread at a time.

    During compilation it silences Numba's debug messages, which a root logger at level DEBUG would
    print: some 40,000 lines for an estimator.
    """

    def __init__(self):
        self.start_anew()

    def start_anew(self):
        """Reset in a forked process, where no other thread compiles."""
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
    """Register once and never unregister: Numba's list of listeners must not shrink in use."""
    from numba.core import event

    methods = {name: staticmethod(getattr(_WATCH, name)) for name in ("on_start", "on_end")}
    event.register("numba:compile", type("Listener", (event.Listener,), methods)())


with_numba(_listen)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WATCH.start_anew)
