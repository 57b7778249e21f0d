"""Arrays from files: .npy, .npz, text and the IDX format of MNIST. Nothing is ever unpickled."""

import math
import struct
import sys
from pathlib import Path

import numpy as np

from fastmf.datasets._compressed import (
    BLOCK_BYTES,
    check_memory,
    is_compressed,
    open_decompressed,
    reading,
)
from fastmf.datasets._tables import read_table, read_texts
from fastmf.models._io import Archive, memory_limit, read_header, reason

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".dat")
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_array(path, *, max_bytes=None):
    """Read an array of numbers from a file.

    Parameters
    ----------
    path : str or path
        A file named ``*.npy``; ``*.npz`` with one array, or ``*.npz:key`` to choose one of several;
        a table of text (``*.csv``, ``*.tsv``, ``*.txt``, ``*.dat``), one sample per line; or any
        other file in IDX format. All but .npz may be compressed by gzip (``*.gz``, or any name).
    max_bytes : int, optional
        Largest memory that the array of a compressed file may take; default 1 GiB, or the size of
        the file if that is more. Other arrays are bounded by the size of their file.

    Returns
    -------
    array : array
        As stored, of two dimensions for text; in native byte order.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is empty, truncated, corrupted or of another format, does not hold numbers, or
        would take more memory, or if a key is missing or unknown.
    MemoryError
        If there is not enough memory.

    Notes
    -----
    The cells of a table of text (UTF-8) are separated by commas, semicolons, tabs or blanks,
    whichever the second line has, and may be quoted. Between semicolons or tabs numbers may have
    decimal commas. The first line may hold names of the columns; names that are numbers need
    quotes. A first column without a name, as R and pandas write it, holds names of the rows, and is
    left out. Lines above the table that begin with ``#`` are comments. Empty cells, ``NA``,
    ``N/A``, ``null``, ``none``, ``?``, ``.`` and errors of spreadsheets (``#N/A``) are NaN; TRUE
    and FALSE are 1 and 0. Tables that can be read in two ways are refused, such as those with
    commas that may be decimal or separate thousands.

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
    return read_named(path, max_bytes=max_bytes)[0]


def read_named(path, ignored=(), max_bytes=None):
    """Read the array of a file and the names of its columns, None if it has no names."""
    if is_text(path):
        path = Path(path)
        with reading(path, "a table"):
            return read_table(path, _limit(path, max_bytes), ignored)
    if ignored:
        raise ValueError(f"{path} has no names of columns, such as {ignored[0]!r}.")
    head, separator, key = str(path).rpartition(".npz:")
    path, key = (Path(head + ".npz"), key) if separator else (Path(path), None)
    name = path.name.lower()
    if name.endswith(".npz"):
        array = _read_npz(path, key, max_bytes)
    else:
        read, kind = _read_idx, "IDX"
        if name.removesuffix(".gz").endswith(".npy"):
            read, kind = _read_npy, ".npy"
        with reading(path, kind):
            array = read(path, _limit(path, max_bytes))
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{path} holds values of type {array.dtype}, not numbers.")
    if array.size == 0:
        raise ValueError(f"{path} holds an array without entries, of shape {array.shape}.")
    return array.astype(array.dtype.newbyteorder("="), copy=False), None


def _limit(path, max_bytes):
    """Largest memory of the array of a compressed file; other arrays have about the file's size."""
    if not is_compressed(path) and max_bytes is None:
        return sys.maxsize - 1
    return memory_limit(path.stat().st_size, max_bytes)


def _read_npy(path, max_bytes):
    with open_decompressed(path) as file:
        # NumPy takes any unknown format for a pickle, and its error would be about pickles.
        shape, dtype = read_header(file)
        n_bytes = math.prod(shape) * dtype.itemsize
        if not is_compressed(path) and path.stat().st_size < n_bytes:
            raise ValueError(f"shape {shape} needs {n_bytes} bytes; it may be truncated")
        check_memory(n_bytes, max_bytes)
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)


def _read_npz(path, key, max_bytes):
    with reading(path, ".npz"), open(path, "rb") as file:
        archive = Archive(file, max_bytes)
        names = list(archive)
        key = names[0] if key is None and len(names) == 1 else key
        if key in names:
            return archive[key]
    if not names:
        raise ValueError(f"{path} holds no arrays.")
    asked = "several arrays" if key is None else f"no array {key!r}"
    listed = reason(", ".join(names))
    raise ValueError(f"{path} holds {asked}: choose one of {listed} by {path}:KEY.")


def read_text(path, names_of_rows=None):
    """Read names of columns and columns of text, None where missing but in names of rows."""
    path = Path(path)
    if not is_text(path):
        raise ValueError(f"{path}: the name of a table must end in {' or '.join(TEXT_SUFFIXES)}.")
    with reading(path, "a table"):
        return read_texts(path, _limit(path, None), names_of_rows)


def is_text(path):
    """Whether a file has the name of a table of text."""
    return str(path).lower().removesuffix(".gz").endswith(TEXT_SUFFIXES)


def _read_idx(path, max_bytes):
    with open_decompressed(path) as file:
        begin = file.read(4)
        if len(begin) < 4 or begin[:2] != b"\0\0" or begin[2] not in _IDX_TYPES:
            raise ValueError(
                "it does not begin like one (nor is it named .npy, .npz, .csv, .tsv, .txt or .dat)"
            )
        dtype, n_dimensions = np.dtype(_IDX_TYPES[begin[2]]), begin[3]
        sizes = file.read(4 * n_dimensions)
        if len(sizes) < 4 * n_dimensions:
            raise ValueError("it ends within its header")
        shape = struct.unpack(f">{n_dimensions}I", sizes)
        start = 4 + 4 * n_dimensions
        expected = start + math.prod(shape) * dtype.itemsize
        needs = f"shape {shape} needs {expected} bytes, it has "
        if not is_compressed(path) and path.stat().st_size != expected:
            raise ValueError(f"{needs}{path.stat().st_size}")
        check_memory(expected, max_bytes)
        # No more than what the header announces is decompressed.
        content, n_read = np.empty(expected - start, np.uint8), 0
        while got := file.readinto(memoryview(content)[n_read : n_read + BLOCK_BYTES]):
            n_read += got
        if n_read < len(content) or file.read(1):
            n_found = n_read + start
            raise ValueError(f"{needs}{'more' if n_found == expected else n_found}")
    return content.view(dtype).reshape(shape)
