"""`fastmf info`: what is in a file."""

import argparse

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
    """Print one fact a line."""
    from fastmf.models._io import read_arrays

    if "estimator" in read_arrays(arguments.model):
        from fastmf import GeneralizedRBM

        machine = GeneralizedRBM.load(arguments.model)
        facts = _machine(machine)
    else:
        from fastmf import load

        facts = _model(load(arguments.model))
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        print(f"{name:{width}}{value}")


def _model(model):
    facts = {"model": type(model).__name__}
    for name in ("visible", "hidden", "prior"):
        if hasattr(model, name):
            facts[f"{name} units"] = _units(getattr(model, name))
    for name in ("weights", "couplings"):
        if hasattr(model, name):
            values = getattr(model, name)
            facts[name] = (
                f"{values.shape[0]} x {values.shape[1]}, {values.dtype}, "
                f"standard deviation {values.std():.4g}, largest {abs(values).max():.4g}"
            )
    return facts


def _units(prior):
    from fastmf.priors._protocol import n_units

    return f"{n_units(prior)} {type(prior).__name__}"


def _machine(machine):
    facts = {"machine": type(machine).__name__} | _model(machine.model_)
    facts["trained for"] = f"{machine.n_iter_} epochs or steps, gradient {machine.gradient!r}"
    for name, values in machine.history_.items():
        if name.endswith("log_likelihood") and values:
            facts[name.replace("_", " ")] = f"{values[-1]:.5f} nats per unit"
    default = type(machine)().get_params()
    options = [
        f"{name}={value!r}"
        for name, value in machine.get_params(deep=False).items()
        if isinstance(value, int | float | str | tuple) and value != default[name]
    ]
    facts["options"] = ", ".join(options) or "all at their defaults"
    return facts
