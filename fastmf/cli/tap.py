"""Marginals and log-partition of a model by mean field (TAP) or other solvers.

examples:
  fastmf tap model.npz
      means and variances of all units in marginals.csv, and the log-partition
  fastmf tap model.npz --method bp
      by belief propagation; also relaxed_bp, adaptive_tap and, of small models, exact
  fastmf tap grid.uai --evidence grid.uai.evid --method bp
      a model in UAI format (.uai, or .LG for logarithms), with observed variables

MODEL is a model that its method save has written, a trained machine, or a network in UAI format.
The table has one line a unit; a variable with several states is a group of units, whose means are
the probabilities of the states.
"""

import numpy as np

from fastmf.cli import _options, _rows


def add(parser):
    """Add the options to a parser.

    Options
    -------
    MODEL
        file of a model
    -o, --output CSV = marginals.csv
        table
    --method {tap,bp,relaxed_bp,adaptive_tap,exact} = tap
        solver
    --evidence FILE
        observed variables of a UAI network
    --max-iter N
        most sweeps [the default of the method]
    """


def run(arguments):
    """Solve, write the table and print the log-partition."""
    import fastmf

    method = arguments.method
    _options.check_outputs([arguments.model, arguments.clamp], (arguments.output, (".csv",)))
    model, clamp, log_factor, n_variables = _model(arguments)
    options = _options.given(arguments, "max_iter")
    if clamp is not None:
        if method == "adaptive_tap":
            raise ValueError("--method adaptive_tap takes no --evidence.")
        options["clamp"] = clamp
    if method == "exact" and "max_iter" in options:
        raise ValueError("--method exact has no sweeps: leave out --max-iter.")
    solver = "belief_propagation" if method == "bp" else method
    result = getattr(fastmf, solver)(model, **options)
    means, variances = result.mean, getattr(result, "var", None)
    if n_variables is not None:  # without the auxiliary units of factors
        n = model.prior.sizes[:n_variables].sum()
        means, variances = means[:n], None if variances is None else variances[:n]
    _write(arguments.output, means, variances)
    value = float(result.log_partition) + log_factor
    print(f"log-partition: {value:.8g} nats ({value / np.log(10):.8g} in base 10)")
    if method != "exact":
        print(f"{result.message}, {int(result.n_iter)} sweeps")


def _model(arguments):
    """Model, clamped units, logarithm of a constant factor, and number of variables of a file."""
    from fastmf.datasets import load_uai

    if arguments.model.lower().removesuffix(".gz").endswith((".uai", ".lg")):
        return load_uai(arguments.model, arguments.clamp)
    if arguments.clamp is not None:
        raise ValueError("--evidence is for networks in UAI format (*.uai, *.LG).")
    machine = _rows.load(arguments.model)
    return getattr(machine, "model_", machine), None, 0.0, None


def _write(path, means, variances):
    """Write a line for each unit: layer, number within the layer, mean and variance."""
    means, variances = (x if isinstance(x, tuple) else (x,) for x in (means, variances))
    sizes = list(map(len, means))
    table = {
        "layer": np.repeat(np.arange(len(sizes)) + 1, sizes),
        "unit": np.concatenate([np.arange(n) + 1 for n in sizes]),
        "mean": np.concatenate(means),
        "variance": [""] * sum(sizes) if variances[0] is None else np.concatenate(variances),
    }
    _rows.write_columns(path, table, n_digits=9)
    print(f"{path}: {sum(sizes)} units")
