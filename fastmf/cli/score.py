"""Log-likelihood of each row of data under a trained machine, in nats.

examples:
  fastmf score model.npz test.npy
      log-likelihood of each row, in scores.csv, and their mean
  fastmf score family.npz sequences.fasta --energy --output energies.csv
      energies of sequences; -energy is the log-probability but for a constant

Machines with hidden units give log-likelihoods. The log-partition of machines too large for an
exact sum is annealed, and its standard error is printed. Machines of visible units alone give
log-pseudo-likelihoods. All are in nats a row. In rows with missing values, observed cells count.
"""

import numpy as np

from fastmf.cli import _rows


def add(parser):
    """Add the options to a parser.

    Options
    -------
    MODEL
        file of a trained machine
    DATA
        rows of numbers, or aligned sequences
    -o, --output FILE = scores.csv
        where to write: .npy, .npz or .csv
    --energy
        energies in place of likelihoods
    """
    _rows.add_data(parser)
    _rows.add_alignment(parser, "focus", "inserts")


def run(arguments):
    """Score, write and print the mean."""
    _rows.check_files(arguments)
    machine = _rows.load(arguments.model, "score_samples")
    method = "energy" if arguments.energy else "score_samples"
    if not hasattr(machine, method):
        raise ValueError(
            f"--energy is for machines of visible units alone, not a {type(machine).__name__}."
        )
    table, _ = _rows.read_rows(arguments.data, machine, arguments)
    scores = np.asarray(getattr(machine, method)(table.X))
    likelihood = "log-likelihood" if hasattr(machine, "solutions") else "log-pseudo-likelihood"
    what = "energy" if arguments.energy else likelihood
    if arguments.output.lower().endswith(".csv"):
        columns = {table.id_column or "row": table.names, what.replace("-", "_"): scores}
        _rows.write_columns(arguments.output, columns, n_digits=9)
    else:
        _rows.write(arguments.output, table._replace(X=scores))
    print(f"{arguments.output}: {len(scores)} rows")
    error = 0.0 if arguments.energy else getattr(machine, "log_partition_error_", 0.0)
    error = f" (standard error of the log-partition: {error:.2g})" if error else ""
    print(f"mean {what}: {scores.mean():.5g} nats a row{error}")
