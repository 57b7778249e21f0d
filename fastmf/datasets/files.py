"""Reading of arrays from .npy, .npz, text and IDX (MNIST) files; pickles are never loaded.

Files may be compressed by gzip; cells of text are separated by commas, semicolons, tabs or blanks.
"""

import csv
import gzip
import io
import math
import re
import struct
import sys
import zlib
from array import array
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

import numpy as np

from fastmf._common.arguments import file_path, number
from fastmf._common.warning import listed, warn_user
from fastmf.models._io import Archive, memory_limit, read_header, reason


def is_compressed(path):
    """Whether a file begins with gzip's signature, or has the suffix .gz."""
    with open(path, "rb") as file:
        begins = file.read(2) == b"\x1f\x8b"
    return begins or str(path).lower().endswith(".gz")


# First bytes of files with unsupported compressions and encodings.
_OTHER_FORMATS = {
    b"BZh": "compressed by bzip2: decompress it first, or compress it by gzip",
    b"\xfd7zXZ": "compressed by xz: decompress it first, or compress it by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: decompress it first, or compress it by gzip",
    b"\xff\xfe": "text in UTF-16: save it in UTF-8 (spreadsheets: CSV UTF-8)",
    b"\xfe\xff": "text in UTF-16: save it in UTF-8 (spreadsheets: CSV UTF-8)",
    b"PAR1": "in Parquet format: save it as CSV, or use data frames in Python",
    b"PK\x03\x04": "a ZIP archive or a spreadsheet: unpack it, or save it as CSV in UTF-8",
}


def check_file(path):
    """Raise if a file does not exist, is empty, or has an unsupported format."""
    if str(path) == "-":
        raise ValueError("standard input (-) is not read: write its data to a file first.")
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file.")
    if not path.is_file():
        raise ValueError(f"{path} is a pipe or device; write its data to a file first.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty.")
    with open(path, "rb") as file:
        head = file.read(8)
    for signature, what in _OTHER_FORMATS.items():
        if head.startswith(signature) and not path.name.lower().endswith(".npz"):
            raise ValueError(f"{path} is {what}.")


def open_decompressed(path):
    """Open a file for reading its uncompressed bytes."""
    return gzip.open(path, "rb") if is_compressed(path) else open(path, "rb")


def contents(path, max_bytes, n_copies=1):
    """Read the uncompressed bytes of a file; `n_copies` of them may take at most `max_bytes`."""
    pieces, n_remaining = [], number("max_bytes", max_bytes, 0, np.inf) // n_copies + 1
    with open_decompressed(path) as file:
        while piece := file.read(int(min(io.DEFAULT_BUFFER_SIZE, n_remaining))):
            pieces.append(piece)
            n_remaining -= len(piece)
    if n_remaining == 0:
        raise ValueError(
            f"it is larger than max_bytes={max_bytes:.0f} allows; pass a larger one if there is "
            f"memory for {max(3, n_copies)} times the text"
        )
    return b"".join(pieces)


def beginning(path, n_bytes):
    """Read the first uncompressed bytes of a file; none if it is damaged."""
    with open_decompressed(path) as file:
        try:
            return file.read(n_bytes)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return b""


@contextmanager
def reading(path, what):
    """Check that a file exists; convert errors of reading it to one-line errors with its name."""
    check_file(path)
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"{path}: there is not enough memory for its array.") from error
    # For damaged files, parsers raise errors of many types, and may quote the entire file.
    except Exception as error:
        raise ValueError(f"{path} cannot be read as {what}: {reason(error)}") from error


def check_memory(n_bytes, max_bytes):
    """Raise if the contents of a file need more memory than allowed."""
    if n_bytes > max_bytes:
        raise ValueError(
            f"it needs {n_bytes:.0f} bytes, more than max_bytes={max_bytes}; decompress it, or "
            "pass a larger one if there is memory"
        )


# --- tables of text -------------------------------------------------------------------------------

# Texts of missing values, in lower case, in addition to empty cells.
MISSING_CELLS = (
    "na", "n/a", "nan", "null", "none", "?", ".",
    "#n/a", "#num!", "#value!", "#div/0!", "#ref!", "#name?", "#null!",
)  # fmt: skip
_TRUTH_VALUES = {"true": 1.0, "false": 0.0}
_NAN_OF = {**dict.fromkeys(("", *MISSING_CELLS), np.nan), **_TRUTH_VALUES}
_QUOTED = re.compile(r'"[^"]*"')
# A line that declares the separator to spreadsheets.
_SEPARATOR_LINE = re.compile(r'"?sep=.?"?')
_DECIMAL_COMMA = re.compile(r"^([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)$")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d")
# A number whose comma may separate thousands: one to three digits before it, three after it.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_WITH_THOUSANDS = re.compile(r"[+-]?(\d{1,3}([.,' \xa0]\d{3})+([.,]\d*)?|\d*,\d+)")
_NO_THOUSANDS = "write decimal points, and no separators of thousands"


@contextmanager
def opened(path, max_bytes):
    """Open a table: yield column names or None, number of columns, numbered rows, separator."""
    with open_decompressed(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            first_lines = list(islice(_without_comments(_Lines(text, max_bytes)), 2))
            # Start again, so that the number of the last line read is the number of the row.
            text.seek(0)
            lines = _Lines(text, max_bytes)
            separator = _separator(first_lines[-1]) if first_lines else ","
            rows = _rows(_without_comments(lines), separator)
            unquoted = (_QUOTED.sub("", line).strip(separator + " \r\n") for line in first_lines)
            is_quoted = [text == "" for text in unquoted]  # all cells are
            has_names = first_lines and not _is_numeric(_cells(first_lines[0], separator))
            names = next(rows) if has_names or is_quoted == [True, False] else None
            if (first := next(rows, None)) is None:
                raise ValueError("it has no line of numbers, and no rows below a line of names")
            rows = _checked_rows(names, len(first), chain([first], rows), separator, lines)
            yield _fitted(names, first), len(first), rows, separator
        except UnicodeDecodeError as error:
            raise ValueError(
                "it is no text in UTF-8; save it in that encoding (spreadsheets: CSV UTF-8)"
            ) from error


def read_table(path, max_bytes, ignored=(), wanted=None):
    """Read the numbers of a table, and the names of its columns (None if it has no names)."""
    with opened(path, max_bytes) as (names, n_columns, rows, separator):
        cells, used = _Numbers(names, separator), _used(names, n_columns, ignored, wanted)
        for number, row in rows:
            cells.add(number, row, used)
    cells.check_signs()
    numbers = np.array(cells.values).reshape(cells.n_rows, len(used))
    if names is None:
        _warn_of_numeric_names(numbers)
        return numbers, None
    names = [names[j] for j in used]
    if len(names) > 1 and names[-1] == "" and np.isnan(numbers[:, -1]).all():
        return numbers[:, :-1], names[:-1]  # a separator at the end of each line
    return numbers, names


def read_text(path, names_of_rows=None):
    """Read column names and columns of text; missing cells are None, except in row names."""
    path = Path(path)
    if not is_text(path):
        raise ValueError(f"{path}: the name of a table must end in {' or '.join(TEXT_SUFFIXES)}.")
    with reading(path, "a table"):
        with opened(path, _limit(path, None)) as (names, n_columns, rows, separator):
            if names is None:
                raise ValueError("it must have a line of names, with a letter or in quotes")
            table = [[cell.strip() for cell in row] for _, row in rows]
        if not any(map(any, table)):
            raise ValueError("it must have rows below its line of names")
        columns = list(zip(*table, strict=True))
        used = _used(names, n_columns)
        if names[-1] == "" and not any(columns[-1]):  # a separator at the end of each line
            used = used[:-1]
        has_commas = separator in ";\t"
        texts = [
            columns[j] if names[j] == names_of_rows else _with_missing(columns[j], has_commas)
            for j in used
        ]
        return [names[j] for j in used], texts


def number_of(text):
    """Convert a cell to a number; None if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return None


def is_word(cell):
    """Whether a cell is neither a number, with or without separators, nor a truth value."""
    signed = cell.lower() in _TRUTH_VALUES or _WITH_THOUSANDS.fullmatch(cell)
    return number_of(cell) is None and not signed


def _with_missing(cells, has_commas):
    """Replace decimal commas, and missing cells by None; "none" among other words is a value."""
    missing = {"", *MISSING_CELLS}
    if has_commas:
        cells = [_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in cells]
    present = (cell for cell in cells if cell.lower() not in missing)
    if any(number_of(cell) is None for cell in present):
        missing.remove("none")
    return [None if cell.lower() in missing else cell for cell in cells]


class _Numbers:
    """Numbers of a table, collected row by row."""

    def __init__(self, names, separator):
        self.names, self.values, self.n_rows = names, array("d"), 0
        self.has_commas = separator in ";\t"
        # The first number with a comma, whether any comma must be decimal, the first with a point.
        self.comma = self.certain = self.point = None

    def add(self, line, row, used):
        """Append the numbers of the cells of a line."""
        self.n_rows += 1
        cells = row if len(used) == len(row) else [row[j] for j in used]
        if self.has_commas and self.point is None:
            self.point = next(filter(_DECIMAL_POINT.match, cells), None)
        n_values = len(self.values)
        try:
            # Python accepts underscores in numbers.
            if "_" not in "".join(cells):
                self.values.extend(map(float, cells))
                return
        except ValueError:
            del self.values[n_values:]
        self.values.extend(self._number(*cell, line) for cell in zip(cells, used, strict=True))

    def _number(self, cell, place, line):
        """Convert a cell: a missing value, a truth value, or a number with a decimal comma."""
        cell = cell.strip()
        if (value := _NAN_OF.get(cell.lower())) is not None:
            return value
        text = cell
        if self.has_commas and _DECIMAL_COMMA.match(cell):
            self.comma = self.comma or cell
            self.certain = self.certain or not _THOUSANDS.fullmatch(cell)
            text = cell.replace(",", ".")
        if (value := number_of(text.replace("_", "?"))) is not None:
            return value
        name = f" ({self.names[place]!r})" if self.names else ""
        advice = "leave the column out, or give its categories numbers"
        advice = _NO_THOUSANDS if _WITH_THOUSANDS.fullmatch(cell) else advice
        raise ValueError(
            f"{cell!r:.60} in column {place + 1}{name} of line {line} is no number; {advice}"
        )

    def check_signs(self):
        """Raise if the meaning of commas or points in numbers is ambiguous."""
        if self.comma and self.point:
            raise ValueError(
                f"it has numbers with commas, such as {self.comma}, and with points, such as "
                f"{self.point}: {_NO_THOUSANDS}"
            )
        if self.comma and not self.certain:
            raise ValueError(
                f"commas, such as in {self.comma}, may be decimal or separate thousands: "
                f"{_NO_THOUSANDS}"
            )


# --- lines and cells ------------------------------------------------------------------------------


class _Lines:
    """Iterator over the non-empty lines of a file; `number` is the number of the last one."""

    def __init__(self, text, max_bytes):
        self.text, self.max_bytes, self.number = text, max_bytes, 0

    def __iter__(self):
        n_chars = n_cells = 0
        while line := self.text.readline(self.max_bytes + 1):
            self.number += 1
            n_chars, n_cells = n_chars + len(line), n_cells + 1 + max(map(line.count, "\t;, "))
            check_memory(max(n_chars, 8 * n_cells), self.max_bytes)
            if line.strip(" \r\n"):  # tabs alone may be a row of empty cells
                yield line


def _without_comments(lines):
    """Yield the lines of a table, without comments above it and without a separator line."""
    doubtful, lines = None, iter(lines)
    for line in lines:
        separator = _separator(line)
        cells = _cells(line, separator)
        if line.startswith("#") and cells[0].lower() not in MISSING_CELLS:
            if separator != " " and len(cells) > 1 and _is_numeric(cells):
                doubtful = cells
        elif not _SEPARATOR_LINE.fullmatch(line.strip()):
            if doubtful and len(doubtful) == len(cells):
                raise ValueError(
                    f"a line above it, with {doubtful[0]!r:.40}, may be a comment or a row, as it "
                    "has the same number of cells: leave out the line or its #"
                )
            yield line
            yield from lines


def _separator(line):
    """Return the separator of the cells of a line; a comma if there is a single cell."""
    line = _QUOTED.sub("x", line.strip("\r\n"))
    # The order matters: later ones may occur within cells, such as decimal commas.
    sign = next((sign for sign in "\t;," if sign in line), None)
    return sign or (" " if len(line.split()) > 1 else ",")


def _rows(lines, separator):
    """Return an iterator over lists of the cells of lines."""
    if separator == " ":
        lines = (" ".join(line.split()) for line in lines)
    elif separator != "\t":
        lines = filter(str.strip, lines)
    return csv.reader(lines, delimiter=separator, skipinitialspace=True)


def _cells(line, separator):
    return [cell.strip() for cell in next(_rows([line], separator), [""])]


def _is_numeric(cells):
    """Whether any cell is a number, or all are truth values, so that it is no line of names."""
    if any(number_of(cell.replace(",", ".")) is not None for cell in cells):
        return True
    return all(cell.lower() in _TRUTH_VALUES for cell in cells)


# --- columns and their names ----------------------------------------------------------------------


def _fitted(names, row):
    """Return one name for each cell of a row; "" for a column of row names."""
    if names is None:
        return None
    names, n_cells = [name.strip() for name in names], len(row)
    if len(names) == n_cells - 1:  # R omits the name of row names; pandas writes an empty one
        return ["", *names]
    while len(names) > n_cells and names[-1] == "":
        names.pop()
    if len(names) != n_cells:
        raise ValueError(f"its line of names has {len(names)} cells, the next one {n_cells}")
    return names


def _used(names, n_cells, ignored=(), wanted=None):
    """Return the indices of the columns to read: neither row names nor ignored, but wanted."""
    if unknown := set(ignored) - set(names or ()):
        raise ValueError(f"it has no column {min(unknown)!r}")
    if names is None:
        return range(n_cells)
    first = int(n_cells > 1 and names[0] == "")
    used = set(names if wanted is None else wanted).difference(ignored)
    return [j for j in range(first, n_cells) if names[j] in used]


def _checked_rows(names, n_cells, rows, separator, lines):
    """Yield numbered rows; raise if lengths differ, or a pair may be a number with a comma."""
    is_pair = separator == "," and n_cells == 2
    for row in rows:
        if len(row) != n_cells:
            raise ValueError(f"line {lines.number} has {len(row)} cells, those above {n_cells}")
        line = ",".join(row) if is_pair else ""
        if names is None and re.fullmatch(r"[+-]?\d*,0\d+", line):
            raise ValueError(
                f"a line such as {line!r:.40} is a number with a decimal comma, not two; write "
                "decimal points, or quotes around numbers"
            )
        if names and len(names) == 1 and re.fullmatch(r"[+-]?\d*,\d+", line):
            raise ValueError(
                f"a line such as {line!r:.40} may be a number with a decimal comma, or the name of "
                "a row and a number; write decimal points, or a name for each column"
            )
        yield lines.number, row


def _warn_of_numeric_names(numbers):
    """Warn if the first row may be a line of names, because its numbers are distinct integers.

    They must also count from 0 or 1, or differ from the numbers below: these include non-integers
    only, or each is farther from the range of its column than the width of this range.
    """
    first, below = numbers[0], numbers[1:]
    n = len(first)
    if n < 2 or len(below) < 2 or (first != np.rint(first)).any() or len(set(first.tolist())) < n:
        return
    low, high = np.fmin.reduce(below), np.fmax.reduce(below)
    distant = np.maximum(low - first, first - high) > high - low
    consecutive = n > 2 and first[0] in (0, 1) and (np.diff(first) == 1).all()
    if consecutive or (below != np.rint(below)).all() or (distant & (high > low)).all():
        warn_user(
            f"the first line, {listed(first, 4, '{:g}'.format)}, is read as a row of numbers: "
            "write names of columns in quotes, or with a letter."
        )


# --- arrays ---------------------------------------------------------------------------------------

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".dat")
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_array(path, *, max_bytes=None):
    """Read an array of numbers from a file.

    Parameters
    ----------
    path : str or path
        A file named ``*.npy``; ``*.npz`` with one array, or ``*.npz:key`` to choose one of several;
        a table of text (``*.csv``, ``*.tsv``, ``*.txt``, ``*.dat``), one sample per line; or any
        other file in IDX format. All except .npz may be compressed by gzip, with any name.
    max_bytes : int, optional
        Memory limit for the array of a compressed file; default 1 GiB, or the size of the file if
        that is larger. Other arrays are bounded by the size of their file.

    Returns
    -------
    array : array
        As stored, of two dimensions for text; in native byte order.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is empty, truncated, corrupted or of another format, does not contain numbers,
        or needs more memory than allowed, or if a key is missing or unknown.
    MemoryError
        If there is not enough memory.

    Notes
    -----
    The cells of a table of text (UTF-8) are separated by commas, semicolons, tabs or blanks, which
    is detected from the second line, and may be quoted. With semicolons or tabs, numbers may have
    decimal commas. The first line may contain column names; names that are numbers need quotes. A
    first column without a name, as written by R and pandas, contains row names and is ignored.
    Lines above the table that begin with ``#`` are comments. Empty cells, ``NA``, ``N/A``,
    ``null``, ``none``, ``?``, ``.`` and errors of spreadsheets (``#N/A``) are NaN; TRUE and FALSE
    are 1 and 0. Ambiguous tables raise an error, for example if commas may be decimal or separate
    thousands.

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


def read_named(path, ignored=(), max_bytes=None, wanted=None):
    """Read an array and its column names, if any; of a table, read only the `wanted` columns."""
    path, key = file_and_key(file_path("path", path))
    if is_text(path):
        with reading(path, "a table"):
            return read_table(path, _limit(path, max_bytes), ignored, wanted)
    name = path.name.lower()
    if name.endswith(".npz"):
        array = _read_npz(path, key, max_bytes)
    else:
        read, kind = _read_idx, "IDX"
        if name.removesuffix(".gz").endswith(".npy"):
            read, kind = _read_npy, ".npy"
        with reading(path, kind):
            array = read(path, _limit(path, max_bytes))
    if ignored:
        raise ValueError(f"{path} has no names of columns, such as {ignored[0]!r}.")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{path} holds values of type {array.dtype}, not numbers.")
    if array.size == 0:
        raise ValueError(f"{path} holds an array without entries, of shape {array.shape}.")
    return array.astype(array.dtype.newbyteorder("="), copy=False), None


def file_and_key(path):
    """Split FILE.npz:KEY; without a key, it is None."""
    parts = re.fullmatch(r"(?is)(.*\.npz):(.*)", str(path))
    return (Path(parts[1]), parts[2]) if parts else (Path(path), None)


def _limit(path, max_bytes):
    """Return the memory limit for an array; only compressed files have one by default."""
    if not is_compressed(path) and max_bytes is None:
        return sys.maxsize - 1
    return memory_limit(path.stat().st_size, max_bytes)


def _read_npy(path, max_bytes):
    with open_decompressed(path) as file:
        # NumPy would take an unknown format for a pickle, and raise a misleading error.
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
    problem = "several arrays" if key is None else f"no array {key!r}"
    listed = reason(", ".join(names))
    raise ValueError(f"{path} holds {problem}: choose one of {listed} by {path}:KEY.")


def is_text(path):
    """Whether a file has the suffix of a table of text."""
    return str(path).lower().removesuffix(".gz").endswith(TEXT_SUFFIXES)


def _read_idx(path, max_bytes):
    with open_decompressed(path) as file:
        head = file.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES:
            raise ValueError(
                "it does not begin like one (nor is it named .npy, .npz, .csv, .tsv, .txt or .dat)"
            )
        dtype, n_dimensions = np.dtype(_IDX_TYPES[head[2]]), head[3]
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
        # Decompress at most one byte more than announced by the header.
        content = file.read(expected - start + 1)
    n_bytes = start + len(content)
    if n_bytes != expected:
        raise ValueError(f"{needs}{'more' if n_bytes > expected else n_bytes}")
    return np.frombuffer(bytearray(content), dtype).reshape(shape)
