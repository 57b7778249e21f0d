"""Run the experiments of the papers by their names in commands.csv, one after another.

Each line of commands.csv is one figure, or one cell of a table. Without names they are listed; a
name may have wildcards. Commands are run in this folder's repository.
"""

import csv
import shlex
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import experiment

HERE = Path(__file__).parent


def main(argv=None):
    made = experiment.Parser(__doc__, "seed", quick={})
    made.add_argument("names", nargs="*", metavar="NAME", help="or patterns [list all]")
    made.set_defaults(seed=None)  # the command's own
    options = made.parse_args(argv)
    for line in lines(options.names or ["*"]):
        print(f"{line['name']:32} {line['what']} ({line['settings']}; run: {line['run']})")
        command = arguments(line, options)
        print("    " + shlex.join(["python", *command]), flush=True)
        if options.names:
            subprocess.run([sys.executable, *command], cwd=HERE.parents[1], check=True)


def lines(patterns=("*",)):
    """The lines of commands.csv whose names match any of some patterns."""
    with (HERE / "commands.csv").open(newline="") as file:
        commands = list(csv.DictReader(file))
    for pattern in patterns:
        if not any(fnmatchcase(line["name"], pattern) for line in commands):
            raise ValueError(f"no name in commands.csv matches {pattern!r}: list them without one.")
    return [line for line in commands if any(fnmatchcase(line["name"], p) for p in patterns)]


def arguments(line, options):
    """The script's path and its arguments."""
    script, *words = shlex.split(line["command"])
    quick = ["--quick"] if options.quick else []
    seed = [] if options.seed is None else ["--seed", str(options.seed)]
    return [f"scripts/experiments/{script}", *words, *quick, *seed]


if __name__ == "__main__":
    experiment.run(main)
