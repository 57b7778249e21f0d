"""Reading of machines, and reading and writing of rows: numbers, categories or sequences."""

import csv
import io
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import fastmf
from fastmf._common.arguments import count, number, positive
from fastmf._common.names import pandas
from fastmf._common.warning import listed
from fastmf.cli import _options
from fastmf.datasets.alignments import (
    ALPHABETS,
    gap_state,
    is_alignment,
    load_alignment,
    sequence_weights,
    write_fasta,
)
from fastmf.datasets.files import is_text, is_word, read_named, read_text
from fastmf.models._io import reading, replacing, shown, write_text

# Suffixes of FASTA files.
FASTA = (".fasta", ".fa", ".afa", ".faa", ".fna")


# --- options --------------------------------------------------------------------------------------


def check_files(arguments, formats=_options.OUTPUTS):
    """Raise early if an output cannot be written: see `_options.check_outputs`."""
    inputs = [getattr(arguments, name, None) for name in ("model", "data", "candidates")]
    # Only tables can have row names.
    formats = (".csv",) if getattr(arguments, "id_column", None) else formats
    plot = getattr(arguments, "plot", None), _options.PICTURES
    _options.check_outputs(inputs, (arguments.output, formats), plot)


def add_data(parser):
    """Add options for the conversion of numbers in a file to values of visible units.

    Options
    -------
    --scale R = 1
        divide all values by R (255 for grey levels of 8 bits)
    --threshold R
        after scaling, replace values above R by 1 and all other values by 0
    --missing-code R ...
        numbers that mark missing values, such as -9 or 999
    --drop-empty-rows
        leave out rows without any value
    --dtype {float32,float64}
        floating-point type of the computation [float32 if it holds the file's values exactly]
    """
    group = parser.add_argument_group("data")
    _options.add_options(group, add_data)
    add_limits(group)


def add_limits(group):
    """Add options for the rows and columns of a table to use.

    Options
    -------
    --rows N
        use the first N rows only
    --ignore NAME ...
        names of columns of a table that are left out
    --id NAME
        column of row names, which is not used as data; it is the first column of written tables
    """
    _options.add_options(group, add_limits)


def add_alignment(parser, *names):
    """Add options of `load_alignment`, and of `sequence_weights` if `identity` is among them."""
    group = parser.add_argument_group("alignment")
    names = ("alphabet", *names)
    reading = [name for name in names if name != "identity"]
    _options.add_parameters(group, load_alignment, reading, alphabet=None)
    if "identity" in names:
        _options.add_parameters(group, sequence_weights, ["identity"], identity=0.8)


# --- numbers --------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Rows of a file: values, column names or None, and row names, by default numbers."""

    X: Any
    columns: list | None
    names: Any
    id_column: str | None = None


def ignored(arguments, *names):
    """Return the names of the columns of a table that are not read as numbers."""
    return [*arguments.ignore, *names, *filter(None, [arguments.id_column])]


def read_frame(name, arguments):
    """Read `Rows` with columns of numbers or words, as a data frame unless all are in [0, 1]."""
    try:
        table = read_numbers(name, arguments)
    except ValueError:
        words = []
        with suppress(ValueError):  # the first error is more specific
            words = _columns_of_words(name, arguments)
        if not words:
            raise
        table = read_numbers(name, arguments, words=words)
        for word in words:
            check_case(word, table.X[word].cat.categories)
        return table
    X, columns = table.X, table.columns
    if columns is None or (np.isnan(X) | (X >= 0) & (X <= 1)).all():
        return table
    return table._replace(X=pandas().DataFrame(X, columns=columns))


def _columns_of_words(name, arguments):
    """Return the names of columns that contain only words, at least one of them repeatedly."""
    texts = dict(zip(*read_text(name), strict=True)) if is_text(name) else {}
    cells = {column: list(filter(None, texts[column])) for column in texts}
    candidates = [column for column in texts if column not in ignored(arguments)]
    words = [column for column in candidates if all(map(is_word, cells[column]))]
    return [column for column in words if len(set(cells[column])) < len(cells[column])]


def read_numbers(name, arguments, *, all_rows=False, words=None, wanted=None):
    """Read `Rows` of numbers; with `words`, a data frame in which these columns are words."""
    array, columns = read_named(name, ignored(arguments, *(words or ())), wanted=wanted)
    X, texts = as_matrix(array, name), {}
    if words or arguments.id_column:
        names, cells = read_text(name, arguments.id_column)
        texts = dict(zip(names, np.array(cells, object), strict=True))
    used = np.arange(len(X))[: None if all_rows else n_rows(arguments)]
    scale = positive("scale", arguments.scale)
    if arguments.missing_code:
        X = np.where(np.isin(X, arguments.missing_code), np.nan, X)
    if arguments.drop_empty_rows:
        empty = np.isnan(X).all(1) & np.all([np.equal(texts[w], None) for w in words or ()], axis=0)
        if n := empty[used].sum():
            _options.say(f"{n} of {len(used)} rows of {name} left out: they have no values")
            used = used[~empty[used]]
    X = X[used]
    with np.errstate(over="ignore"):
        exact = np.isnan(X) | (X.astype(np.float32) == X)
    dtype = np.dtype(arguments.dtype or (np.float32 if exact.all() else np.float64))
    X = X.astype(dtype) / dtype.type(scale)
    if arguments.threshold is not None:
        threshold = number("threshold", arguments.threshold, -np.inf, np.inf)
        if np.isnan(X).any():
            raise ValueError(f"{name} holds NaN, which is neither above nor below a threshold.")
        X = (X > threshold).astype(arguments.dtype or np.float32)
    if words is not None:
        X = pandas().DataFrame(X, columns=columns)
        for word in words:
            X[word] = pandas().Categorical(texts[word][used])  # before rows are split
        X = X[[column for column in texts or columns if column in X]]
        columns = list(X)
    names = texts[arguments.id_column][used] if arguments.id_column else used + 1
    return Rows(X, columns, names, arguments.id_column)


def as_matrix(array, name):
    """Return the array of a file with one sample per row; images are flattened."""
    if array.ndim < 2:
        raise ValueError(
            f"{name} holds an array of shape {array.shape}; expected one sample per row."
        )
    return array.reshape(len(array), np.prod(array.shape[1:], dtype=int))


def n_rows(arguments):
    """Return the number of rows to use; None for all."""
    return count("n_rows", arguments.n_rows, optional=True)


def warn_of_codes(X, names):
    """Warn of numbers such as -9 or 999 that may be codes of missing values."""
    from fastmf.estimators.common.data import warn_of_missing_codes

    table = SimpleNamespace(feature_names_in_=names)
    warn_of_missing_codes(table, X.reshape(len(X), -1), "X" if X.ndim > 1 else "the target")


def check_case(name, values):
    """Raise if words of a column differ only in upper and lower case."""
    seen = {}
    for value in values:
        if (first := seen.setdefault(value.lower(), value)) != value:
            raise ValueError(
                f"column {name!r} has values that differ in upper and lower case alone, such as "
                f"{first!r} and {value!r}: write them alike."
            )


# --- machines -------------------------------------------------------------------------------------


def load(path, method=None):
    """Load the fitted estimator, or the model, in a file."""
    from fastmf import estimators  # requires scikit-learn

    with reading(path, "a machine or model") as arrays:
        name = arrays.texts("estimator")[0] if "estimator" in arrays else None
        if name is not None and name not in estimators.__all__:
            raise ValueError(f"it holds a {shown(name)}, which is unknown here.")
    machine = fastmf.load(path) if name is None else getattr(fastmf, name).load(path)
    if method is not None and not hasattr(machine, method):
        raise ValueError(
            f"{path} holds a {type(machine).__name__}, which has no method {method!r}: give a "
            "machine of fastmf train, dca or regress, or one that its method save has written."
        )
    return machine


def keep_names(machine, names):
    """Store column names in a fitted machine, if they are distinct."""
    if names is not None and len(set(names)) == len(names) == machine.n_features_in_:
        machine.feature_names_in_ = np.array(names, object)


def names_of(machine):
    """Return the names of the training columns of a machine; None without names."""
    names = getattr(machine, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def keep_alignment(machine, alignment):
    """Store the alphabet and the columns of the training alignment in a fitted machine."""
    machine.alphabet_, machine.columns_ = alignment.alphabet, alignment.columns


def alphabet_of(machine, arguments):
    """Return the alphabet of a machine, or of the option --alphabet."""
    alphabet = getattr(machine, "alphabet_", None) or arguments.alphabet
    if alphabet is None:
        raise ValueError(
            f"{arguments.model} does not hold the letters of its states: give --alphabet."
        )
    return ALPHABETS.get(alphabet.lower(), alphabet)


# --- rows of machines -----------------------------------------------------------------------------


def read_rows(name, machine, arguments):
    """Read `Rows` of a file for a machine, and their `Alignment` or None."""
    if not is_alignment(name):
        return read_table(name, machine, arguments), None
    alphabet = alphabet_of(machine, arguments)
    gaps = "state" if gap_state(alphabet) is not None else "missing"
    options = _options.given(arguments, "focus", "inserts")
    # No row is dropped, as the output has a line for each row.
    alignment = load_alignment(name, alphabet, gaps=gaps, outside="missing", **options)
    X, columns = alignment.X, alignment.columns
    if gaps == "state" and (n_unknown := np.count_nonzero(X < 0)):
        outside = f"letters of {name} are outside the alphabet {alphabet}"
        _options.say(f"{n_unknown} of {X.size} {outside}, and are taken as missing")
    if X.shape[1] != machine.n_features_in_:
        learned = getattr(machine, "columns_", None)
        if learned is None or not np.isin(learned, columns).all():
            raise ValueError(
                f"{name} has {X.shape[1]} columns, the machine {machine.n_features_in_}: give "
                "sequences that are aligned as those that it was trained on, and the same --focus."
            )
        X, columns = X[:, np.searchsorted(columns, learned)], learned
    X = X[: n_rows(arguments)]
    names = alignment.names[: len(X)]
    return Rows(X, None, names), alignment._replace(X=X, names=names, columns=columns)


def read_table(name, machine, arguments, *, all_rows=False):
    """Read `Rows`, with columns in the order of the machine's columns if both have names."""
    learned = names_of(machine)
    words = None if learned is None else _words_of(machine, learned)
    table = read_numbers(name, arguments, all_rows=all_rows, words=words, wanted=learned)
    names = table.columns
    if names is None or learned is None or names == learned:
        return table._replace(columns=learned or names)
    for column in learned:
        if names.count(column) != 1:
            what = "more than one column" if column in names else "no column"
            raise ValueError(
                f"{name} has {what} {column!r}; the machine has learned from {listed(learned, 5)}."
            )
    places = [names.index(column) for column in learned]
    X = table.X[:, places] if words is None else table.X.iloc[:, places]
    return table._replace(X=X, columns=learned)


def _words_of(machine, names):
    """Return the training columns of words; None if the machine takes arrays of numbers."""
    categories = getattr(machine, "categories_", None) or [None] * len(names)
    words = [
        name for name, listed in zip(names, categories, strict=True)
        if listed is not None and any(isinstance(value, str) for value in listed)
    ]  # fmt: skip
    # Machines with hidden units take numbers in arrays as labels; categories need a data frame.
    labelled = hasattr(machine, "solutions") and any(listed is not None for listed in categories)
    return words if words or labelled else None


def write_rows(path, table, machine, arguments):
    """Write rows as numbers and texts, or as sequences if the file has a FASTA suffix."""
    X = np.asarray(table.X)
    if path.lower().endswith(FASTA):
        write_fasta(path, X, alphabet_of(machine, arguments), table.names)
    else:
        write(path, table._replace(X=X, columns=table.columns or names_of(machine)))
    print(f"{path}: {len(X)} rows of {X.shape[1]} values")


def write(path, table):
    """Write `Rows` as .npy, .npz or .csv, the latter with column names and row names."""
    suffix, array = Path(path).suffix.lower(), table.X
    if suffix == ".csv":
        array = array.astype(float) if array.dtype.kind == "b" else array
        rows = [table.columns] if table.columns else []
        rows += map(np.atleast_1d, array)
        if table.id_column:
            ids = table.id_column, *table.names
            rows = [[first, *row] for first, row in zip(ids, rows, strict=True)]
        write_table(path, rows)
        return
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{path}: the machine's categories are texts; write them to a .csv file.")
    with replacing(path) as file:
        if suffix == ".npy":
            np.save(file, array)
        else:
            np.savez_compressed(file, X=array)


def write_table(path, rows):
    """Write a table with commas atomically; numbers have enough digits to be read unchanged."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [x if isinstance(x, str) else str(x).removesuffix(".0") for x in row] for row in rows
    )
    write_text(path, text.getvalue())


def write_columns(path, columns):
    """Write named columns as a table."""
    write_table(path, [columns, *zip(*columns.values(), strict=True)])


def write_figure(path, figure):
    """Write a figure in the format of its suffix, atomically."""
    with replacing(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:].lower(), dpi=150)
