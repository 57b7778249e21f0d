"""Base class of models, and their files: arrays in one .npz without pickles, written atomically.

Members are read one by one, each after its header has been checked.
"""

import dataclasses
import gzip
import math
import os
import tempfile
import time
import zipfile
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

import numpy as np

from fastmf._common.arguments import count, file_path
from fastmf._common.rows import is_sparse
from fastmf._threads.workers import computed_once
from fastmf.models._couplings import sparse_from_arrays, sparse_to_arrays
from fastmf.priors import Concatenated
from fastmf.priors._protocol import field_names, is_concatenated
from fastmf.priors._registry import REGISTRY, USER_REGISTRY

MODELS: dict[str, type] = {}


def check_folder(path):
    """Raise unless the folder of a file exists."""
    path = file_path("path", path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file.")
    return path


@contextmanager
def replacing(path):
    """Open a temporary binary file that replaces `path` atomically when it is closed."""
    path = check_folder(path)
    _remove_leftovers(path)
    handle, temporary = tempfile.mkstemp(".tmp", f"{path.name}.", path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; give a model the permissions of any new file.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _remove_leftovers(path):
    """Remove temporary files of `path` that a killed process left more than a day ago."""
    for file in path.parent.glob(f"{escape(path.name)}.{8 * '[a-z0-9_]'}.tmp"):
        with suppress(OSError):  # another process has removed or renamed it
            if time.time() - file.stat().st_mtime > 86400:
                file.unlink()


def write_text(path, text):
    """Write a text to `path` atomically, compressed by gzip if the name ends in .gz."""
    text = text.encode()
    with replacing(path) as file:
        file.write(gzip.compress(text, mtime=0) if str(path).lower().endswith(".gz") else text)


def write_arrays(path, arrays):
    """Write named arrays to `path`, atomically."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.kind not in "fiubU":
            raise TypeError(f"{name}={array!r:.60} cannot be saved: only numbers and strings can.")
    with replacing(path) as file:
        np.savez(file, **arrays)


def plain(value):
    """Convert NumPy scalars to Python numbers, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r:.60} is neither a number nor text.")


# --- models -------------------------------------------------------------------------------------


def field_to_arrays(name, value):
    """Convert a field of a model to arrays: a matrix, sparse or not, number, prior, or tuple.

    A prior is stored as its registered name, and its fields under `name.field`.
    """
    if isinstance(value, np.ndarray | float):
        return {name: np.asarray(value)}
    if is_sparse(value):
        return sparse_to_arrays(name, value)
    if type(value) is tuple or is_concatenated(value):
        parts, kind = (value, "tuple") if type(value) is tuple else (value.parts, "concatenated")
        arrays = {name: np.array([kind, str(len(parts))])}
        for i, part in enumerate(parts):
            arrays |= field_to_arrays(f"{name}.{i}", part)
        return arrays
    registered = {class_: key for key, class_ in (REGISTRY | USER_REGISTRY).items()}
    if type(value) not in registered:
        raise TypeError(
            f"{name}: {type(value).__name__} cannot be saved, nor loaded elsewhere, before its "
            "class has the decorator fastmf.priors.register."
        )
    fields = {f"{name}.{field}": part for field, part in value._asdict().items()}
    return {name: np.array([registered[type(value)]])} | fields


def prior_from_arrays(name, arrays):
    """Read the prior that `field_to_arrays` wrote from an `Archive`."""
    kind, *count = _kind(name, arrays)
    if count:
        return Concatenated(*(prior_from_arrays(f"{name}.{i}", arrays) for i in range(*count)))
    registered = REGISTRY | USER_REGISTRY
    if kind not in registered:
        raise UnknownPrior(
            f"{arrays.prefix}{name} has the unit prior {shown(kind)[1:-1]}, which is unknown here: "
            "import the module that defines it, with the decorator fastmf.priors.register, and "
            "load again."
        )
    class_ = registered[kind]
    return class_(*(_numbers(f"{name}.{field}", arrays) for field in field_names(class_)))


def _numbers(name, arrays):
    """Read a field of a prior, which must not have NaN."""
    values = arrays.member(name, "fiub")
    if np.isnan(values).any():
        raise ValueError(f"member {shown(name)} must hold numbers, got NaN.")
    return values


def _kind(name, arrays):
    """Read the kind of a field, and the number of its parts, if any."""
    n_texts = 2 if arrays.header(name)[0] == (2,) else 1
    kind, *count = arrays.texts(name, n_texts)
    for text in count:
        if not (text.isdecimal() and len(text) < 6 and int(text)):
            raise ValueError(
                f"member {shown(name)} must hold the number of its parts, got {shown(text)}."
            )
    return kind, *map(int, count)


def field_from_arrays(name, arrays):
    """Read the field that `field_to_arrays` wrote from an `Archive`."""
    shape, dtype = arrays.header(name)
    if dtype.kind != "U":
        # Couplings of groups may be given with four axes, but have two in models and files.
        return arrays.member(name, "f", (None,) * min(2, len(shape)))[()]  # numbers are scalars
    kind, *count = _kind(name, arrays)
    if kind == "sparse":
        return sparse_from_arrays(name, arrays)
    if kind != "tuple":
        return prior_from_arrays(name, arrays)
    return tuple(field_from_arrays(f"{name}.{i}", arrays) for i in range(*count))


def model_to_arrays(model):
    """Convert a model to named arrays."""
    arrays = {"model": np.array([type(model).__name__])}
    for field in dataclasses.fields(model):
        arrays |= field_to_arrays(field.name, getattr(model, field.name))
    return arrays


def model_from_arrays(arrays):
    """Read the model that `model_to_arrays` wrote from an `Archive`."""
    (name,) = arrays.texts("model", 1)
    if name not in MODELS:
        raise ValueError(f"it holds {shown(name)}, expected one of {', '.join(MODELS)}.")
    class_ = MODELS[name]
    # Fields with defaults may be absent from files of earlier versions.
    names = [
        f.name
        for f in dataclasses.fields(class_)
        if f.name in arrays or f.default is dataclasses.MISSING
    ]
    return class_(**{name: field_from_arrays(name, arrays) for name in names})


# --- the base class -------------------------------------------------------------------------------


class Model:
    """Base class of all models: saving, copying and pickling."""

    # Whether mean-field solvers integrate units out: see `Layered`.
    is_integrated = False

    def save(self, path):
        """Write the model to `path` (.npz, without pickles, atomically); `load` reads it back."""
        write_arrays(path, model_to_arrays(self))

    def parameters(self):
        """Return the fields by name, which learning changes."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def rebuilt(self, **parameters):
        """Make a model of the same kind with these parameters."""
        return type(self)(**parameters)

    @computed_once
    def uncoupled_moments(self):
        """Means and variances of the units without couplings, by layer."""
        zero = self.dtype.type(0)
        return [prior.moments(zero, zero) for prior in self.layers]

    def __reduce__(self):
        """Copy and pickle by construction, which makes the copy's matrices read-only too."""
        return type(self), tuple(getattr(self, f.name) for f in dataclasses.fields(self))


def load(path, *, max_bytes=None):
    """Read a model that was written by its method `save`.

    Parameters
    ----------
    path : str or path
        An .npz file. Nothing in it is executed. From the file of an estimator (`fastmf train`
        writes one) its `model_` is read.
    max_bytes : int, optional
        Largest memory of its arrays; default the size of the file, which is enough for files that
        `save` wrote, or 1 GiB, for a file that was compressed later.

    Returns
    -------
    RBM, DBM, CRBM, BoltzmannMachine or SparseLinearModel
        With the same parameters, bit by bit.

    Raises
    ------
    ValueError
        If the file is damaged, truncated, not a model, or needs more memory.
    LookupError
        If its units have a prior that is neither part of this package nor registered.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np, fastmf as mf
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.npz"
    >>> mf.RBM(np.ones((3, 2)), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2))).save(path)
    >>> mf.load(path).weights.shape
    (3, 2)
    """
    with reading(path, "a model", max_bytes) as arrays:
        return model_from_arrays(arrays)


# Default limit of memory, if the file is smaller: `save` writes uncompressed files.
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
    """The prior of units in a file is neither part of this package nor registered."""


def memory_limit(n_file_bytes, max_bytes):
    """Return the largest memory of the arrays of a file, `max_bytes` or its default."""
    max_bytes = count("max_bytes", max_bytes, 0, optional=True)
    return max(MIN_MEMORY_BYTES, n_file_bytes) if max_bytes is None else max_bytes


def shown(value, length=60):
    """Format a value for a message: on one line, with bounded length."""
    # Slice text first: a name of megabytes would be copied several times.
    text = repr(value[: length + 1] if isinstance(value, str) else value)
    return text if len(text) <= length else f"{text[: length - 3]}..."


def reason(error):
    """Return the message of an error, on one line with bounded length."""
    text = "" if isinstance(error, KeyError) else " ".join(str(error)[:1000].split())
    return text[:200] or shown(error, 200)


def read_header(stream):
    """Read shape and dtype at the beginning of an array in NumPy's format."""
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"its header has the version {version}, which is unknown.")
    shape, _, dtype = _HEADERS[version](stream)
    return shape, dtype


class Archive:
    """Named arrays of an .npz file, with at most `max_bytes` of memory (`memory_limit`)."""

    def __init__(self, file, max_bytes=None):
        # NumPy would treat other files as pickles, and raise an error about pickles.
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
        """Return the members whose names begin with "prefix/", without the prefix."""
        part = object.__new__(Archive)
        part.__dict__.update(vars(self), prefix=f"{self.prefix}{prefix}/")
        return part

    def __iter__(self):
        """Yield the names of the members."""
        for name in self._members:
            if name.startswith(self.prefix):
                yield name.removeprefix(self.prefix)

    def __contains__(self, name):
        """Whether there is a member of this name."""
        return self.prefix + name in self._members

    def __getitem__(self, name):
        """Read a member of numbers or text, of any shape."""
        return self.member(name, "fiubU")

    def header(self, name):
        """Read shape and dtype of a member, without its values."""
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
        """Read an array; raise unless its kind, shape, type and range are as expected."""
        self.check(name, kinds, shape, dtype)
        with self._zip.open(self._info(name)) as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
            stream.read(1)  # at its end the checksum is verified
        if low is not None:
            wrong = array[~(np.isfinite(array) & (low <= array) & (array <= high))]
            if wrong.size:
                raise ValueError(
                    f"member {shown(self.prefix + name)} must hold finite numbers in [{low:g}, "
                    f"{high:g}], got {wrong.flat[0]:g}."
                )
        return array

    def texts(self, name, n=None):
        """Read a member of several texts as a list."""
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
    """Open the `Archive` of a file; faults of the file or its members raise one-line errors."""
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
