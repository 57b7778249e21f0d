"""Tables of numbers as text: cells between commas, semicolons, tabs or spaces."""

import csv
import io
import re
from functools import partial
from itertools import chain

import numpy as np

from fastmf._common.warning import warn_user
from fastmf.datasets._compressed import BLOCK_BYTES, is_compressed, open_decompressed

NOT_UTF_8 = "it is no text in UTF-8; save it in that encoding (spreadsheets: CSV UTF-8)"
# Longest line of a compressed table.
MAX_LINE_BYTES = 2**26
# In the order in which they are looked for: others may stand within cells, as decimal commas do.
_SEPARATORS = "\t;,"
_QUOTED = re.compile(r'"[^"]*"')
# A number after a comma does not begin with zeros, but for decimals.
_CERTAIN_DECIMAL_COMMA = re.compile(r'^\s*"?[+-]?\d*,0\d+"?\s*$')
_DECIMAL_COMMA = re.compile(r"^([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)$")
# What stands for a missing value, in small letters; an empty cell does, too.
MISSING_CELLS = (
    "na", "n/a", "nan", "null", "none", "?", ".",
    "#n/a", "#num!", "#value!", "#div/0!", "#ref!", "#name?", "#null!",
)  # fmt: skip
_TRUTH_VALUES = {"true": "1", "false": "0"}
# A first line by which spreadsheets are told the separator of cells.
_SEPARATOR_LINE = re.compile(r'"?sep=.?"?')
_NO_THOUSANDS = "write decimal points, and no separators of thousands"


def read_table(path, check_memory, left_out=()):
    """The numbers of a table, and the names of its columns."""
    if check_memory:
        _count_cells(path, check_memory)
    with open_decompressed(path) as file:
        lines = without_comments(_lines(file, MAX_LINE_BYTES if is_compressed(path) else -1))
        begin = [line for _, line in zip(range(2), lines, strict=False)]
        if not begin:
            raise ValueError("it has no line of numbers")
        separator = _separator(begin[-1])
        if separator != "\t":
            lines = filter(str.strip, lines)
        names = None
        if not _is_numeric(begin[0], separator) or _is_quoted(begin, separator):
            names = _cells(begin.pop(0), separator)
            if not begin:
                raise ValueError("it has no line of numbers")
        if names and len(names) == 1 and re.fullmatch(r"\s*[+-]?\d*,\d+\s*", begin[0]):
            raise ValueError(
                f"a line such as {begin[0]!r:.40} may be a number with a decimal comma, or the "
                "name of a row and a number; write decimal points, or a name for each column"
            )
        return _numbers(chain(begin, lines), separator, names, begin, left_out)


def read_texts(path):
    """The lines of a table, each a list of cells of text, without blanks around them.

    Numbers with decimal commas have points, as in `read_table`.
    """
    with open_decompressed(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            lines = without_comments(line for line in text if line.strip())
            begin = next(lines, "")
            separator = _separator(begin.rstrip("\r\n"))
            options = {"delimiter": separator, "skipinitialspace": True}
            lines = csv.reader(chain([begin], lines), **options)
            point = partial(_DECIMAL_COMMA.sub, r"\1.\2") if separator in ";\t" else str
            return [cells for line in lines if any(cells := [point(cell.strip()) for cell in line])]
        except UnicodeDecodeError as error:
            raise ValueError(NOT_UTF_8) from error


def _numbers(lines, separator, names, begin, left_out):
    """Numbers of lines, of which the first ones are given, and names of their columns."""
    n_cells = len(_cells(begin[0], separator))
    options = {
        "delimiter": None if separator == " " else separator,
        "ndmin": 2,
        "quotechar": '"',
        "comments": None,
    }
    used = range(n_cells)
    if names is not None and n_cells > 1 and (names[0] == "" or len(names) == n_cells - 1):
        # R and pandas write names of rows so.
        names = names if len(names) == n_cells else ["", *names]
        used = used[1:]
    if unknown := set(left_out) - set(names or ()):
        raise ValueError(f"it has no column {min(unknown)!r}")
    if left_out:
        used = [j for j in used if names[j] not in left_out]
    if len(used) < n_cells:
        options["usecols"] = used
    if names is None and separator == "," and n_cells == 2:
        lines = map(_without_decimal_comma, lines)
    signs = _DecimalSigns()
    if separator in ";\t":
        lines = map(signs.watched, lines)
    try:
        array = np.loadtxt(map(_plain(separator), lines), **options)
    except ValueError as error:
        raise ValueError(_in_words(str(error), names)) from error
    signs.check()
    if names is None:
        _warn_of_numeric_names(array)
    while names and len(names) > n_cells and names[-1] == "":
        names.pop()
    if names is not None and len(names) > n_cells:
        raise ValueError(f"its line of names has {len(names)} cells, the next one {n_cells}")
    if names is not None and len(names) == n_cells:
        names = [names[j] for j in used]
    if names and len(names) > 1 and names[-1] == "" and np.isnan(array[:, -1]).all():
        # A separator at the end of each line.
        names, array = names[:-1], array[:, :-1]
    if names is not None and len(names) != array.shape[1]:
        names = None
    return array, names


def _warn_of_numeric_names(array):
    """Warn if the first row may be a line of names: whole numbers unlike those below.

    They are 0, 1, 2, ... or 1, 2, 3, ..., or different numbers that are all whole where none below
    is, or all farther from the values below than these are from each other.
    """
    first, rest = array[0], array[1:]
    n = len(first)
    if n < 2 or len(rest) < 2 or (first != np.rint(first)).any() or len(set(first.tolist())) < n:
        return
    low, high = np.fmin.reduce(rest), np.fmax.reduce(rest)
    away = np.maximum(low - first, first - high) > high - low
    counted = n > 2 and first[0] in (0, 1) and (np.diff(first) == 1).all()
    if counted or (rest != np.rint(rest)).all() or (away & (high > low)).all():
        listed = ", ".join(f"{value:g}" for value in first[:4]) + ", ..." * (n > 4)
        warn_user(
            f"the first line, {listed}, is read as a row of numbers: write names of columns in "
            "quotes, or with a letter."
        )


class _DecimalSigns:
    """Numbers with commas and with points between semicolons or tabs, where both may be decimal.

    A sign of thousands stands before three digits, and after one to three that do not begin by 0.
    """

    _THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")

    def __init__(self):
        self._patterns = {
            sign: re.compile(rf"(?<![\d.,])[+-]?\d*{re.escape(sign)}\d+(?![\d.,])") for sign in ",."
        }
        # The first number with each sign, and the signs that are certainly decimal.
        self.examples, self.certain = {}, set()

    def watched(self, line):
        """The line as it is, after a look at its numbers."""
        for sign, pattern in self._patterns.items():
            if sign in line and sign not in self.certain:
                found = pattern.findall(line)
                self.examples |= {sign: found[0]} if found and sign not in self.examples else {}
                if not all(map(self._THOUSANDS.fullmatch, found)):
                    self.certain.add(sign)
        return line

    def check(self):
        """Raise if a sign of thousands stands beside decimal ones; warn if a comma may be one."""
        comma, point = map(self.examples.get, ",.")
        if comma and point and len(self.certain) < 2:
            raise ValueError(
                f"it has numbers with commas, such as {comma}, and with points, such as {point}: "
                f"{_NO_THOUSANDS}"
            )
        if comma and "," not in self.certain:
            warn_user(
                f"numbers with commas, such as {comma}, are read with decimal commas: leave out "
                "the commas if they separate thousands."
            )


def _without_decimal_comma(line):
    """A line of two numbers; an error if it is one with a decimal comma."""
    if _CERTAIN_DECIMAL_COMMA.match(line):
        raise ValueError(
            f"a line such as {line!r:.40} is a number with a decimal comma, not two; write decimal "
            "points, or quotes around numbers"
        )
    return line


def _in_words(message, names):
    """NumPy's messages about lines of other lengths and cells that are no numbers."""
    lengths = r"the number of columns changed from (\d+) to (\d+) at row (\d+)"
    if found := re.match(lengths, message):
        return f"row {found[3]} of numbers has {found[2]} cells, those above {found[1]}"
    pattern = r"could not convert string (.*) to float64 at row (\d+), column (\d+).?"
    found = re.fullmatch(pattern, message)
    if not found:
        return message
    row, column = int(found[2]) + 1, int(found[3])
    name = f" ({names[column - 1]!r})" if names and column <= len(names) else ""
    advice = "leave the column out, or give its categories numbers"
    if re.fullmatch(r"'[+-]?(\d{1,3}([.,' \xa0]\d{3})+([.,]\d*)?|\d*,\d+)'", found[1]):
        advice = _NO_THOUSANDS
    return f"{found[1]} in column {column}{name} of row {row} is no number; {advice}"


def _plain(separator):
    """The function that writes missing cells as NaN, truth values and decimal commas as numbers."""
    words = "|".join(map(re.escape, [*MISSING_CELLS, *_TRUTH_VALUES]))
    if separator == " ":
        special = re.compile(rf'(?<!\S)"?(?:{words})"?(?!\S)', re.IGNORECASE)
    else:
        space = rf"[^\S{separator}]*"
        cell = rf'{space}(?:"?{space}(?:{words}){space}"?|"")?{space}'
        ends = rf"(?={separator}|$)"
        special = re.compile(rf"(?<={separator}){cell}{ends}|^{cell}{ends}", re.IGNORECASE)
    commas = separator in ";\t"

    def number(cell):
        return _TRUTH_VALUES.get(cell[0].strip(' "\t').lower(), "nan")

    def plain(line):
        line = special.sub(number, line) if special.search(line) else line
        return line.replace(",", ".") if commas else line

    return plain


def _separator(line):
    """Delimiter of the cells of a line of numbers; a comma if there is one cell."""
    line = _QUOTED.sub("x", line)
    found = next((sign for sign in _SEPARATORS if sign in line), None)
    return found or (" " if len(line.split()) > 1 else ",")


def _cells(line, separator):
    if separator == " ":
        line = " ".join(line.split())
    (cells,) = csv.reader([line], delimiter=separator, skipinitialspace=True)
    return [cell.strip() for cell in cells]


def _is_numeric(line, separator):
    """Whether any cell is a number, or all are truth values: a line of column names has none."""
    cells = line.split(None if separator == " " else separator)
    cells = [cell.strip().strip('"').replace(",", ".").lower() for cell in cells]
    for cell in cells:
        try:
            float(cell)
        except ValueError:
            continue
        return True
    return all(cell in _TRUTH_VALUES for cell in cells)


def _is_quoted(begin, separator):
    """Whether all cells of the first line are in quotes, and some of the second are not."""
    quoted = [[bool(_QUOTED.fullmatch(cell.strip())) for cell in line.split(
        None if separator == " " else separator)] for line in begin]  # fmt: skip
    return len(quoted) > 1 and all(quoted[0]) and not all(quoted[1])


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
    """Lines of a table that are not empty."""
    encoding = "utf-8-sig"
    while piece := file.readline(longest):
        if len(piece) == longest:
            raise ValueError(f"it has a line of more than {longest} bytes")
        try:
            text = piece.decode(encoding)
        except UnicodeDecodeError as error:
            raise ValueError(NOT_UTF_8) from error
        for line in text.splitlines():
            # A line of tabs alone may be a row of empty cells.
            if line.strip(" "):
                yield line
        encoding = "utf-8"


def without_comments(lines):
    """Lines of a table without the comments above it, and the line that names a separator.

    A line above it that begins with # is a row all the same if its first cell is a missing value,
    or if it has the cells of a row, of which others than the first are numbers.
    """
    lines, head = iter(lines), []
    for line in lines:
        if not line.startswith("#"):
            if _SEPARATOR_LINE.fullmatch(line.strip()):
                continue
            n_cells = len(_cells(line, _separator(line)))
            yield from (row for row in head if len(_cells(row, _separator(row))) == n_cells)
            yield line
            yield from lines
            return
        separator = _separator(line)
        cells = _cells(line, separator)
        numbers = separator != " " and len(cells) > 1 and _is_numeric(line, separator)
        if numbers or cells[0].lower() in MISSING_CELLS:
            head.append(line)
    yield from head
