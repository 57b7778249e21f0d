"""Tables of SPEED.md: their rows, command line and page, and the four rows of the README."""

import argparse
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from timing import ROOT, conditions, median, pinned, positive, ratio

PAGE, README = ROOT / "scripts" / "SPEED.md", ROOT / "README.md"
MARKERS = "<!-- speed rows: begin -->", "<!-- speed rows: end -->"
# (task, what it is compared with) of the rows of the README.
ROWS = [
    ("one sequential sweep of 100 rows, 784 x 500, float32", "NumPy, unit by unit"),
    ("100 starts to 1e-8, trained 784 x 500, plain, float64", "NumPy of Algorithm 1, float64"),
    ("training epoch of 10,000 rows, 784 x 500, TAP, 3 sweeps, float32", "scikit-learn, PCD-1"),
    (
        "sparse regression, 100 x 1000, ten coefficients, parameters learned",
        "scikit-learn, LassoCV",
    ),
]
CONDITIONS = re.compile(r"Medians on (\d+) threads? \((.*)\);")


def write(path, text, markers):
    """Put a text between its markers, and change nothing else."""
    before, begin, following = path.read_text(encoding="utf-8").partition(markers[0])
    _, end, after = following.partition(markers[1])
    if not (begin and end):
        raise SystemExit(f"{path} lacks the markers {markers}.")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def excerpt(text):
    """The table of the README from the text of the page: task, threads, times and ratio."""
    measured_on, rows = None, {}
    for line in text.splitlines():
        if match := CONDITIONS.match(line):
            measured_on = match.groups()
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        # Rows of time to quality, which stand first, have as many cells, and no conditions.
        row = measured_on and line.startswith("|") and len(cells) == 5
        if row and cells[2].endswith(")"):
            task, ours, theirs, ratio, _ = cells
            key = task, theirs.partition(" (")[2][:-1]
            rows[key] = measured_on, f"| {task} | {measured_on[0]} | {ours} | {theirs} | {ratio} |"
    missing = [row for row in ROWS if row not in rows]
    if missing:
        raise SystemExit(f"{PAGE.name} lacks rows that the README holds: {missing}.")
    machines = dict.fromkeys(rows[row][0][1] for row in ROWS)
    return "\n".join(
        [
            f"Medians ({'; '.join(machines)}); the ratio is theirs to ours.",
            "",
            "| task | threads | fastmf | others | ratio |",
            "|---|---|---|---|---|",
            *(rows[row][1] for row in ROWS),
        ]
    )


def write_page(path, text, markers):
    """Put a table into the page, and its rows into the README if the page is the package's own."""
    write(path, text, markers)
    if path == PAGE:
        write(README, excerpt(path.read_text(encoding="utf-8")), MARKERS)


def show(seconds):
    """Time in s, ms or µs."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1 or unit == "µs":
            return f"{seconds * scale:.3g} {unit}"


def line(task, ours, theirs, other, note=""):
    """One row of the table, for two lists of seconds; a ratio below 1 is bold."""
    times = f"{show(median(ours))} | {show(median(theirs))} ({other})"
    faster = ratio(theirs, ours)
    return f"{task} | {times} | {f'**{faster:.2g}**' if faster < 1 else f'{faster:.2g}'} | {note}"


def table(rows, n_threads):
    """The rows as Markdown, with what they were measured on, and how many fastmf loses."""
    slower = sum("| **" in row for row in rows)
    bold = ", whose ratios are bold" if slower else ""
    return "\n".join(
        [
            f"Medians on {n_threads} thread{'s' * (n_threads > 1)} ({conditions()}); the "
            "ratio is theirs to ours.",
            f"fastmf is slower in {slower} of {len(rows)} rows{bold}.",
            "",
            "| task | fastmf | others | ratio | |",
            "|---|---|---|---|---|",
            *(f"| {row} |" for row in rows),
        ]
    )


def run(description, sections, markers, packages=(), threads=1, prepare=None):
    """Measure what the command line names, print the table, and write it if asked to.

    Parameters
    ----------
    description : str
    sections : dict of name to function
        A function is called with the number of rounds and gives rows.
    markers : pair of str
        Lines of the page between which the table is.
    packages : sequence of str
        Packages whose versions are printed.
    threads : int
        Default of --threads.
    prepare : function of the number of threads, optional
        Called before anything is measured.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--repeats", type=positive, default=5, help="rounds of each comparison [5]")
    add("--threads", type=positive, default=threads, help="cores, threads of BLAS [%(default)s]")
    add("--only", nargs="+", choices=sections, default=list(sections), help="parts of the table")
    add("--write", nargs="?", type=Path, const=PAGE, metavar="FILE",
        help="put the table between its markers in FILE (scripts/SPEED.md, and rows of it in "
        "README.md)")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.write and set(arguments.only) != set(sections):
        parser.error("--write would leave out of the table what --only does not name")
    if prepare:
        prepare(arguments.threads)
    rows = []
    for package in packages:
        try:
            print(package, version(package))
        except PackageNotFoundError:
            print(package, "is not installed")
    with pinned(arguments.threads):  # to cores, which limits the threads of every peer
        for name in arguments.only:
            for row in sections[name](arguments.repeats):
                rows.append(row)
                print(row, flush=True)
    if arguments.write and not rows:
        raise SystemExit("No peer is installed: there is no table to write.")
    if arguments.write:
        write_page(arguments.write, table(rows, arguments.threads), markers)
