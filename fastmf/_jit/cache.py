"""Compiled code cached in a folder that many processes may share.

The folder is named after a digest of the package's sources and of the versions of the compilers, so
that another version does not load old code. Each compiled function has a file in it, which is
written under another name and then renamed, so that a reader sees all of it or nothing. If the
folder is damaged or removed, the code is compiled again.
"""

import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
from numba.core import config
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from fastmf._jit.library import digest_of_sources

# A file begins with a digest of the bytes after it.
DIGEST_BYTES = hashlib.sha256().digest_size
# Settings of Numba that change machine code, in addition to the processor.
SETTINGS = (
    *("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "USING_SVML", "ENABLE_AVX"),
    *("DEBUGINFO_DEFAULT", "EXTEND_VARIABLE_LIFETIMES", "DEBUG_JIT", "DEBUG_NRT"),
    *("LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS"),
)
# Versions of the compilers, and the optimisation level of Python: `-O` removes assertions.
_COMPILERS = (
    sys.version, sys.flags.optimize, numba.__version__, llvmlite.__version__, np.__version__
)  # fmt: skip
# Vectors in kernels are as wide as this processor's, whatever NUMBA_CPU_FEATURES says.
_PROCESSOR = llvmlite.binding.get_host_cpu_features().flatten()


def _user_cache():
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    # The working folder may change later.
    return (Path(base).absolute() if base else Path.home() / ".cache") / "fastmf"


def _temporary_cache():
    if not hasattr(os, "getuid"):  # Windows, where every user has a temporary folder of their own
        return Path(tempfile.gettempdir()) / "fastmf"
    folder = Path(tempfile.gettempdir()) / f"fastmf-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # Compiled code is loaded from the folder: another owner could run any code as this user.
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder


@cache
def folder():
    """Return the folder of code for the present sources, and remove folders unused for a month.

    A folder with code may be read-only. The result is None if no folder can be used, or if the
    sources cannot be read.
    """
    sources = digest_of_sources()
    if sources is None:
        return None
    name = hashlib.sha256(f"{sources} {_COMPILERS}".encode()).hexdigest()[:16]
    for parent in (_user_cache, _temporary_cache):
        try:
            path = parent() / name
            if not any(path.glob("*.nbc")):
                path.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=path).close()
        except (OSError, RuntimeError):  # not writable, or a user without a home
            continue
        with suppress(OSError):
            os.utime(path)
            _remove_unused(path.parent)
        return path
    return None


def _remove_unused(parent):
    for old in parent.iterdir():
        if time.time() - old.stat().st_mtime > 30 * 86400:
            shutil.rmtree(old, ignore_errors=True)


class Cache:
    """The compiled versions of one function: the cache of its Numba dispatcher.

    `name` distinguishes functions of the same module and name.
    """

    def __init__(self, dispatcher, name=""):
        function = dispatcher.py_func
        parts = function.__module__, function.__qualname__.replace("<locals>.", ""), name
        self._stem = ".".join(filter(None, parts))
        self.cache_path = str(folder())

    def _path(self, signature, codegen):
        # The key includes processor and operating system, as several machines may share a home
        # folder, but not the returned type. Settings are read again from the environment, as Numba
        # does before it compiles.
        config.reload_config()
        settings = [f"{name}={getattr(config, name, None)}" for name in SETTINGS]
        arguments = tuple(getattr(signature, "args", signature))
        key = f"{arguments} {codegen.magic_tuple()} {_PROCESSOR} {settings}"
        return folder() / f"{self._stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.nbc"

    def load_overload(self, signature, target_context):
        """Load the compiled function; return None without a file, or if the file is damaged."""
        # Loaded code needs Numba's memory management, but no module of its compiler.
        rtsys.initialize(target_context)
        try:
            content = self._path(signature, target_context.codegen()).read_bytes()
            if content[:DIGEST_BYTES] != _digest(content[DIGEST_BYTES:]):
                return None
            return CompileResult._rebuild(target_context, *pickle.loads(content[DIGEST_BYTES:]))
        except Exception:  # the file may not fit the installed packages; it is replaced
            return None

    def save_overload(self, signature, compiled):
        """Store a compiled function for other processes, if the folder can be written."""
        path = self._path(signature, compiled.codegen)
        temporary = path.with_suffix(f".{uuid.uuid4().hex}")
        try:
            content = dumps(compiled._reduce())
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_digest(content) + content)
            temporary.replace(path)
        except Exception:  # the function has been compiled, and need not be stored
            pass
        finally:
            with suppress(OSError):
                temporary.unlink()


def _digest(content):
    return hashlib.sha256(content).digest()
