"""The page of speeds, and the four of its rows that the README holds."""

import re

from timing import ROOT

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
    before, begin, rest = path.read_text(encoding="utf-8").partition(markers[0])
    _, end, after = rest.partition(markers[1])
    if not (begin and end):
        raise SystemExit(f"{path} lacks the markers {markers}.")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def excerpt(text):
    """The table of the README from the text of the page: task, threads, times and ratio."""
    conditions, found = None, {}
    for line in text.splitlines():
        if match := CONDITIONS.match(line):
            conditions = match.groups()
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        # Rows of time to quality, which stand first, have as many cells, and no conditions.
        row = conditions and line.startswith("|") and len(cells) == 5
        if row and cells[2].endswith(")"):
            task, ours, theirs, ratio, _ = cells
            key = task, theirs.partition(" (")[2][:-1]
            found[key] = conditions, f"| {task} | {conditions[0]} | {ours} | {theirs} | {ratio} |"
    missing = [row for row in ROWS if row not in found]
    if missing:
        raise SystemExit(f"{PAGE.name} lacks rows that the README holds: {missing}.")
    machines = dict.fromkeys(found[row][0][1] for row in ROWS)
    return "\n".join(
        [
            f"Medians ({'; '.join(machines)}); the ratio is theirs to ours.",
            "",
            "| task | threads | fastmf | others | ratio |",
            "|---|---|---|---|---|",
            *(found[row][1] for row in ROWS),
        ]
    )


def write_page(path, text, markers):
    """Put a table into the page, and its rows into the README if the page is the package's own."""
    write(path, text, markers)
    if path == PAGE:
        write(README, excerpt(path.read_text(encoding="utf-8")), MARKERS)
