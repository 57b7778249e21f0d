"""Describe a file: a trained machine, a bare model, a checkpoint, an alignment or an array."""

import dataclasses

import numpy as np

from fastmf.cli import _rows
from fastmf.priors._protocol import is_unit_prior, n_units

EPILOG = """\
examples:
  fastmf info model.npz
  fastmf info run.npz
      how far a run has come, whose checkpoint it is
  fastmf info PF00014.fasta.gz
  fastmf info potts3.a2m --alphabet '_*^'
"""


def add(parser):
    """Add the options to a parser."""
    parser.add_argument("model", metavar="FILE", help="such as one of fastmf train")
    _rows.add_alignment(parser, "identity")


def run(arguments):
    """Print one property a line."""
    from fastmf.datasets._compressed import beginning
    from fastmf.datasets.alignments import is_alignment

    if is_alignment(arguments.model):
        properties = _alignment(arguments)
    elif beginning(arguments.model, 2) == b"PK":
        properties = _machine_or_model(arguments.model)
    else:
        properties = _array(arguments.model)
    width = max(map(len, properties)) + 2
    for name, value in properties.items():
        print(f"{name:{width}}{value}")


def _array(path):
    from fastmf.datasets import read_array

    array = read_array(path)
    values = array[array == array]
    properties = {"array": _shape(array)}
    if values.size:
        properties["values"] = f"{values.min():g} to {values.max():g}, mean {values.mean():.4g}"
    if values.size < array.size:
        properties["missing"] = f"{array.size - values.size} of {array.size}"
    return properties


def _shape(array):
    return f"{' x '.join(map(str, array.shape))}, {array.dtype}"


def _alignment(arguments):
    from fastmf import datasets
    from fastmf.datasets.alignments import gap_state, load_and_compare

    (X, _, rows, columns, alphabet), left_out = load_and_compare(
        arguments.model, arguments.alphabet
    )
    gap = gap_state(alphabet)
    effective = datasets.sequence_weights(X, arguments.identity).sum()
    return {
        "alignment": f"{len(rows)} sequences, {len(columns)} columns",
        "left out": f"{left_out.n_rows} sequences with letters outside the alphabet, "
        f"{left_out.n_columns} columns of inserts",
        "alphabet": f"{alphabet} ({len(alphabet)} states)",
        "gaps": "none" if gap is None else f"{(X == gap).mean():.1%}",
        "effective number": f"{effective:.1f} sequences at {arguments.identity:.0%} identity",
    }


def _machine_or_model(path):
    from fastmf.models._archive import reading

    with reading(path, "a file") as arrays:
        if "run" in arrays:
            return _checkpoint(arrays)
    machine = _rows.load(path)
    return _machine(machine) if hasattr(machine, "fit") else _model(machine)


def _checkpoint(arrays):
    """State of a run of training, which another call of `fit` resumes."""
    from fastmf.learning.training.checkpoint import run_in
    from fastmf.models._io import model_from_arrays

    options = run_in(arrays)
    epoch = arrays.member("position", "iu", (None,), low=0)[0]
    properties = {"checkpoint": f"after {epoch} of {options['n_epochs']} epochs"}
    properties |= _model(model_from_arrays(arrays.under("model")))
    history = arrays.under("history")
    for name in history:
        values = history.member(name, "fiu", (None,))
        if name != "epoch" and values.size:
            properties[name.replace("_", " ")] = f"{values[-1]:.5g} in the last epoch"
    listed = (item for item in options.items() if item[0] not in ("model", "start", "data"))
    return properties | {"options": ", ".join(f"{name}={value!r:.60}" for name, value in listed)}


def _model(model):
    properties = {"model": type(model).__name__}
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        parts = value if type(value) is tuple else (value,)
        for k, part in enumerate(parts, 1):
            number = f" {k}" if len(parts) > 1 else ""
            if is_unit_prior(part):
                name = f"{field.name.removesuffix('s')}{number} units"
                properties[name] = f"{n_units(part)} {type(part).__name__}"
            else:
                name = field.name.replace("_", " ") + number
                properties[name] = _shape(part) if np.ndim(part) else f"{part:g}"
    return properties


def _machine(machine):
    from fastmf.cli.train import log_likelihoods

    properties = {"machine": " ".join(repr(machine).split())}
    if hasattr(machine, "coef_"):
        n_in = (np.atleast_2d(machine.inclusion_probability_) > 0.5).sum(1)
        listed = ", ".join(map(str, n_in))
        text = f"{machine.n_features_in_}, {listed} with probability above 1/2"
        return properties | {"features": text}
    properties |= _model(machine.model_) | {"trained for": f"{machine.n_iter_} epochs or steps"}
    if hasattr(machine, "alphabet_"):
        properties["alphabet"] = f"{machine.alphabet_} ({len(machine.alphabet_)} states)"
    for name, value in log_likelihoods(machine).items():
        row = value * sum(machine.model_.sizes)
        properties[name.replace("_", " ")] = f"{value:.5f} nats per unit, {row:.2f} a row"
    return properties
