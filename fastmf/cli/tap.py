"""`fastmf tap`: marginals and log-partition of a model."""

import numpy as np

from fastmf.cli import _data, _machines, _options
from fastmf.models._io import replacing

EPILOG = """\
examples:
  fastmf tap model.npz
      means and variances of all units in marginals.csv, and the log-partition
  fastmf tap model.npz --method bp
      by belief propagation; also relaxed_bp, adaptive_tap and, of small models, exact
  fastmf tap grid.uai --evidence grid.uai.evid --method bp
      a pairwise model in UAI format, with observed variables

MODEL is a model that its method save has written, a trained machine, or a network in UAI format.
The table has one line a unit; a variable with several states is a group of units, whose means are
the probabilities of the states.
"""


def add(commands):
    """Add the command to a parser."""
    tap = _options.command(
        commands,
        run,
        "tap",
        help="marginals and log-partition of a model",
        description="Marginals and log-partition of a model by mean field (TAP) or other solvers.",
        epilog=EPILOG,
    )
    tap.add_argument("model", metavar="MODEL", help="file of a model")
    _options.add_output(tap, "marginals.csv", "table", metavar="CSV")
    tap.add_argument(
        "--method",
        choices=("tap", "bp", "relaxed_bp", "adaptive_tap", "exact"),
        default="tap",
        help="how [tap]",
    )
    tap.add_argument("--evidence", metavar="FILE", help="observed variables of a UAI network")
    tap.add_argument(
        "--max-iter", type=int, metavar="N", help="sweeps at most [those of the method]"
    )


def run(arguments):
    """Solve, write the table and print the log-partition."""
    import fastmf
    from fastmf._jit.messages import announced

    _data.check_outputs([arguments.model, arguments.evidence], (arguments.output, (".csv",)))
    model, clamp, log_factor = _model(arguments)
    options = {} if clamp is None else {"clamp": clamp}
    if clamp is not None and arguments.method == "adaptive_tap":
        raise ValueError("--method adaptive_tap takes no --evidence.")
    if arguments.max_iter is not None:
        if arguments.method == "exact":
            raise ValueError("--method exact has no sweeps: leave out --max-iter.")
        options["max_iter"] = arguments.max_iter
    with announced("solving"):
        name = {"bp": "belief_propagation"}.get(arguments.method, arguments.method)
        found = getattr(fastmf, name)(model, **options)
    _write(arguments.output, found.mean, getattr(found, "var", None))
    value = float(found.log_partition) + log_factor
    print(f"log-partition: {value:.8g} nats ({value / np.log(10):.8g} in base 10)")
    if arguments.method != "exact":
        print(f"{found.message}, {int(found.n_iter)} sweeps")


def _model(arguments):
    """Model, clamped units and logarithm of a factor of the partition function."""
    from fastmf.datasets import load_uai

    name = arguments.model.lower().removesuffix(".gz")
    if name.endswith(".uai"):
        return load_uai(arguments.model, arguments.evidence)
    if arguments.evidence is not None:
        raise ValueError("--evidence is for networks in UAI format (*.uai).")
    machine = _machines.load(arguments.model)
    return getattr(machine, "model_", machine), None, 0.0


def _write(path, means, variances):
    """One line a unit: layer, number within the layer, mean and variance."""
    layers = means if isinstance(means, tuple) else (means,)
    variances = variances if isinstance(variances, tuple) else (variances,)
    if variances[0] is None:
        variances = [np.full(mean.shape, np.nan) for mean in layers]
    n_units = sum(mean.size for mean in layers)
    with replacing(path) as file:
        file.write(b"layer,unit,mean,variance\n")
        for k, (mean, variance) in enumerate(zip(layers, variances, strict=True), 1):
            for i, (m, v) in enumerate(zip(mean.tolist(), variance.tolist(), strict=True), 1):
                end = "" if np.isnan(v) else f"{v:.9g}"
                file.write(f"{k},{i},{m:.9g},{end}\n".encode())
    print(f"{path}: {n_units} units")
