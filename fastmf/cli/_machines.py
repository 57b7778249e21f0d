"""Machines in files, and the rows that they take and give: numbers, or sequences of letters."""

import numpy as np

from fastmf.cli import _data, dca
from fastmf.models._io import replacing

FASTA_SUFFIXES = (".fasta", ".fa", ".afa", ".faa", ".fna")
MACHINE_SUFFIXES = _data.OUTPUT_SUFFIXES + FASTA_SUFFIXES


def estimator_in(arrays):
    """Name of the estimator in an `Archive`, None for a bare model."""
    from fastmf import estimators
    from fastmf.models._archive import shown

    name = arrays.texts("estimator")[0] if "estimator" in arrays else None
    if name is not None and name not in estimators.__all__:
        raise ValueError(f"it holds a {shown(name)}, which is unknown here.")
    return name


def load(path, method=None):
    """The fitted estimator, or the bare model, in a file."""
    import fastmf
    from fastmf.models._archive import reading

    with reading(path, "a machine or model") as arrays:
        name = estimator_in(arrays)
    machine = fastmf.load(path) if name is None else getattr(fastmf, name).load(path)
    if method is not None and not hasattr(machine, method):
        raise ValueError(
            f"{path} holds a {type(machine).__name__}, which has no method {method!r}: give a "
            "machine of fastmf train or fastmf dca, or one that its method save has written."
        )
    return machine


def add_rows(parser):
    """Add the options that say how rows of data are read for a machine."""
    _data.add_options(parser.add_argument_group("data"))
    alignment = parser.add_argument_group("alignment")
    dca.add_alphabet(alignment)
    dca.add_focus(alignment)
    dca.add_inserts(alignment)


def alphabet_of(machine, arguments):
    """Letters of the states of a machine: its own, or those of the option."""
    from fastmf.datasets.alignments import ALPHABETS

    alphabet = getattr(machine, "alphabet_", None) or arguments.alphabet
    if alphabet is None:
        raise ValueError(
            f"{arguments.model} does not say which letters its states stand for: give --alphabet."
        )
    return ALPHABETS.get(alphabet.lower(), alphabet)


def read_rows(name, machine, arguments):
    """Read the rows of a file as a machine takes them, and their `Alignment` or None."""
    from fastmf.datasets import load_alignment
    from fastmf.datasets.alignments import is_alignment

    if not is_alignment(name):
        return read_table(name, machine, arguments), None
    alphabet = alphabet_of(machine, arguments)
    gaps = "state" if dca.gap_state(alphabet) is not None else "missing"
    # No row is left out: what is written has a line for each.
    options = {"inserts": arguments.inserts, "outside": "missing"}
    found = load_alignment(name, alphabet, arguments.focus, gaps, **options)
    X = found.X
    if X.shape[1] != machine.n_features_in_:
        X = _columns_of(machine, found, name)
    rows = slice(arguments.rows)
    columns = found.columns if X is found.X else machine.columns_
    return X[rows], found._replace(X=X[rows], names=found.names[rows], columns=columns)


def read_table(name, machine, arguments, *, whole=False):
    """Rows of numbers; columns in the order of the machine's where both have names."""
    X, names = _data.read_with_names(name, arguments, whole=whole)
    own = names_of(machine)
    if names is None or own is None or names == own:
        return X
    for column in own:
        if names.count(column) != 1:
            found = "more than one column" if column in names else "no column"
            raise ValueError(
                f"{name} has {found} {column!r}; the machine has learned from "
                f"{', '.join(own[:5])}{', ...' * (len(own) > 5)}."
            )
    return X[:, [names.index(column) for column in own]]


def names_of(machine):
    """Names of the columns that a machine has learned from, None if they had none."""
    names = getattr(machine, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def keep_names(machine, names):
    """Give a fitted machine the names of its columns, if each has its own."""
    if names is not None and len(set(names)) == len(names) == machine.n_features_in_:
        machine.feature_names_in_ = np.array(names, object)


def _columns_of(machine, alignment, name):
    """The columns of an alignment that a machine has learned from."""
    columns = getattr(machine, "columns_", None)
    if columns is None or not np.isin(columns, alignment.columns).all():
        raise ValueError(
            f"{name} has {alignment.X.shape[1]} columns, the machine {machine.n_features_in_}: "
            "give sequences that are aligned as those that it was trained on, and the same --focus."
        )
    return alignment.X[:, np.searchsorted(alignment.columns, columns)]


def write_rows(path, X, names, machine, arguments):
    """Write rows as numbers, or as sequences by the suffix of the file."""
    from fastmf.datasets import write_fasta

    X = np.asarray(X)
    if X.dtype.kind not in "fiub":
        _write_texts(path, X, names_of(machine))
    elif path.lower().endswith(FASTA_SUFFIXES):
        write_fasta(path, X, alphabet_of(machine, arguments), names)
    else:
        _data.write(path, X, names_of(machine))
    print(f"{path}: {len(X)} rows of {X.shape[1]} values")


def _write_texts(path, X, names):
    """Write rows of a machine whose categories are texts, as a table."""
    if not path.lower().endswith(".csv"):
        raise ValueError(f"{path}: the machine's categories are texts; write them to a .csv file.")
    with replacing(path) as file:
        for row in [*([names] if names else []), *X.tolist()]:
            file.write((",".join(map(_data.cell, row)) + "\n").encode())
