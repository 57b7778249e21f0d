"""`fastmf network`: the network of a table of items, as a page."""

import sys
import time
from pathlib import Path

import numpy as np

from fastmf._common.warning import warn_user
from fastmf.cli import _data, _options
from fastmf.cli._network_page import Page, write_html, write_markdown
from fastmf.datasets._tables import MISSING_CELLS
from fastmf.datasets.files import read_text
from fastmf.models._io import replacing

EPILOG = """\
examples:
  fastmf network symptoms.csv
      network.html: which items go together given all others, and how sure that is
  fastmf network symptoms.csv --group diagnosis --permutations 1000
      also, which couplings differ between two groups of rows, or more
  fastmf network answers.csv --missing em --output report.md
      a page in Markdown, with pictures beside it; empty cells are summed over

TABLE is a .csv, .tsv or .txt file with a line of names, one row a person; cells are separated by
commas, semicolons or tabs; it may be compressed by gzip. Items of two values are binary units,
items of more ordinal ones; codes, numbers and strings are taken as they come. Couplings are those
of items with the scores 0, 1, 2, ...
"""
# Categories of an item beyond which a column is no item.
_MAX_CATEGORIES = 20


def add(commands):
    """Add the command to a parser."""
    network = _options.command(
        commands,
        run,
        "network",
        help="the network of a table of binary or ordinal items",
        description="Fit a network to a table of items, and write a page about it.",
        epilog=EPILOG,
    )
    network.add_argument("table", metavar="TABLE", help="table of items, with a line of names")
    _options.add_output(
        network,
        "network.html",
        "page to write, .html or .md, and the table of edges beside it",
        metavar="PAGE",
    )
    network.add_argument("--group", metavar="COLUMN", help="column that holds groups of rows")
    network.add_argument("--weight", metavar="COLUMN", help="column that says how often rows count")
    network.add_argument("--cluster", metavar="COLUMN", help="column of what was sampled together")
    network.add_argument("--ignore", nargs="+", default=[], metavar="COLUMN", help="left out")
    network.add_argument(
        "--missing", choices=("drop", "em", "error"), default="drop",
        help="rows with empty cells: left out, summed over what they may be, or refused [drop]",
    )  # fmt: skip
    network.add_argument("--l2", type=float, default=0.0, metavar="R", help="ridge penalty [0]")
    network.add_argument(
        "--bootstraps", type=int, default=0, metavar="N", help="samples of rows for stability [0]"
    )
    network.add_argument(
        "--permutations", type=int, default=0, metavar="N", help="permutations of groups [0]"
    )
    _options.add_seed(network)
    _options.add_quiet(network, "progress")


def run(arguments):
    """Fit, write the page and the table of edges, and print a summary."""
    output = Path(arguments.output)
    edges = output.with_suffix(".csv")
    _data.check_outputs([arguments.table], (output, (".html", ".md")), (edges, (".csv",)))
    for name in ("bootstraps", "permutations"):
        if getattr(arguments, name) < 0:
            raise ValueError(f"--{name} must be at least 0, got {getattr(arguments, name)}.")
    if arguments.permutations and arguments.group is None:
        raise ValueError("--permutations are those of groups: name their column by --group.")
    start = time.perf_counter()
    names, columns = read_items(arguments.table)
    taken = {key: getattr(arguments, key) for key in ("group", "weight", "cluster")}
    for name in [*filter(None, taken.values()), *arguments.ignore]:
        if name not in names:
            raise ValueError(f"{arguments.table} has no column {name!r}: {', '.join(names)}.")
    items = [n for n in names if n not in [*taken.values(), *arguments.ignore]]
    special = {key: columns[name] for key, name in taken.items() if name}
    for key in ("group", "cluster"):
        if key in special and any(value is None for value in special[key]):
            raise ValueError(f"column {taken[key]!r} must have no empty cells.")
    if "group" in special and len(groups := set(special["group"])) > _MAX_CATEGORIES:
        raise ValueError(
            f"column {arguments.group!r} has {len(groups)} different values, groups are "
            f"{_MAX_CATEGORIES} at most: name another column by --group."
        )
    if "weight" in special:
        special["weight"] = _numbers(taken["weight"], special["weight"])
    page = Page(Path(arguments.table).name, items, arguments)
    steps = page.steps(_table(items, columns), special)
    for k, (text, step) in enumerate(steps):
        if not arguments.quiet:
            print(f"fastmf: {k + 1}/{len(steps)} {text}", file=sys.stderr, flush=True)
        step()
    write = write_html if output.suffix.lower() == ".html" else write_markdown
    write(output, page)
    with replacing(edges) as file:
        file.write(page.edges_csv().encode())
    seconds = time.perf_counter() - start
    print(f"{output}, {edges}: {page.summary()}, {seconds:.1f} s")


def read_items(path):
    """Read the names of columns, and their cells as strings, None where empty."""
    names, columns = read_text(path)
    if len(set(names)) < len(names) or "" in names:
        wrong = next(name for name in names if name == "" or names.count(name) > 1)
        raise ValueError(
            f"{path}: its first line must name all columns, each with its own name, got "
            f"{wrong!r}{' more than once' * (wrong != '')}."
        )
    return names, {
        name: _without_missing(column) for name, column in zip(names, columns, strict=True)
    }


def _without_missing(cells):
    """The cells of a column, None where they are missing: "none" is an answer beside others."""
    missing = {"", *MISSING_CELLS}
    if any(_order(cell)[0] for cell in cells if cell.lower() not in missing):
        missing.remove("none")
    return [None if cell.lower() in missing else cell for cell in cells]


def _numbers(name, cells):
    """Cells of a column as numbers, or a message that says which is none."""
    out = np.empty(len(cells))
    for k, cell in enumerate(cells):
        try:
            out[k] = float(cell)
        except (TypeError, ValueError):
            raise ValueError(
                f"column {name!r} must hold numbers, got {cell!r} in row {k + 1}."
            ) from None
    return out


def _table(items, columns):
    """Scores of items, (n_rows, n_items), NaN where empty, and the categories of each."""
    if len(items) < 2:
        raise ValueError("a network needs at least two items.")
    scores, categories = [], []
    for name in items:
        cells = columns[name]
        values = sorted({cell for cell in cells if cell is not None}, key=_order)
        if not 2 <= len(values) <= _MAX_CATEGORIES:
            raise ValueError(
                f"column {name!r} has {len(values)} different values, items have 2 to "
                f"{_MAX_CATEGORIES}: leave it out by --ignore, or bin it first."
            )
        _data.check_case(name, [value for value in values if _order(value)[0]])
        place = {value: k for k, value in enumerate(values)}
        scores.append([np.nan if cell is None else place[cell] for cell in cells])
        categories.append(values)
    for values in dict.fromkeys(map(tuple, categories)):
        alike = [n for n, own in zip(items, categories, strict=True) if tuple(own) == values]
        _warn_of_order(alike, values)
    return np.array(scores, float).T, categories


def _warn_of_order(names, values):
    """Warn of categories in order whose scores may be others than 0, 1, 2, ..."""
    columns = ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)
    listed = f"in column{'s' * (len(names) > 1)} {columns}: {', '.join(values)}."
    if len(values) > 2 and _order(values[-1])[0]:
        warn_user(
            f"words are taken in alphabetical order, {listed} Write numbers where that is not "
            "theirs."
        )
    elif len(values) > 2:
        steps = np.diff([float(value) for value in values])
        if not np.allclose(steps, steps[0]):
            warn_user(
                f"numbers are not evenly spaced, {listed} Their scores are 0, 1, 2, ... in this "
                "order: leave cells empty where a number, such as 99, stands for a missing value."
            )


def _order(text):
    """Numbers by their values, before strings."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
