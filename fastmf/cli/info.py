"""`fastmf info`: describe the machine, model or alignment in a file."""

import dataclasses

import numpy as np

from fastmf.cli import _machines, _options, dca
from fastmf.priors._protocol import is_unit_prior, n_units

EPILOG = """\
examples:
  fastmf info model.npz
  fastmf info run.npz
      how far a run has come, whose checkpoint it is
  fastmf info PF00014.fasta.gz
  fastmf info potts3.a2m --alphabet '_*^'
"""


def add(commands):
    """Add the command to a parser."""
    info = _options.command(
        commands,
        run,
        "info",
        help="say what is in a file",
        description="Describe a trained machine, a bare model, a checkpoint, an alignment of\n"
        "sequences, parameters of a Potts model (plmc, adabmDCA), or an array of numbers.",
        epilog=EPILOG,
    )
    info.add_argument("model", metavar="FILE", help="any file that fastmf writes or reads")
    dca.add_alphabet(info)
    dca.add_identity(info)


def run(arguments):
    """Print one property a line."""
    from fastmf.datasets.alignments import is_alignment

    if is_alignment(arguments.model):
        properties = _alignment(arguments)
    else:
        properties = _reader(arguments.model)(arguments)
    width = max(map(len, properties)) + 2
    for name, value in properties.items():
        print(f"{name:{width}}{value}")


def _reader(path):
    """The function that describes a file, from its first bytes or its name."""
    from fastmf.datasets._compressed import beginning
    from fastmf.datasets.files import is_text

    begin = beginning(path, 2)
    if begin == b"PK":
        return _machine_or_model
    if begin in (b"J ", b"h "):
        return _adabmdca
    name = str(path).lower().removesuffix(".gz")
    return _array if begin in (b"\0\0", b"\x93N") or is_text(name) else _plmc


def _array(arguments):
    from fastmf.datasets import read_array

    array = read_array(arguments.model)
    shape = " x ".join(map(str, array.shape))
    seen = array[array == array]
    missing = array.size - seen.size
    properties = {"array": f"{shape}, {array.dtype}"}
    if seen.size:
        properties["values"] = f"{seen.min():g} to {seen.max():g}, mean {seen.mean():.4g}"
    if missing:
        properties["missing"] = f"{missing} of {array.size}"
    return properties


def _adabmdca(arguments):
    from fastmf.datasets import read_adabmdca

    alphabets = [arguments.alphabet] if arguments.alphabet else ["rna", "dna", "protein"]
    for alphabet in alphabets:
        try:
            return {"file": "parameters of adabmDCA"} | _potts(
                read_adabmdca(arguments.model, alphabet)
            )
        except ValueError:
            if alphabet == alphabets[-1]:
                raise


def _plmc(arguments):
    from fastmf.datasets import read_plmc

    try:
        found = read_plmc(arguments.model)
    except ValueError as error:
        raise ValueError(
            f"{arguments.model} is no file that fastmf writes or reads; {error}"
        ) from error
    properties = {"file": "parameters of plmc"} | _potts(found)
    effective, left_out = f"{found.n_effective:.1f} effective", f"{found.n_skipped} left out"
    properties["sequences"] = f"{found.n_rows} ({effective}), {left_out}"
    penalties = f"lambda_h {found.lambda_field:g}, lambda_e {found.lambda_couplings:g}"
    return properties | {"penalties": penalties}


def _potts(found):
    """Properties of `PottsParameters`."""
    return {
        "columns": f"{len(found.field)}",
        "alphabet": f"{found.alphabet} ({len(found.alphabet)} states)",
        "couplings": _values(found.couplings),
        "field": _values(found.field),
    }


def _machine_or_model(arguments):
    from fastmf.models._archive import reading

    path = arguments.model
    with reading(path, "a file") as arrays:
        if "run" in arrays:
            return _checkpoint(arrays)
        averaged = arrays.member("position", "iu", (2,)) if "position" in arrays else None
    machine = _machines.load(path)
    return _machine(machine) if hasattr(machine, "fit") else _average(averaged) | _model(machine)


def _average(position):
    """Contents of a file of `IterateAverage` beside its model."""
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
    history = getattr(machine, "history_", {})
    history = history if isinstance(history, dict) else {}
    found = {name: values for name, values in history.items() if name.endswith("log_likelihood")}
    if not found:
        return {}
    # Early stopping keeps the best model rather than the last one.
    scores = found.get("validation_log_likelihood", found["log_likelihood"])
    kept = int(np.argmax(scores)) if machine.early_stopping else -1
    return {name: values[kept] for name, values in found.items()}


def _regression(machine):
    """Results of a sparse regression or classification."""
    included = np.atleast_2d(machine.inclusion_probability_) > 0.5
    counts = ", ".join(map(str, included.sum(1)))
    properties = {
        "features": f"{machine.n_features_in_}, of which {counts} with probability above 1/2"
    }
    for name in ("noise_variance_", "slab_variance_", "prior_inclusion_", "log_evidence_"):
        if hasattr(machine, name):
            values = ", ".join(f"{value:.4g}" for value in np.ravel(getattr(machine, name))[:5])
            properties[name.strip("_").replace("_", " ")] = values
    return properties


def _machine(machine):
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
