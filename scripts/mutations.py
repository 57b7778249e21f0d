"""Change one term of an equation by 10 %, and print the first test that notices it.

The tests of public names run against a copy of the package, one mutation at a time; comparisons
of kernels with their twins are left out. Mutations are in mutations.csv: the term, a file of the
package, text in it, the changed text, and the tests. One takes some seconds to minutes:

    python scripts/mutations.py [WORD ...]

Words choose mutations whose names contain one of them.
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


def first_failure(file, text, changed, tests):
    """The name of the first test that fails after a mutation, None if none does."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("fastmf", "tests", "scripts", "docs"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=ignored)
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
            shutil.copy(ROOT / name, folder)
        path = Path(folder) / "fastmf" / file
        source = path.read_text(encoding="utf-8")
        if text not in source:
            raise ValueError(f"{file} has no {text!r}.")
        path.write_text(source.replace(text, changed), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": folder, "NUMBA_CACHE_DIR": f"{folder}/cache"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", f"tests/{tests}"]
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if run.returncode == 0:
            return None
        failure = re.search(r"^FAILED (\S+)", run.stdout, re.MULTILINE)
        if failure is None:
            raise RuntimeError(run.stdout[-2000:] + run.stderr[-2000:])
        return failure[1]


def main(words):
    """Print a row of a table for each mutation."""
    print("| term | noticed by |\n|---|---|", flush=True)
    with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        mutations = list(csv.reader(file))[1:]
    for name, *mutation in mutations:
        if not words or any(word in name for word in words):
            print(f"| {name} | {first_failure(*mutation) or '**no test**'} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
