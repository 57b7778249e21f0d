"""Change one term of an equation by 10 %, and print the first test that notices it.

The tests of public names run against a copy of the package with one mutation; comparisons of
kernels with their twins are excluded. Mutations are listed in mutations.csv: the term, a file of
the package, text in it, the changed text, and the tests. Each takes seconds to minutes:

    python scripts/mutations.py [WORD ...]

Words select mutations whose names contain one of them.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def first_failure(folder, file, text, changed, tests):
    """Return the name of the first test that fails after a mutation of a copy, or None."""
    path = folder / "fastmf" / file
    source = path.read_text(encoding="utf-8")
    if text not in source:
        raise ValueError(f"{file} has no {text!r}.")
    path.write_text(source.replace(text, changed), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": f"{folder}/cache"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", f"tests/{tests}"]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    path.write_text(source, encoding="utf-8")
    failure = re.search(r"^FAILED (\S+)", run.stdout, re.MULTILINE)
    if run.returncode and not failure:
        raise RuntimeError(run.stdout[-2000:] + run.stderr[-2000:])
    return failure and failure[1]


def main(words):
    """Print a row of a table for each mutation."""
    print("| term | detected by |\n|---|---|", flush=True)
    with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        mutations = list(csv.reader(file))[1:]
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT, folder, ignore=ignored, dirs_exist_ok=True)
        for name, *mutation in mutations:
            if not words or any(word in name for word in words):
                failure = first_failure(Path(folder), *mutation)
                print(f"| {name} | {failure or '**no test**'} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
