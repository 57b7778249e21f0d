"""Read and write the matrices of files that are named on the command line."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from fastmf.datasets.files import read_named
from fastmf.models._io import replacing


def add_options(group):
    """Add the options that convert the numbers of a file to values of visible units."""
    group.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="S",
        help="divide all values by S (255 for grey levels of 8 bits) [1]",
    )
    group.add_argument(
        "--threshold",
        type=float,
        metavar="T",
        help="then make values above T 1 and all others 0",
    )
    group.add_argument("--rows", type=int, metavar="N", help="use the first N rows only")
    add_ignore(group)
    group.add_argument(
        "--dtype",
        choices=("float32", "float64"),
        default="float32",
        help="type to compute in [float32]",
    )


def add_ignore(group):
    """Add the option that leaves out columns of a table of text."""
    group.add_argument(
        "--ignore", nargs="+", default=[], metavar="NAME",
        help="columns of a table, by their names, that are left out, such as those of words",
    )  # fmt: skip


def read(name, arguments, *, whole=False):
    """Read the matrix of a file, one sample a row; only its first rows unless `whole`."""
    return read_with_names(name, arguments, whole=whole)[0]


def read_with_names(name, arguments, *, whole=False):
    """The matrix in a file, as of `read`, and the names of its columns, None without them."""
    array, names = read_named(name, arguments.ignore)
    array = matrix(array, name)
    n = n_rows(arguments)
    if not 0 < arguments.scale < np.inf:
        raise ValueError(f"--scale must be positive and finite, got {arguments.scale:g}.")
    X = array if whole else array[:n]
    X = X.astype(arguments.dtype) / np.dtype(arguments.dtype).type(arguments.scale)
    if arguments.threshold is not None:
        if np.isnan(arguments.threshold):
            raise ValueError("--threshold must be a number, got NaN.")
        if np.isnan(X).any():
            raise ValueError(f"{name} holds NaN, which is neither above nor below a threshold.")
        X = (X > arguments.threshold).astype(arguments.dtype)
    return X, names


def warn_of_codes(X, names):
    """Warn of numbers such as -9 or 999 that may stand for missing values."""
    from fastmf.estimators.common.missing_codes import warn_of_missing_codes

    columns = X.reshape(len(X), -1)
    table = SimpleNamespace(feature_names_in_=names)
    warn_of_missing_codes(table, columns, "X" if X.ndim > 1 else "the target")


def check_case(name, values):
    """Raise if words of a column differ in upper and lower case alone."""
    seen = {}
    for value in values:
        other = seen.setdefault(value.lower(), value)
        if other != value:
            raise ValueError(
                f"column {name!r} has values that differ in upper and lower case alone, such as "
                f"{other!r} and {value!r}: write them alike."
            )


def matrix(array, name):
    """The array of a file with one sample per row: images are flattened."""
    if array.ndim < 2:
        raise ValueError(
            f"{name} holds an array of shape {array.shape}; expected one sample per row."
        )
    return array.reshape(len(array), -1)


def n_rows(arguments):
    """Number of rows to use, None for all."""
    if arguments.rows is not None and arguments.rows < 1:
        raise ValueError(f"--rows must be at least 1, got {arguments.rows}.")
    return arguments.rows


def check_outputs(inputs, *outputs):
    """Raise early if an output cannot be written or would replace another file."""
    taken = {_real(path): "a file that is read" for path in inputs if path is not None}
    for path, suffixes in outputs:
        if path is None:
            continue
        _check_output(path, suffixes)
        if (other := taken.get(_real(path))) is not None:
            raise ValueError(f"output {path} would replace {other}: give another name of output.")
        taken[_real(path)] = "another output"


def _real(path):
    """The file of a path, whatever links to it; .npz files may name one of their arrays."""
    head, found, _ = str(path).rpartition(".npz:")
    path = Path(head + ".npz" if found else path).resolve()
    # Links of one file have the same number; elsewhere there may be none, 0.
    return path.stat()[1:3] if path.exists() and path.stat().st_ino else path


def _check_output(path, suffixes):
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{path}: the name of this output must end in {' or '.join(suffixes)}.")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file.")


OUTPUT_SUFFIXES = (".npy", ".npz", ".csv")
PICTURE_SUFFIXES = (".png", ".pdf", ".svg")


def cell(value):
    """A value as a cell of a table with commas."""
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n\r') else text


def save_figure(path, figure):
    """Write a figure in the format of its suffix, atomically."""
    with replacing(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:].lower(), dpi=150)


def write(path, array, names=None):
    """Write an array as .npy, .npz or .csv, which has a line of names if given, atomically."""
    suffix = Path(path).suffix.lower()
    with replacing(path) as file:
        if suffix == ".npy":
            np.save(file, array)
        elif suffix == ".npz":
            np.savez_compressed(file, X=array)
        else:
            if names is not None:
                file.write((",".join(map(cell, names)) + "\n").encode())
            # The fewest digits by which the same float is read back.
            for row in array.astype(float) if array.dtype.kind == "b" else array:
                cells = (value.removesuffix(".0") for value in np.atleast_1d(row).astype(str))
                file.write((",".join(cells) + "\n").encode())
