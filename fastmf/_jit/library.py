"""Kernels that were built ahead for each instruction set, in files of the installed package.

`scripts/build_library.py` writes shared libraries, and an index of their functions by name and
types of arguments, with digests of the libraries and of the sources. A library is used if the
processor has its instructions and both digests are right; other functions are compiled.

A function takes the address of its arguments, one word each (for an array the address of the NumPy
object), and an address for its result.
"""

import ctypes
import hashlib
import json
import logging
import os
import platform
import struct
import sys
from functools import partial
from pathlib import Path

import numpy as np

from fastmf._jit.argument_types import TYPE_FLAGS, type_of

FOLDER = Path(__file__).with_name("built")
# Subpackages that compiled code can depend on, besides the modules in the package's top folder, and
# modules of these subpackages on which no compiled code depends.
ROOMS = "_jit", "_threads", "priors", "kernels"
NOT_COMPILED = "_jit/cache.py", "_jit/messages.py"
# Number of hexadecimal digits of a digest.
DIGEST_DIGITS = len(hashlib.sha256().hexdigest())
# Statuses with which Numba's functions return: with a result, and with None.
_SUCCESS = {0, -2}


def _level():
    """Return NUMBA_CPU_NAME, or the instruction set of this processor; None if not supported."""
    machine, named = platform.machine().lower(), os.environ.get("NUMBA_CPU_NAME")
    if machine in ("aarch64", "arm64"):
        return "aarch64"
    if machine not in ("x86_64", "amd64"):
        return None
    if named is not None:
        return named
    features = np.show_config(mode="dicts")["SIMD Extensions"]
    features = {name for names in features.values() for name in names} - {
        *features.get("not found", ())
    }
    if features & {"X86_V4", "AVX512_SKX"}:
        return "x86-64-v4"
    return "x86-64-v3" if features & {"X86_V3", "AVX2"} else None


LEVEL = _level()


def sources(package):
    """Return the paths of sources that compiled code can depend on, by names in the package."""
    folders = [package.glob("*.py"), *((package / room).rglob("*.py") for room in ROOMS)]
    paths = {path.relative_to(package).as_posix(): path for paths in folders for path in paths}
    return {name: paths[name] for name in sorted(paths) if name not in NOT_COMPILED}


def digest_of_sources(package=Path(__file__).parents[1]):
    """Return a digest of all sources that compiled code can depend on; None if unreadable."""
    digest, paths = hashlib.sha256(), sources(package)
    try:
        for name, path in paths.items():
            content = path.read_bytes()
            digest.update(f"{name} {len(content)}\0".encode() + content)
    except OSError:
        return None
    return digest.hexdigest() if paths else None


def key_of(kernel, types):
    """Return the name in the index of a kernel for these types."""
    parts = kernel.__module__, kernel.__qualname__.replace("<locals>.", ""), kernel.name
    return f"{'.'.join(filter(None, parts))}|{','.join(map(str, types))}"


# --- calls ----------------------------------------------------------------------------------------


def flatten(values, leaves, kinds):
    """Append the numbers and array addresses of arguments to `leaves`, and types to `kinds`."""
    for value in values:
        kind = type(value)
        if isinstance(value, np.ndarray):
            leaves.append(id(value))
            kinds.append((value.dtype, value.ndim, value.flags.num & TYPE_FLAGS))
        elif isinstance(value, tuple):
            kinds.append((kind, len(value)))
            flatten(value, leaves, kinds)
        else:
            leaves.append(bool(value) if kind is np.bool_ else value)
            kinds.append(kind)


def _formats(types):
    """Yield the formats of the words of arguments, for `struct`."""
    for type_ in types:
        if isinstance(type_, str):
            yield {"float64": "d", "float32": "f4x"}.get(type_, "Q" if type_[0] == "u" else "q")
        elif hasattr(type_, "members"):
            yield from _formats(type_.members)
        else:
            yield "q"


def _call(function, words, returned, is_tuple, leaves):
    result = ctypes.create_string_buffer(max(returned.size, 8))
    if function(words.pack(*leaves), result) not in _SUCCESS:
        raise MemoryError("a kernel could not get the memory that it needs.")
    values = returned.unpack_from(result)
    return values if is_tuple else values[0] if values else None


class Library:
    """The functions of a library for an instruction set.

    Raises
    ------
    ValueError
        If the library cannot be used.
    """

    def __init__(self, folder, level):
        text = (folder / "index.json").read_text()
        digest, content = text[:DIGEST_DIGITS], text[DIGEST_DIGITS + 1 :]
        if digest != hashlib.sha256(content.encode()).hexdigest():
            raise ValueError("its index is damaged")
        index = json.loads(content)
        if index["sources"] != digest_of_sources():
            raise ValueError("it was built from other sources")
        if level not in index["levels"]:
            raise ValueError(f"it has nothing for processors of the kind {level}")
        path = folder / f"{level}.so"
        if hashlib.sha256(path.read_bytes()).hexdigest() != index["levels"][level]["digest"]:
            raise ValueError(f"{path.name} is damaged")
        if not _arrays_are_as_expected():
            raise ValueError("this Python or NumPy has arrays of another form")
        self._functions = index["levels"][level]["functions"]
        self._library = ctypes.CDLL(str(path))

    def _description(self, kernel, types):
        if kernel.name is None or None in types:
            return None
        return self._functions.get(key_of(kernel, types))

    def entry(self, kernel, arguments):
        """Return the function of a kernel that takes the leaves of these arguments, or None."""
        types = tuple(map(type_of, arguments))
        description = self._description(kernel, types)
        if description is None or description["entry"] is None:
            return None
        function = self._library[description["entry"]]
        function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_char_p], ctypes.c_int
        words = struct.Struct("=" + "".join(_formats(types)))
        returned = struct.Struct("@" + description["returns"])
        return partial(_call, function, words, returned, description["is_tuple"])

    def address(self, kernel, types):
        """Return the address of a kernel that other kernels call, or None."""
        description = self._description(kernel, types)
        if description is None or description["address"] is None:
            return None
        return ctypes.cast(self._library[description["address"]], ctypes.c_void_p).value


def _arrays_are_as_expected():
    """Return whether NumPy's array objects have the memory layout that the functions expect."""
    array = np.arange(6.0).reshape(2, 3)[:, 1:]
    data, n_axes, shape, strides = struct.unpack("=qi4xqq", ctypes.string_at(id(array) + 16, 32))
    if sys.implementation.name != "cpython" or (data, n_axes) != (array.ctypes.data, 2):
        return False
    pair = ctypes.c_int64 * 2
    sizes = tuple(pair.from_address(shape)), tuple(pair.from_address(strides))
    return sizes == (array.shape, array.strides)


def _load():
    """Return the library for this processor, or None; log a warning if it cannot be used.

    The environment variable FASTMF_LIBRARY is the path of another folder, or 0 for no library.
    """
    folder = Path(os.environ.get("FASTMF_LIBRARY") or FOLDER)
    if not (folder / "index.json").exists():
        return None
    try:
        return Library(folder, LEVEL)
    except (OSError, ValueError, LookupError) as error:
        logging.getLogger("fastmf").warning(
            f"kernels that were built ahead are not used, but compiled: {error}."
        )
        return None


ACTIVE = _load()
