"""Cache of compiled code in a folder that many processes may share.

The name of the folder has a digest of the package's sources and of the versions of compilers, so
that a new version does not use the code of another one. Each compiled function is in a separate
file, which is written under another name and then renamed, so that readers never see a part of it.
If the folder is damaged or lost, the code is compiled again.
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

# A file begins with a digest of the rest.
DIGEST_BYTES = hashlib.sha256().digest_size
# Numba's settings that change machine code, besides those of the processor.
SETTINGS = (
    *("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "USING_SVML", "ENABLE_AVX"),
    *("DEBUGINFO_DEFAULT", "EXTEND_VARIABLE_LIFETIMES", "DEBUG_JIT", "DEBUG_NRT"),
    *("LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS"),
)
# Versions of the compilers, and whether assertions are compiled (not with `-O`).
_COMPILERS = (
    sys.version, sys.flags.optimize, numba.__version__, llvmlite.__version__, np.__version__
)  # fmt: skip
# Kernels use the widest vectors of this processor, whatever NUMBA_CPU_FEATURES is.
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
    """Return the folder of code of the present sources; remove those not used for a month.

    A folder that cannot be written is used if it has code. None if no folder can be used, or if the
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
        # The name depends on processor and operating system, as several machines may share a home
        # folder, and not on the returned type. Numba, too, reloads its settings from the
        # environment before it compiles.
        config.reload_config()
        settings = [f"{name}={getattr(config, name, None)}" for name in SETTINGS]
        arguments = tuple(getattr(signature, "args", signature))
        key = f"{arguments} {codegen.magic_tuple()} {_PROCESSOR} {settings}"
        return folder() / f"{self._stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.nbc"

    def load_overload(self, signature, target_context):
        """Return the compiled function; None if there is no file, or a damaged one."""
        # Loaded code needs the memory management, but not the modules that compile.
        rtsys.initialize(target_context)
        try:
            content = self._path(signature, target_context.codegen()).read_bytes()
            if content[:DIGEST_BYTES] != _digest(content[DIGEST_BYTES:]):
                return None
            return CompileResult._rebuild(target_context, *pickle.loads(content[DIGEST_BYTES:]))
        except Exception:  # written by other versions of packages; the file is replaced
            return None

    def save_overload(self, signature, compiled):
        """Save a compiled function for other processes, if the folder can be written."""
        path = self._path(signature, compiled.codegen)
        temporary = path.with_suffix(f".{uuid.uuid4().hex}")
        try:
            content = dumps(compiled._reduce())
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_digest(content) + content)
            temporary.replace(path)
        except Exception:  # the function has been compiled, and is not saved
            pass
        finally:
            with suppress(OSError):
                temporary.unlink()


def _digest(content):
    return hashlib.sha256(content).digest()
