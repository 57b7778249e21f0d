"""`fastmf info`: describe the machine or model in a file."""

import argparse
import dataclasses

import numpy as np

from fastmf.priors._protocol import is_unit_prior, n_units

EPILOG = """\
example:
  fastmf info model.npz
"""


def add(commands):
    """Add the command to a parser."""
    info = commands.add_parser(
        "info",
        help="say what is in a file of a model",
        description="Describe a trained machine, or a bare model, in a file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    info.set_defaults(run=run)
    info.add_argument("model", metavar="MODEL", help="file of a machine or model (.npz)")


def run(arguments):
    """Print one property a line."""
    from fastmf import estimators, load
    from fastmf.models._io import read_arrays

    arrays = read_arrays(arguments.model)
    if "estimator" in arrays:
        name = str(arrays["estimator"][0])
        if name not in estimators.__all__:
            raise ValueError(f"{arguments.model} holds a {name}, which is unknown here.")
        properties = _machine(getattr(estimators, name).load(arguments.model))
    else:
        properties = _model(load(arguments.model))
    width = max(map(len, properties)) + 2
    for name, value in properties.items():
        print(f"{name:{width}}{value}")


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
        f"{name}={value!r}"
        for name, value in machine.get_params(deep=False).items()
        if isinstance(value, int | float | str | tuple) and value != default[name]
    ]
    properties["options"] = ", ".join(options) or "all at their defaults"
    return properties
