"""Describe a file: a trained machine, a bare model, a checkpoint, an alignment or an array.

examples:
  fastmf info model.npz
  fastmf info run.npz
      how far a run has come, whose checkpoint it is
  fastmf info PF00014.fasta.gz
  fastmf info potts3.a2m --alphabet '_*^'
"""

import dataclasses

import numpy as np

from fastmf.cli import _rows
from fastmf.priors._protocol import is_unit_prior, n_units


def add(parser):
    """Add the options to a parser.

    Options
    -------
    FILE
        such as one of fastmf train
    """
    _rows.add_alignment(parser, "identity")


def run(arguments):
    """Print one property a line."""
    from fastmf.datasets import read_array
    from fastmf.datasets._compressed import beginning
    from fastmf.datasets.alignments import is_alignment

    if is_alignment(arguments.file):
        properties = _alignment(arguments)
    elif beginning(arguments.file, 2) == b"PK":
        properties = _machine_or_model(arguments.file)
    else:
        properties = {"array": _described(read_array(arguments.file))}
    for name, value in properties.items():
        print(f"{name.replace('_', ' '):{max(map(len, properties)) + 2}}{value}")


def _alignment(arguments):
    from fastmf.datasets import load_alignment, sequence_weights

    alignment = load_alignment(arguments.file, arguments.alphabet)
    effective = sequence_weights(alignment.X, arguments.identity).sum()
    return {
        "alignment": f"{len(alignment.rows)} sequences, {len(alignment.columns)} columns",
        "alphabet": f"{alignment.alphabet} ({len(alignment.alphabet)} states)",
        "effective number": f"{effective:.1f} sequences at {arguments.identity:.0%} identity",
    }


def _machine_or_model(path):
    from fastmf.learning.training.trainer import run_in
    from fastmf.models._archive import reading
    from fastmf.models._io import model_from_arrays

    with reading(path, "a file") as arrays:
        if "run" in arrays:
            epoch = arrays.member("position", "iu", (None,), low=0)[0]
            progress = f"after {epoch} of {run_in(arrays)['n_epochs']} epochs"
            return {"checkpoint": progress} | _model(model_from_arrays(arrays.under("model")))
    machine = _rows.load(path)
    if not hasattr(machine, "fit"):
        return _model(machine)
    properties = {"machine": " ".join(repr(machine).split()), "features": machine.n_features_in_}
    return properties | (_model(machine.model_) if hasattr(machine, "model_") else {})


def _model(model):
    fields = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    return {"model": type(model).__name__} | {name: _described(x) for name, x in fields.items()}


def _described(part):
    """Units, the shape of an array, a number, or each of several parts."""
    if is_unit_prior(part):
        return f"{n_units(part)} {type(part).__name__}"
    if type(part) is tuple:
        return "; ".join(map(_described, part))
    return f"{' x '.join(map(str, part.shape))}, {part.dtype}" if np.ndim(part) else f"{part:g}"
