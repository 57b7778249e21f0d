"""`fastmf score`: log-likelihoods of rows under a trained machine."""

import numpy as np

from fastmf.cli import _data, _machines, _options
from fastmf.models._io import replacing

EPILOG = """\
examples:
  fastmf score model.npz test.npy
      log-likelihood of each row, in scores.csv, and their mean
  fastmf score family.npz sequences.fasta --energy --output energies.csv
      energies of sequences; -energy is the log-probability but for a constant

Machines with hidden units give log-likelihoods. The log-partition of machines too large for an
exact sum is annealed, and its standard error is printed. Machines of visible units alone give
log-pseudo-likelihoods. All are in nats a row. In rows with missing values, observed cells count.
"""


def add(commands):
    """Add the command to a parser."""
    score = _options.command(
        commands,
        run,
        "score",
        help="log-likelihoods of rows",
        description="Log-likelihood of each row of data under a trained machine, in nats.",
        epilog=EPILOG,
    )
    score.add_argument("model", metavar="MODEL", help="file of a trained machine")
    score.add_argument("data", metavar="DATA", help="rows of numbers, or aligned sequences")
    _options.add_output(score, "scores.csv", "where to write: .npy, .npz or .csv")
    score.add_argument("--energy", action="store_true", help="energies in the place of likelihoods")
    _machines.add_rows(score)


def run(arguments):
    """Score, write and print the mean."""
    from fastmf._jit.messages import announced

    inputs = arguments.model, arguments.data
    _data.check_outputs(inputs, (arguments.output, _data.OUTPUT_SUFFIXES))
    machine = _machines.load(arguments.model, "score_samples")
    method = "energy" if arguments.energy else "score_samples"
    if not hasattr(machine, method):
        raise ValueError(
            f"--energy is for machines of visible units alone, not a {type(machine).__name__}."
        )
    X, alignment = _machines.read_rows(arguments.data, machine, arguments)
    names = None if alignment is None else alignment.names
    with announced("scoring"):
        scores = np.asarray(getattr(machine, method)(X))
    what = "energy" if arguments.energy else _what(machine)
    if arguments.output.lower().endswith(".csv"):
        _write_table(arguments.output, what.replace("-", "_"), scores, names)
    else:
        _data.write(arguments.output, scores)
    print(f"{arguments.output}: {len(scores)} rows")
    error = 0.0 if arguments.energy else getattr(machine, "log_partition_stderr_", 0.0)
    error = f" (standard error of the log-partition: {error:.2g})" if error else ""
    print(f"mean {what}: {scores.mean():.5g} nats a row{error}")


def _what(machine):
    """Meaning of the scores of a machine."""
    return "log-likelihood" if hasattr(machine, "solutions") else "log-pseudo-likelihood"


def _write_table(path, what, scores, names):
    """One line a row, with its number or the name of its sequence."""
    names = range(1, len(scores) + 1) if names is None else names
    with replacing(path) as file:
        file.write(f"row,{what}\n".encode())
        for name, score in zip(names, scores.tolist(), strict=True):
            file.write(f"{_data.cell(name)},{score:.9g}\n".encode())
