"""Compiled code kept in a folder that many processes may share.

The folder is named after a fingerprint of the package's sources, or of its bytecode where it comes
without sources, so that another version leaves the old code behind. In it each compiled function
has a file of its own, written under another name and then renamed: a reader sees all of it or
nothing. Beside a file that is still to be written lies a claim, which a process makes before it
compiles; others that need the file wait for it. Whatever becomes of the folder, at worst the code
is compiled again.
"""

import atexit
import hashlib
import inspect
import os
import pickle
import platform
import shutil
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from pkgutil import iter_modules
from types import CodeType

import llvmlite.binding
import numba
import numpy as np
from numba.core import config, event
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from fastmf import __version__

# Subpackages that compiled code can depend on, beside the modules of the package's own folder.
ROOMS = "_jit", "_threads", "priors", "kernels"
# Modules of these on which no compiled code depends.
NOT_COMPILED = ("messages",)
# A claim older than this is that of a process which has failed: no function takes as long.
CLAIM_SECONDS = 60.0
# No process waits longer than this for one function, whatever the claims say.
WAIT_SECONDS = 120.0
# Between two looks of a process that waits for another: at first, and after many.
POLL_SECONDS = 0.01, 0.05
# A file begins with a digest of the rest.
DIGEST_SIZE = 32
# Numba's settings that change machine code, beside those of the processor.
SETTINGS = (
    *("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "USING_SVML", "ENABLE_AVX"),
    *("DEBUGINFO_DEFAULT", "EXTEND_VARIABLE_LIFETIMES", "DEBUG_JIT", "DEBUG_NRT"),
    *("LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS"),
)
# What code is compiled by, and from: `-O` leaves assertions out.
_COMPILERS = (
    *(sys.version, sys.flags.optimize, numba.__version__, llvmlite.__version__, np.__version__),
)
# Vectors in kernels are as wide as this processor's, whatever NUMBA_CPU_FEATURES says.
_PROCESSOR = llvmlite.binding.get_host_cpu_features().flatten()
# Kind of the event for Numba's listeners of a process that waits for another.
WAIT = "fastmf:wait"


def _fingerprint(package):
    """Version of a package in a folder, and hash of all code that compiled code can depend on.

    None where that code cannot be read: different versions would share one folder.
    """
    modules = dict(_modules(package, ROOMS))
    if not modules or None in modules.values():
        return None
    digest = hashlib.sha256(repr(_COMPILERS).encode())
    for name, content in modules.items():
        digest.update(f"{name} {len(content)}\0".encode() + content)
    return f"{__version__}-{digest.hexdigest()[:16]}"


def _modules(folder, rooms=None):
    """Names and contents of the modules in a folder, which may be one of an archive, in order.

    Parameters
    ----------
    folder : Path
    rooms : collection of str, optional
        Packages in the folder whose modules are counted as well; default all.
    """
    for finder, name, is_package in sorted(iter_modules([str(folder)]), key=itemgetter(1)):
        if (is_package and rooms is not None and name not in rooms) or name in NOT_COMPILED:
            continue
        yield name, _content(finder, name)
        if is_package:
            for inner, content in _modules(folder / name):
                yield f"{name}.{inner}", content


def _content(finder, name):
    """Source of a module, or else its bytecode; None if neither can be read."""
    try:
        loader = finder.find_spec(name).loader
        source = loader.get_source(name)
        return _bytecode(loader.get_code(name)) if source is None else source.encode()
    except Exception:  # whatever a loader of another kind may raise
        return None


def _bytecode(code):
    """Contents of a code object, as bytes that are the same in all processes."""
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return b"\0".join(
        [repr((code.co_name, *names)).encode(), code.co_code, *map(_constant, code.co_consts)]
    )


def _constant(value):
    if isinstance(value, CodeType):
        return _bytecode(value)
    # The order of a set is another in each process.
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value).encode()


def _user_cache():
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    # The working folder may change later.
    return (Path(base).absolute() if base else Path.home() / ".cache") / "fastmf"


def _temporary_cache():
    if not hasattr(os, "getuid"):  # Windows, where every user has a temporary folder of their own
        return Path(tempfile.gettempdir()) / "fastmf"
    folder = Path(tempfile.gettempdir()) / f"fastmf-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # Compiled code is loaded from the folder, so that its owner could run any code as this user.
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder


def _cache_folder():
    """Folder of code compiled from the present sources; those unused for a month are removed.

    A folder that cannot be written serves as well if there is code in it. None if no folder can be
    used, or what is loaded cannot be read.
    """
    name = _fingerprint(Path(__file__).parents[1])
    if name is None:
        return None
    for parent in (_user_cache, _temporary_cache):
        try:
            folder = parent() / name
            if not any(folder.glob("*.nbc")):
                folder.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=folder).close()
        except (OSError, RuntimeError):  # not writable, or a user without a home
            continue
        with suppress(OSError):
            os.utime(folder)
            _remove_unused(folder.parent)
        return folder
    return None


def _remove_unused(parent):
    for old in parent.iterdir():
        if time.time() - old.stat().st_mtime > 30 * 86400:
            shutil.rmtree(old, ignore_errors=True)


FOLDER = _cache_folder()
_STARTED = time.time()


class Cache:
    """The compiled versions of one function: what a Numba dispatcher needs of its cache.

    Parameters
    ----------
    dispatcher : Numba dispatcher
    name : str
        Tells it from others of the same module and name.
    """

    def __init__(self, dispatcher, name=""):
        function = dispatcher.py_func
        parts = function.__module__, function.__qualname__.replace("<locals>.", ""), name
        self._stem = ".".join(filter(None, parts))
        self._event = {"dispatcher": dispatcher}
        self.cache_path = str(FOLDER)

    def _path(self, signature, codegen):
        # Processor and operating system too: a home folder may be seen by several machines. Whether
        # the signature says what is returned makes no difference. Numba reads its settings from the
        # environment again before it compiles.
        config.reload_config()
        settings = [f"{name}={getattr(config, name, None)}" for name in SETTINGS]
        arguments = tuple(getattr(signature, "args", signature))
        key = f"{arguments} {codegen.magic_tuple()} {_PROCESSOR} {settings}"
        return FOLDER / f"{self._stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.nbc"

    def load_overload(self, signature, target_context):
        """The compiled function; None if there is none, and this process is to compile it."""
        # Loaded code needs the memory management, but not all that Numba imports for compilation.
        rtsys.initialize(target_context)
        path = self._path(signature, target_context.codegen())
        compiled = _load(path, target_context)
        if compiled is None and not _claim(path):
            with event.trigger_event(WAIT, data=self._event):
                compiled = _wait(path, target_context)
        try:
            # Another process may have been done between the last look and the claim.
            compiled = compiled or _load(path, target_context)
        except BaseException:
            _release(path)
            raise
        if compiled is not None:
            _release(path)
        return compiled

    def save_overload(self, signature, compiled):
        """Keep a compiled function for other processes, if the folder can be written."""
        path = self._path(signature, compiled.codegen)
        temporary = path.with_suffix(f".{uuid.uuid4().hex}")
        try:
            content = dumps(compiled._reduce())
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_digest(content) + content)
            temporary.replace(path)
        except Exception:  # whatever it is, the function has been compiled
            pass
        finally:
            with suppress(OSError):
                temporary.unlink()
            _release(path)

    def give_up(self):
        """Release the claims on this function, which could not be compiled."""
        for claim in tuple(_MINE):
            if claim.name.startswith(f"{self._stem}-"):
                _release(claim)


def _digest(content):
    return hashlib.sha256(content).digest()


def _load(path, target_context):
    """The compiled function in a file; None without a file, or if it is not what was written."""
    try:
        content = path.read_bytes()
        if content[:DIGEST_SIZE] != _digest(content[DIGEST_SIZE:]):
            return None
        return CompileResult._rebuild(target_context, *pickle.loads(content[DIGEST_SIZE:]))
    except Exception:  # what is in the file may not fit what is installed; then it is replaced
        return None


def _wait(path, target_context):
    """Wait for a file that another process writes; None if this process is to compile instead."""
    end, (pause, longest) = time.monotonic() + WAIT_SECONDS, POLL_SECONDS
    while time.monotonic() < end:
        time.sleep(pause)
        pause = min(1.5 * pause, longest)
        _renew_claims()
        compiled = _load(path, target_context)
        if compiled is not None or _claim(path):
            return compiled
    return None


class _Failures(event.Listener):
    """Releases the claims on what cannot be compiled, or was interrupted."""

    def on_start(self, event):
        pass

    def on_end(self, event):
        dispatcher = event.data["dispatcher"]
        cache = getattr(dispatcher, "_cache", None)
        if isinstance(cache, Cache) and tuple(event.data["args"]) not in dispatcher.overloads:
            cache.give_up()


event.register("numba:compile", _Failures())


# --- claims ---------------------------------------------------------------------------------------

_MINE: set[Path] = set()


def _claim(path):
    """Whether this process is to compile: no other is doing so, or nobody can know."""
    claim = path.with_suffix(".claim")
    if claim in _MINE:
        return True
    try:
        file = claim.open("x")
    except FileExistsError:
        return _abandoned(claim) and not _removed(claim)
    except OSError:  # a folder that cannot be written, or is gone
        return True
    _MINE.add(claim)
    with suppress(OSError), file:  # without its text it is valid until it is too old
        file.write(f"{os.getpid()} {platform.node()}")
    _renew_claims()
    return True


def _removed(claim):
    """Remove the claim of a process that has ended: who compiles is settled by a new claim."""
    try:
        claim.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _abandoned(claim):
    """Whether the process that made a claim has ended, or has failed in some other way."""
    try:
        if abs(time.time() - claim.stat().st_mtime) > CLAIM_SECONDS:
            return True
        pid, node = claim.read_text().split(" ", 1)
        if node != platform.node() or not hasattr(os, "getuid"):  # Windows has no harmless signal
            return False
        os.kill(int(pid), 0)
        return int(pid) == os.getpid()  # an earlier process had the same number
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        # It has been released, or is not yet written, or is of another user's process.
        return False


def _renew_claims():
    """Show that this process, which compiles one function after another, is still at it."""
    for claim in tuple(_MINE):
        with suppress(OSError):
            os.utime(claim)


def _release(path):
    claim = path.with_suffix(".claim")
    if claim in _MINE:
        _MINE.discard(claim)
        with suppress(OSError):
            claim.unlink()


@atexit.register
def _release_all():
    for claim in tuple(_MINE):
        _release(claim)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_MINE.clear)


# --- users' priors --------------------------------------------------------------------------------


def name_of(class_):
    """Name of a class and of its source, or None where compiled code of it cannot be kept.

    Numba identifies a class by its name, and would not notice an edit of its methods. A class that
    another process cannot import (defined in a script or in a function) has no name: no process
    would find the code again. Neither has a class whose file has changed since this process
    started, as in a notebook: there would be old methods under the name of the new source. Modules
    that the class's module imports are not part of the name.
    """
    digest = hashlib.sha256()
    for base in class_.__mro__:
        digest.update(f"{base.__module__}.{base.__qualname__}\0".encode())
        if base in (object, tuple) or _own(base):
            continue
        if not _importable(base):
            return None
        digest.update(Path(inspect.getfile(base)).read_bytes())
    return f"{class_.__name__}-{digest.hexdigest()[:16]}"


def _own(class_):
    """Whether a class belongs to this package, whose sources name the folder."""
    return class_.__module__.partition(".")[0] == __name__.partition(".")[0]


def _importable(class_):
    """Whether other processes can import the class, from the same source as this process."""
    if class_.__module__ == "__main__" or "<locals>" in class_.__qualname__:
        return False
    try:
        return Path(inspect.getfile(class_)).stat().st_mtime < _STARTED
    except (OSError, TypeError):
        return False
