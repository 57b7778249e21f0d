"""Tables of HTML for notebooks: escaped, without styles, scripts or other files."""

from html import escape

import numpy as np


def number(value):
    """A number to four digits, "" for None."""
    return "" if value is None else f"{float(value):.4g}"


def extent(values):
    """The range of an array as "-1.2 to 3", one number if both ends print alike, "" without any."""
    values = np.asarray(values)
    if not values.size:
        return ""
    low, high = number(values.min()), number(values.max())
    return low if low == high else f"{low} to {high}"


def counts(values):
    """The distinct values of a sequence and how often each occurs, the most frequent first."""
    names, numbers = np.unique(np.atleast_1d(values), return_counts=True)
    order = np.argsort(-numbers, kind="stable")
    return [(str(names[k]), str(numbers[k])) for k in order]


def table(rows, header=()):
    """A table of rows of cells; the first cell of each row is its name."""
    lines = ["<table>"]
    if header:
        cells = "".join(f'<th scope="col">{escape(str(cell))}</th>' for cell in header)
        lines.append(f"<thead><tr>{cells}</tr></thead>")
    lines.append("<tbody>")
    for name, *values in rows:
        cells = "".join(f"<td>{escape(str(cell))}</td>" for cell in values)
        lines.append(f'<tr><th scope="row">{escape(str(name))}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody>", "</table>"])


def section(title, *tables):
    """A title and tables below it."""
    return "\n".join(["<div>", f"<strong>{escape(title)}</strong>", *tables, "</div>"])
