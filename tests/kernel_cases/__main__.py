"""Run the named cases at a size given as "30,14,5"; save their results to an .npz file."""

import sys
from pathlib import Path

import numpy as np

from kernel_cases import Size, case


def main():
    """Read the command line."""
    path, size, *names = sys.argv[1:]
    size = Size(*map(int, size.split(",")))
    found = {}
    for name in names:
        arguments = case(name).build(size, "float64")
        case(name).compiled(*arguments)
        found.update({f"{name}/{k}": v for k, v in case(name).filled(arguments).items()})
    np.savez(Path(path), **found)


if __name__ == "__main__":
    main()
