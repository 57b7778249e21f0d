"""Numba and llvmlite, which are imported when code is first compiled.

Kernels that were built ahead need neither. The names below stand in for modules, whose attributes
are looked up only when they are used, while Numba compiles.
"""

import os
import sys
import threading
from importlib import import_module

_WAITING: list = []
_REGISTERING = threading.RLock()
_active = False


class _Module:
    """Stand-in for a module that is imported at the first use of an attribute."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        return getattr(import_module(self._name), attribute)


numba = _Module("numba")
types = _Module("numba.core.types")
cgutils = _Module("numba.core.cgutils")
ir = _Module("llvmlite.ir")


def with_numba(register):
    """Call a function that registers something with Numba: now, or when code is first compiled."""
    if _active:
        register()
    else:
        _WAITING.append(register)


def activate():
    """Import Numba, and call the functions that `with_numba` has postponed."""
    global _active
    if _active and not _WAITING:
        return
    with _REGISTERING:
        _active = True
        import_module("numba")
        while _WAITING:
            _WAITING.pop(0)()


def is_disabled():
    """Return whether NUMBA_DISABLE_JIT tells Numba to compile nothing."""
    if "numba" in sys.modules:
        return bool(numba.config.DISABLE_JIT)
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
