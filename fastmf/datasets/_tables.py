"""Tables of numbers as text: cells between commas, semicolons, tabs or spaces."""

import csv
import re
from itertools import chain

import numpy as np

from fastmf.datasets._compressed import BLOCK_BYTES, is_compressed, open_decompressed

# Longest line of a compressed table.
MAX_LINE_BYTES = 2**26
# In the order in which they are looked for: others may stand within cells, as decimal commas do.
_SEPARATORS = "\t;,"


def read_table(path, check_memory):
    """The numbers of a table, and the names of its columns.

    Parameters
    ----------
    path : path
    check_memory : callable or None
        Called with the bytes that the table needs at least, while they are counted; raises.

    Returns
    -------
    array : array of shape (n_rows, n_columns)
    names : list of str or None
        None without a line of names. A first column without a name holds names of rows, and is
        left out.

    Raises
    ------
    ValueError
        If there are no numbers, lines differ in length, or a cell is no number.
    """
    if check_memory:
        _count_cells(path, check_memory)
    with open_decompressed(path) as file:
        lines = _lines(file, MAX_LINE_BYTES if is_compressed(path) else -1)
        begin = [line for _, line in zip(range(2), lines, strict=False)]
        if not begin:
            raise ValueError("it has no line of numbers")
        separator = _separator(begin[-1])
        names = None
        if not _is_numeric(begin[0], separator):
            names = _cells(begin.pop(0), separator)
            if not begin:
                raise ValueError("it has no line of numbers")
        return _numbers(chain(begin, lines), separator, names, begin)


def _numbers(lines, separator, names, begin):
    """Numbers of lines, of which the first ones are given, and names of their columns."""
    n_cells = len(_cells(begin[0], separator))
    options = {"delimiter": None if separator == " " else separator, "ndmin": 2}
    if names is not None and n_cells > 1 and (names[0] == "" or len(names) == n_cells - 1):
        # R and pandas write names of rows so.
        names = names[1:] if len(names) == n_cells else names
        options |= {"usecols": range(1, n_cells), "quotechar": '"'}
    array = np.loadtxt(map(_plain(separator), lines), **options)
    if names is not None and len(names) != array.shape[1]:
        names = None
    return array, names


def _plain(separator):
    """The function that makes missing cells of a line NaN, and decimal commas points."""
    if separator == " ":
        missing = re.compile(r"(?<!\S)NA(?!\S)")
    else:
        space = rf"[^\S{separator}]*"
        cell = rf'{space}(?:"?NA"?|"")?{space}'
        missing = re.compile(rf"(?<={separator}){cell}(?={separator}|$)|^{cell}(?={separator}|$)")
    commas = separator in ";\t"

    def plain(line):
        line = missing.sub("nan", line) if missing.search(line) else line
        return line.replace(",", ".") if commas else line

    return plain


def _separator(line):
    """Delimiter of the cells of a line of numbers; a comma if there is one cell."""
    found = next((sign for sign in _SEPARATORS if sign in line), None)
    return found or (" " if len(line.split()) > 1 else ",")


def _cells(line, separator):
    if separator == " ":
        line = " ".join(line.split())
    (cells,) = csv.reader([line], delimiter=separator, skipinitialspace=True)
    return [cell.strip() for cell in cells]


def _is_numeric(line, separator):
    """Whether any cell is a number: a line of column names has none."""
    for cell in line.split(None if separator == " " else separator):
        try:
            float(cell.replace(",", "."))
        except ValueError:
            continue
        return True
    return False


def _count_cells(path, check_memory):
    """Raise if a table has too many cells: before they are parsed, which takes much longer."""
    n_text = n_lines = 0
    n_signs = np.zeros(4, int)
    with open_decompressed(path) as file:
        while block := file.read(BLOCK_BYTES):
            n_text += len(block)
            n_lines += block.count(b"\n")
            n_signs += [block.count(sign) for sign in (b"\t", b";", b",", b" ")]
            check_memory(max(n_text, 8 * (n_lines + int(n_signs.max()))))


def _lines(file, longest):
    """Lines of a table that are neither empty nor comments."""
    encoding = "utf-8-sig"
    while piece := file.readline(longest):
        if len(piece) == longest:
            raise ValueError(f"it has a line of more than {longest} bytes")
        for line in piece.decode(encoding).splitlines():
            if line.strip() and not line.startswith("#"):
                yield line
        encoding = "utf-8"
