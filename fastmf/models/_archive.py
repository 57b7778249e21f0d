"""Reading of .npz files: members are read one by one, each once its header says that it fits."""

import math
import zipfile
from contextlib import contextmanager

import numpy as np

from fastmf._common.arguments import file_path

# Compressed arrays may take this memory, or the size of the file: `save` writes uncompressed ones.
MIN_MEMORY_BYTES = 2**30

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_KINDS = {
    "f": "floats",
    "iu": "integers",
    "U": "text",
    "fiu": "numbers",
    "fiub": "numbers",
    "fiubU": "values",
}


class UnknownPrior(LookupError):
    """The prior of units in a file is neither of this package nor registered."""


def memory_limit(n_file_bytes, max_bytes):
    """Largest memory of the arrays of a file: `max_bytes`, or what any honest file needs."""
    return max(MIN_MEMORY_BYTES, n_file_bytes) if max_bytes is None else max_bytes


def shown(value, length=60):
    """A value in a message: on one line, of bounded length."""
    # Slices of text first: a name of megabytes would be copied several times.
    text = repr(value[: length + 1] if isinstance(value, str) else value)
    return text if len(text) <= length else f"{text[: length - 3]}..."


def reason(error):
    """Message of an error, on one line of bounded length."""
    text = "" if isinstance(error, KeyError) else " ".join(str(error)[:1000].split())
    return text[:200] or shown(error, 200)


def read_header(stream):
    """Shape and dtype at the beginning of an array in NumPy's format."""
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"its header has the version {version}, which is unknown.")
    shape, _, dtype = _HEADERS[version](stream)
    return shape, dtype


class Archive:
    """Named arrays of an .npz file, which take at most `max_bytes` of memory (`memory_limit`)."""

    def __init__(self, file, max_bytes=None):
        # NumPy takes anything else for a pickle, and its message would be about pickles.
        if file.read(2) != b"PK":
            raise ValueError("not an .npz archive")
        self._zip, self.prefix = zipfile.ZipFile(file), ""
        members = self._zip.infolist()
        self._members = {
            info.filename.removesuffix(".npy"): info
            for info in members
            if info.filename.endswith(".npy")
        }
        self._max_bytes = memory_limit(file.seek(0, 2), max_bytes)
        self._read_bytes = {}

    def under(self, prefix):
        """The members whose names begin with "prefix/", without that."""
        part = object.__new__(Archive)
        part.__dict__.update(vars(self), prefix=f"{self.prefix}{prefix}/")
        return part

    def __iter__(self):
        """Yield the names of the members."""
        for name in self._members:
            if name.startswith(self.prefix):
                yield name.removeprefix(self.prefix)

    def __contains__(self, name):
        """Whether there is such a member."""
        return self.prefix + name in self._members

    def __getitem__(self, name):
        """A member of numbers or text, of any shape."""
        return self.member(name, "fiubU")

    def header(self, name):
        """Shape and dtype of a member, without its values."""
        info = self._info(name)
        full = self.prefix + name
        self._read_bytes[full] = info.file_size
        needed = sum(self._read_bytes.values())
        if needed > self._max_bytes:
            raise ValueError(
                f"its compressed arrays need {needed} bytes, more than max_bytes="
                f"{self._max_bytes}; pass a larger one if there is memory."
            )
        with self._zip.open(info) as stream:
            shape, dtype = read_header(stream)
            n_bytes = math.prod(shape) * dtype.itemsize
            if not dtype.hasobject and n_bytes != info.file_size - stream.tell():
                raise ValueError(f"member {shown(full)} does not have the size of its shape.")
        return shape, dtype

    def check(self, name, kinds="f", shape=None, dtype=None):
        """Raise unless the header of a member is as expected: see `member`."""
        actual_shape, actual = self.header(name)
        fits = actual.kind in kinds and (dtype is None or actual == dtype)
        if shape is not None:
            fits = fits and len(shape) == len(actual_shape)
            fits = fits and all(n in (None, m) for n, m in zip(shape, actual_shape, strict=True))
        if not fits:
            expected = _KINDS[kinds] if dtype is None else f"{np.dtype(dtype)}"
            if shape is not None:
                expected += f" of shape {_shape(shape)}"
            raise ValueError(
                f"member {shown(self.prefix + name)} must hold {expected}, got {actual!s:.60} of "
                f"shape {shown(actual_shape)}."
            )

    def member(self, name, kinds="f", shape=None, dtype=None, low=None, high=np.inf):
        """An array of certain kinds of values, and of a certain shape."""
        self.check(name, kinds, shape, dtype)
        with self._zip.open(self._info(name)) as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
            stream.read(1)  # the checksum is compared at the end
        if low is not None:
            wrong = array[~(np.isfinite(array) & (low <= array) & (array <= high))]
            if wrong.size:
                raise ValueError(
                    f"member {shown(self.prefix + name)} must hold finite numbers in [{low:g}, "
                    f"{high:g}], got {wrong.flat[0]:g}."
                )
        return array

    def texts(self, name, n=None):
        """A member of several texts, as a list."""
        return [str(text) for text in self.member(name, "U", (n,))]

    def _info(self, name):
        if name not in self:
            raise ValueError(f"it lacks the member {shown(self.prefix + name)}.")
        return self._members[self.prefix + name]


def _shape(shape):
    inside = ", ".join("any" if n is None else str(n) for n in shape)
    return f"({inside}{',' if len(shape) == 1 else ''})"


@contextmanager
def reading(path, what, max_bytes=None):
    """The `Archive` of a file; faults of the file or its members are errors of one line."""
    with open(file_path("path", path), "rb") as file:
        # The zip and header parsers raise exceptions of many types for damaged bytes, and their
        # messages may contain the whole file.
        try:
            archive = Archive(file, max_bytes)
        except Exception as error:
            damaged = f"{path} is damaged or no file of fastmf: {reason(error)}"
            raise ValueError(damaged) from error
        try:
            yield archive
        except UnknownPrior as error:
            raise UnknownPrior(f"{path}: {error}") from None
        except MemoryError as error:
            raise MemoryError(f"{path}: there is not enough memory for its arrays.") from error
        except Exception as error:
            kind = "damaged or not" if isinstance(error, zipfile.BadZipFile) else "not"
            raise ValueError(f"{path} is {kind} {what} of fastmf: {reason(error)}") from error
