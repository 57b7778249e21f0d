"""`fastmf info`: describe the machine, model or alignment in a file."""

import argparse
import dataclasses

import numpy as np

from fastmf.cli import dca
from fastmf.priors._protocol import is_unit_prior, n_units

EPILOG = """\
examples:
  fastmf info model.npz
  fastmf info PF00014.fasta.gz
  fastmf info potts3.a2m --alphabet '_*^'
"""


def add(commands):
    """Add the command to a parser."""
    info = commands.add_parser(
        "info",
        help="say what is in a file of a model or an alignment",
        description="Describe a trained machine, a bare model, or an alignment of sequences.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    info.set_defaults(run=run)
    info.add_argument(
        "model", metavar="FILE", help="file of a machine or model (.npz), or an alignment"
    )
    dca.add_alphabet(info)
    dca.add_identity(info)


def run(arguments):
    """Print one property a line."""
    from fastmf.datasets.alignments import is_alignment

    if is_alignment(arguments.model):
        properties = _alignment(arguments)
    else:
        properties = _machine_or_model(arguments.model)
    width = max(map(len, properties)) + 2
    for name, value in properties.items():
        print(f"{name:{width}}{value}")


def _machine_or_model(path):
    from fastmf import estimators, load
    from fastmf.models._archive import reading, shown

    with reading(path, "a file") as arrays:
        name = arrays.texts("estimator")[0] if "estimator" in arrays else None
        if "run" in arrays:
            return _checkpoint(arrays)
        averaged = arrays.member("position", "iu", (2,)) if "position" in arrays else None
    if name is None:
        return _average(averaged) | _model(load(path))
    if name not in estimators.__all__:
        raise ValueError(f"{path} holds a {shown(name)}, which is unknown here.")
    return _machine(getattr(estimators, name).load(path))


def _average(position):
    """What a file of `IterateAverage` holds beside its model."""
    if position is None:
        return {}
    epoch, n_averaged = position.tolist()
    return {"average": f"of {n_averaged} models, the last one after epoch {epoch}"}


def _checkpoint(arrays):
    """State of a run of training, which another call of `fit` goes on from."""
    from fastmf.learning.training.checkpoint import identity_in
    from fastmf.models._io import model_from_arrays

    options = identity_in(arrays)
    epoch, batch, _ = arrays.member("position", "iu", (3,), low=0).tolist()
    properties = {
        "checkpoint": f"after {epoch} of {options['n_epochs']} epochs"
        + (f" and {batch} batches" if batch else "")
    }
    properties |= _model(model_from_arrays(arrays.under("model")))
    history = arrays.under("history")
    for name in history:
        values = history.member(name, "fiu", (None,))
        if name != "epoch" and values.size:
            properties[name.replace("_", " ")] = f"{values[-1]:.5g} in the last epoch"
    properties["seed"] = options["seed"]
    properties["options"] = ", ".join(
        f"{name}={value!r:.60}"
        for name, value in options.items()
        if name not in ("seed", "model", "start", "data", "n_epochs")
    )
    return properties


def _alignment(arguments):
    from fastmf import datasets
    from fastmf.datasets.alignments import load_and_compare

    (X, _, rows, columns, alphabet), left_out = load_and_compare(
        arguments.model, arguments.alphabet
    )
    gap = dca.gap_state(alphabet)
    effective = datasets.sequence_weights(X, arguments.identity).sum()
    return {
        "alignment": f"{len(rows)} sequences, {len(columns)} columns",
        "left out": f"{left_out.n_rows} sequences with letters outside the alphabet, "
        f"{left_out.n_columns} columns of inserts",
        "alphabet": f"{alphabet} ({len(alphabet)} states)",
        "gaps": "none" if gap is None else f"{(X == gap).mean():.1%}",
        "effective number": f"{effective:.1f} sequences at {arguments.identity:.0%} identity",
    }


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


def log_likelihoods(machine):
    """Log-likelihoods of a machine's model, by their names in its history."""
    history = machine.history_ if isinstance(machine.history_, dict) else {}
    found = {name: values for name, values in history.items() if name.endswith("log_likelihood")}
    if not found:
        return {}
    # Early stopping keeps the best model rather than the last one.
    scores = found.get("validation_log_likelihood", found["log_likelihood"])
    kept = int(np.argmax(scores)) if machine.early_stopping else -1
    return {name: values[kept] for name, values in found.items()}


def _machine(machine):
    properties = {"machine": type(machine).__name__} | _model(machine.model_)
    properties["trained for"] = f"{machine.n_iter_} epochs or steps"
    for name, value in log_likelihoods(machine).items():
        properties[name.replace("_", " ")] = f"{value:.5f} nats per unit"
    default = type(machine)().get_params()
    options = [
        f"{name}={type(value).__name__ if is_unit_prior(value) else repr(value)}"
        for name, value in machine.get_params(deep=False).items()
        if isinstance(value, int | float | str | tuple)
        and (is_unit_prior(value) or value != default[name])
    ]
    properties["options"] = ", ".join(options) or "all at their defaults"
    return properties
