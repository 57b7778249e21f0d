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
    properties = _reader(arguments.model)(arguments)
    width = max(map(len, properties)) + 2
    for name, value in properties.items():
        print(f"{name:{width}}{value}")


def _reader(path):
    """The function that describes a file, from its first bytes or its name."""
    from fastmf.datasets._compressed import beginning
    from fastmf.datasets.alignments import is_alignment

    if is_alignment(path):
        return _alignment
    return _machine_or_model if beginning(path, 2) == b"PK" else _array


# --- files of data --------------------------------------------------------------------------------


def _array(arguments):
    from fastmf.datasets import read_array

    array = read_array(arguments.model)
    values = array[array == array]
    properties = {"array": f"{' x '.join(map(str, array.shape))}, {array.dtype}"}
    if values.size:
        properties["values"] = f"{values.min():g} to {values.max():g}, mean {values.mean():.4g}"
    if values.size < array.size:
        properties["missing"] = f"{array.size - values.size} of {array.size}"
    return properties


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


# --- machines, models and checkpoints -------------------------------------------------------------


def _machine_or_model(arguments):
    from fastmf.models._archive import reading

    properties = {}
    with reading(arguments.model, "a file") as arrays:
        if "run" in arrays:
            return _checkpoint(arrays)
        if "position" in arrays:  # of `IterateAverage`, beside its model
            epoch, n = arrays.member("position", "iu", (2,)).tolist()
            properties["average"] = f"of {n} models, the last one after epoch {epoch}"
    machine = _rows.load(arguments.model)
    return _machine(machine) if hasattr(machine, "fit") else properties | _model(machine)


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
    properties["seed"] = options["seed"]
    omitted = ("seed", "model", "start", "data", "n_epochs")
    properties["options"] = ", ".join(
        f"{name}={value!r:.60}" for name, value in options.items() if name not in omitted
    )
    return properties


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
                properties[field.name.replace("_", " ") + number] = _values(part)
    return properties


def _values(values):
    if np.ndim(values) == 0:
        return f"{values:g}"
    text = f"{' x '.join(map(str, values.shape))}, {values.dtype}"
    if values.size:
        text += f", standard deviation {values.std():.4g}, largest {abs(values).max():.4g}"
    return text


def _machine(machine):
    from fastmf.cli.train import log_likelihoods

    properties = {"machine": type(machine).__name__}
    if hasattr(machine, "coef_"):
        properties |= _regression(machine)
    else:
        properties |= _model(machine.model_)
        properties["trained for"] = f"{machine.n_iter_} epochs or steps"
    if hasattr(machine, "alphabet_"):
        properties["alphabet"] = f"{machine.alphabet_} ({len(machine.alphabet_)} states)"
    for name, value in log_likelihoods(machine).items():
        row = value * sum(machine.model_.sizes)
        properties[name.replace("_", " ")] = f"{value:.5f} nats per unit, {row:.2f} a row"
    default = type(machine)().get_params()
    options = [
        f"{name}={type(value).__name__ if is_unit_prior(value) else repr(value)}"
        for name, value in machine.get_params(deep=False).items()
        if isinstance(value, int | float | str | tuple)
        and (is_unit_prior(value) or value != default[name])
    ]
    properties["options"] = ", ".join(options) or "all at their defaults"
    return properties


def _regression(machine):
    """Results of a sparse regression or classification."""
    included = np.atleast_2d(machine.inclusion_probability_) > 0.5
    counts = ", ".join(map(str, included.sum(1)))
    features = f"{machine.n_features_in_}, {counts} with probability above 1/2"
    properties = {"features": features}
    for name in ("noise_variance_", "slab_variance_", "prior_inclusion_", "log_evidence_"):
        if hasattr(machine, name):
            values = np.ravel(getattr(machine, name))[:5]
            text = ", ".join(f"{value:.4g}" for value in values)
            properties[name.strip("_").replace("_", " ")] = text
    return properties
