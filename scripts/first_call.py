"""Time first calls: with an empty cache, with cached kernels, and with kernels built ahead.

A process calls a solver or estimator for the first time, then with other priors, another depth or
shape, and then in the other floating-point type. A second process makes the first call with the
kernels cached by the first process; a third one with an empty cache and the library of `make
wheel`, if there is one. Times include modules that are imported on demand, but not `import fastmf`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from calls import ROWS

import fastmf

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "project" / "performance.md"
# Kernels built ahead, by `make wheel`.
LIBRARY = ROOT / "build" / "library"

PROGRAM = """
import json, time, warnings
warnings.simplefilter("ignore")  # calls do not converge
clock = time.perf_counter
start = clock()
import fastmf as mf
import numpy as np
seconds = [clock() - start]
from calls import *
for call in ({calls},):
    start = clock()
    call()
    seconds.append(clock() - start)
print(json.dumps(seconds))
"""


class Seconds(NamedTuple):
    """The times of a row; None for calls that the row does not have."""

    cold: float
    second: float
    other: float | None
    cached: float
    ahead: float | None
    imported: float


def run(calls, folder, library="0"):
    """Time the import, and each of several calls, in a new process with a cache folder.

    The library is a folder of kernels built ahead.
    """
    program = PROGRAM.format(calls=", ".join(f"lambda: {call}" for call in calls))
    # Use the package of this process, whether or not it is installed.
    package = Path(fastmf.__file__).parents[1]
    folders = ROOT / "scripts", ROOT / "tests", package, os.environ.get("PYTHONPATH")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, filter(None, folders))),
        "NUMBA_CACHE_DIR": str(folder), "FASTMF_QUIET": "1", "FASTMF_LIBRARY": str(library),
    }  # fmt: skip
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{calls} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def in_type(call, dtype="float64"):
    """Return an expression in which `dtype` is a floating-point type."""
    return f"(lambda dtype: {call})({dtype!r})"


def measure(row):
    """Measure a row in new processes, with a separate cache."""
    first, second = (in_type(call) for call in row)
    calls = [first, second] + [in_type(row[0], "float32")] * ("dtype" in row[0])
    with tempfile.TemporaryDirectory() as folder:
        _, cold, *seconds = run(calls, folder)
        _, cached = run([first], folder)
    ahead = None
    with tempfile.TemporaryDirectory() as folder:
        if (LIBRARY / "index.json").exists():
            imported, ahead = run([first], folder, LIBRARY)
        else:
            imported, _ = run(["None"], folder)
    return Seconds(cold, seconds[0], *(seconds[1:] or [None]), cached, ahead, imported)


def line(name, seconds):
    """Return a row of the table."""
    cells = ["" if value is None else f"{value:.2g}" for value in seconds[:5]]
    return f"| {name} | {' | '.join(cells)} |"


def table(measured):
    """Return all rows as Markdown, with the conditions of the measurement."""
    import numba

    imported = min(seconds.imported for seconds in measured.values())
    return "\n".join(
        [
            f"Seconds of first calls ({platform.machine()}, {os.cpu_count()} cores, Python "
            f"{platform.python_version()}, Numba {numba.__version__}): with an empty cache "
            "(cold); then in the same process with other priors, another depth or another shape, "
            "and with the other floating-point type; in a later process, with the cached code; "
            "and with an empty cache and kernels that were built ahead. `import fastmf` takes "
            f"{imported:.2g} s.",
            "",
            "| first call | cold | second combination | other type | cached | built ahead |",
            "|---|---|---|---|---|---|",
            *(line(name, seconds) for name, seconds in measured.items()),
        ]
    )


def main():
    """Measure, print the rows, and write the table to the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    arguments = parser.parse_args()
    measured = {}
    for name, row in ROWS.items():
        measured[name] = measure(row)
        print(line(name, measured[name]), flush=True)
    if arguments.write:
        from timing import write

        write("first calls", table(measured), PAGE)


if __name__ == "__main__":
    main()
