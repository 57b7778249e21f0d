"""Arrays from files: .npy, .npz, .csv and the IDX format of MNIST. Nothing is ever unpickled."""

import gzip
import math
import struct
import zipfile
from pathlib import Path

import numpy as np

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_array(path):
    """An array of numbers from a file.

    Parameters
    ----------
    path : str or path
        A file named ``*.npy``; ``*.npz`` with one array, or ``*.npz:key`` to choose one of several;
        ``*.csv`` with commas, one sample per line, perhaps under one line of column names and
        lines of comment (``#``); or any other file in IDX format. The last two may be compressed
        (``*.gz``).

    Returns
    -------
    array : array
        As stored, of two dimensions for .csv; in native byte order.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is empty, truncated, corrupted or of another format, does not hold numbers, or
        if a key is missing or unknown.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, fastmf as mf
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "table.csv"
    >>> np.savetxt(path, [[1.5, 2], [3, 4]], delimiter=",")
    >>> mf.datasets.read_array(path)
    array([[1.5, 2. ],
           [3. , 4. ]])
    """
    path, key = _split_key(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty.")
    name = path.name.lower()
    if name.endswith(".npz"):
        array = _read_npz(path, key)
    elif name.endswith(".npy"):
        array = _attempt(_read_npy, path, ".npy")
    elif name.endswith((".csv", ".csv.gz")):
        array = _attempt(_read_csv, path, ".csv")
    else:
        array = _attempt(_read_idx, path, "IDX")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{path} holds values of type {array.dtype}, not numbers.")
    if array.size == 0:
        raise ValueError(f"{path} holds an array without entries, of shape {array.shape}.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _split_key(path):
    head, found, key = str(path).rpartition(".npz:")
    return (Path(head + ".npz"), key) if found else (Path(path), None)


def _attempt(read, path, format):
    try:
        return read(path)
    # On damaged files parsers raise errors of many types, some with the whole file as message.
    except Exception as error:
        raise ValueError(f"{path} cannot be read as {format}: {error!s:.200}") from error


def _open(path):
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else open(path, "rb")


def _read_npy(path):
    # NumPy takes any unknown format for a pickle, and its error would be about pickles.
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
    return np.load(path, allow_pickle=False)


def _read_npz(path, key):
    def keys(path):
        with zipfile.ZipFile(path):
            pass
        with np.load(path, allow_pickle=False) as arrays:
            return arrays.files

    names = _attempt(keys, path, ".npz")
    if key is None and len(names) == 1:
        key = names[0]
    if key not in names:
        asked = "several arrays" if key is None else f"no array {key!r}"
        if not names:
            raise ValueError(f"{path} holds no arrays.")
        raise ValueError(f"{path} holds {asked}: choose one of {', '.join(names)} by {path}:KEY.")

    def read(path):
        with np.load(path, allow_pickle=False) as arrays:
            return arrays[key]

    return _attempt(read, path, ".npz")


def _read_csv(path):
    with _open(path) as file:
        text = file.read().decode("utf-8-sig")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if lines and not _is_numeric(lines[0]):
        del lines[0]
    if not lines:
        raise ValueError("it has no line of numbers")
    return np.loadtxt(lines, delimiter=",", ndmin=2)


def _is_numeric(line):
    """Whether any cell is a number: a line of column names has none."""
    for cell in line.split(","):
        try:
            float(cell)
        except ValueError:
            continue
        return True
    return False


def _read_idx(path):
    with _open(path) as file:
        content = file.read()
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES:
        raise ValueError("it does not begin like one (nor is it named .npy, .npz or .csv)")
    dtype, n_dimensions = np.dtype(_IDX_TYPES[content[2]]), content[3]
    start = 4 + 4 * n_dimensions
    if len(content) < start:
        raise ValueError("it ends within its header")
    shape = struct.unpack_from(f">{n_dimensions}I", content, 4)
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise ValueError(f"shape {shape} needs {expected} bytes, it has {len(content)}")
    return np.frombuffer(content, dtype, offset=start).reshape(shape)
