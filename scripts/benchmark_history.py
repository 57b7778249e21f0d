"""Ratios kernel : twin of a reference set of kernels, commit by commit: asv_bench/history.csv.

    python scripts/benchmark_history.py                       # adds the commit that is checked out
    python scripts/benchmark_history.py main~40 main~20 main  # or these, each in its own folder
    python scripts/benchmark_history.py --ratios build/ratios.json   # what make bench has measured

A ratio is the CPU time of a kernel by that of its NumPy twin, one thread each, alternating: other
machines have similar ones, where OpenBLAS has the same kernels. A commit that is there is measured
anew. Earlier commits are measured on the present table of cases; kernels that they lack, or have
with other arguments, are left out. The documentation draws the curves.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HISTORY = ROOT / "asv_bench" / "history.csv"
FIELDS = ("date", "commit", "kernel", "dtype", "ratio")
# A few kernels of each part, which take a minute together once they are compiled.
KERNELS = (
    "mean_field.tap.tap-ten_sweeps",
    "mean_field.tap.tap-sequential",
    "mean_field.tap.tap-truncated_spikes",
    "sampling.layers.anneal_layers-gibbs",
    "sampling.visible.anneal_visible-spins",
    "training.statistics.pair_averages-four_terms",
    "training.ascent.ascend-decayed_and_centred",
    "bp.belief_propagation.belief_propagation-mixed",
    "bp.belief_propagation.sweep_blocks-sum",
    "bp.belief_propagation.pair_beliefs-rows",
    "ep.linear_model.data_covariance-three_shares",
    "ep.sites.match_sites-free",
    "pseudo_likelihood.binary.residuals-plain",
    "pseudo_likelihood.potts.value_and_gradient-proteins",
    "priors.bernoulli.moments",
    "priors.truncated_gauss_bernoulli.moments",
)


def git(*arguments):
    """What a command of git prints."""
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def measured(tree):
    """Milliseconds of kernel and twin by case and type, of the package in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "ratios.json"
        command = [sys.executable, str(ROOT / "scripts" / "kernel_ratios.py")]
        command += ["--only", *KERNELS, "--write", str(found)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tree)})
        return json.loads(found.read_text())


def rows_of(commit, times):
    """Rows of the table for a commit, from milliseconds of kernels and twins."""
    hash_, date = git("show", "-s", "--abbrev=8", "--format=%h %cs", commit).split()
    named = ((*name.rsplit(" ", 1), kernel / twin) for name, (kernel, twin) in times.items())
    return [
        (date, hash_, kernel, dtype, f"{ratio:.3g}")
        for kernel, dtype, ratio in named
        if kernel in KERNELS
    ]


def with_rows(table, rows):
    """The table with the rows of a commit, in the place of those it had, by date."""
    commits = {row[1] for row in rows}
    kept = [row for row in table if row[1] not in commits]
    return sorted([*kept, *rows], key=lambda row: row[0])


def read(path):
    """Rows of the file, as tuples of text; none if there is no file."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def write(path, table):
    """Write the rows below the names of the columns."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([FIELDS, *table])


def add(path, rows):
    """Put the rows of a commit into the file."""
    write(path, with_rows(read(path), rows))


def main(argv=None):
    """Measure commits, and add them to the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commits", nargs="*", help="[the one that is checked out]")
    parser.add_argument("--ratios", type=Path, metavar="JSON", help="of kernel_ratios.py --write")
    parser.add_argument("--file", type=Path, default=HISTORY, help=f"[{HISTORY.name}]")
    arguments = parser.parse_args(argv)
    if arguments.ratios:
        add(arguments.file, rows_of("HEAD", json.loads(arguments.ratios.read_text())))
    elif not arguments.commits:
        add(arguments.file, rows_of("HEAD", measured(ROOT)))
    for commit in arguments.commits:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            git("worktree", "add", "--detach", str(tree), commit)
            try:
                add(arguments.file, rows_of(commit, measured(tree)))
            finally:
                git("worktree", "remove", "--force", str(tree))


if __name__ == "__main__":
    main()
