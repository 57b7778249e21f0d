"""Files of models: named arrays in one .npz without pickles, written atomically."""

import dataclasses
import os
import tempfile
import time
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

import numpy as np

from fastmf._common.arguments import file_path
from fastmf._common.rows import is_sparse
from fastmf._threads.workers import computed_once
from fastmf.models._archive import UnknownPrior, reading, shown
from fastmf.models._couplings import sparse_from_arrays, sparse_to_arrays
from fastmf.priors import Concatenated
from fastmf.priors._protocol import field_names, is_concatenated, parts_of
from fastmf.priors._registry import REGISTRY, USER_REGISTRY

MODELS: dict[str, type] = {}


def check_folder(path):
    """Raise unless there is a folder for a file."""
    file_path("path", path)
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {Path(path).parent}.")


@contextmanager
def replacing(path):
    """A temporary binary file that replaces `path` atomically once it is written."""
    path = file_path("path", path)
    check_folder(path)
    _remove_leftovers(path)
    handle, temporary = tempfile.mkstemp(".tmp", f"{path.name}.", path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; a model gets the permissions that any new file would.
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
        with suppress(OSError):  # another process removes it, or has put it in its place
            if time.time() - file.stat().st_mtime > 86400:
                file.unlink()


def write_arrays(path, arrays):
    """Write named arrays to `path`, atomically."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise TypeError(f"{name}={array!r:.60} cannot be saved: it is an array of objects.")
    with replacing(path) as file:
        np.savez(file, **arrays)


def plain(value):
    """NumPy's numbers as Python's, for JSON, which encodes no other types than Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r:.60} is neither a number nor text.")


# --- models -------------------------------------------------------------------------------------


def prior_to_arrays(name, prior):
    """A prior as arrays: its registered name, and its fields under `name.field`."""
    if is_concatenated(prior):
        parts = parts_of(prior)
        arrays = {name: np.array(["concatenated", str(len(parts))])}
        for i, part in enumerate(parts):
            arrays |= prior_to_arrays(f"{name}.{i}", part)
        return arrays
    registered = {class_: key for key, class_ in (REGISTRY | USER_REGISTRY).items()}
    if type(prior) not in registered:
        raise TypeError(
            f"{name}: {type(prior).__name__} cannot be saved, nor loaded elsewhere, before its "
            "class has the decorator fastmf.priors.register."
        )
    fields = {f"{name}.{field}": value for field, value in prior._asdict().items()}
    return {name: np.array([registered[type(prior)]])} | fields


def prior_from_arrays(name, arrays):
    """The prior that `prior_to_arrays` wrote, in an `Archive`."""
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
    """A field of a prior: NaN is none."""
    values = arrays.member(name, "fiub")
    if np.isnan(values).any():
        raise ValueError(f"member {shown(name)} must hold numbers, got NaN.")
    return values


def _kind(name, arrays):
    """The kind of a field; if it has parts, also their number."""
    n_texts = 2 if arrays.header(name)[0] == (2,) else 1
    kind, *count = arrays.texts(name, n_texts)
    for text in count:
        if not (text.isdecimal() and len(text) < 6 and int(text)):
            raise ValueError(
                f"member {shown(name)} must hold the number of its parts, got {shown(text)}."
            )
    return kind, *map(int, count)


def field_to_arrays(name, value):
    """A field of a model as arrays: a matrix, sparse or not, a number, a prior, or a tuple."""
    if isinstance(value, np.ndarray | float):
        return {name: np.asarray(value)}
    if is_sparse(value):
        return sparse_to_arrays(name, value)
    if type(value) is not tuple:
        return prior_to_arrays(name, value)
    arrays = {name: np.array(["tuple", str(len(value))])}
    for i, part in enumerate(value):
        arrays |= field_to_arrays(f"{name}.{i}", part)
    return arrays


def field_from_arrays(name, arrays):
    """The field that `field_to_arrays` wrote, in an `Archive`."""
    shape, dtype = arrays.header(name)
    if dtype.kind != "U":
        # Couplings of groups may be given with four axes, but have two in models and files.
        return arrays.member(name, "f", (None,) * min(2, len(shape)))
    kind, *count = _kind(name, arrays)
    if kind == "sparse":
        return sparse_from_arrays(name, arrays)
    if kind != "tuple":
        return prior_from_arrays(name, arrays)
    return tuple(field_from_arrays(f"{name}.{i}", arrays) for i in range(*count))


def model_to_arrays(model):
    """A model as named arrays."""
    arrays = {"model": np.array([type(model).__name__])}
    for field in dataclasses.fields(model):
        arrays |= field_to_arrays(field.name, getattr(model, field.name))
    return arrays


def model_from_arrays(arrays):
    """The model that `model_to_arrays` wrote, in an `Archive`."""
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
        """The fields, by name: what learning changes."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def rebuilt(self, **parameters):
        """A model of the same kind with these parameters."""
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
        An .npz file. Nothing in it is executed. In the file of an estimator (`fastmf train` writes
        one) its `model_` is read.
    max_bytes : int, optional
        Largest memory that its arrays may take; default the size of the file, which is enough for
        what `save` writes, or 1 GiB, for a file that was compressed later.

    Returns
    -------
    RBM, DBM, CRBM, BoltzmannMachine or SparseLinearModel
        With the same parameters, bit by bit.

    Raises
    ------
    ValueError
        If the file is damaged, truncated, not a model, or would take more memory.
    LookupError
        If its units have a prior that is neither of this package nor registered.
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
