"""Fill in the missing values of a table or of sequences by a trained machine.

examples:
  fastmf train rbm table.csv --visible gaussian --hidden-units 8 --output model.npz
  fastmf impute model.npz table.csv --output complete.csv
      empty cells are replaced, by conditional means or, of categories, the most probable one
  fastmf impute family.npz fragments.fasta --output whole.fasta
      letters that are not known (X) and, if the machine has no state for gaps, gaps
"""

import numpy as np

from fastmf.cli import _rows
from fastmf.cli._options import OUTPUTS
from fastmf.estimators.common.data import missing_entries


def add(parser):
    """Add the options to a parser.

    Options
    -------
    MODEL
        file of a trained machine
    DATA
        rows with empty cells or NaN, or aligned sequences
    -o, --output FILE = imputed.npy
        where to write: .npy, .npz, .csv or .fasta
    """
    _rows.add_data(parser)
    _rows.add_alignment(parser, "focus", "inserts")


def run(arguments):
    """Impute and write."""
    _rows.check_files(arguments, OUTPUTS + _rows.FASTA)
    machine = _rows.load(arguments.model, "impute")
    arguments.dtype = "float64"  # observed cells stay as they are
    table, alignment = _rows.read_rows(arguments.data, machine, arguments)
    X = np.asarray(table.X)
    n_missing = int((missing_entries(X) if alignment is None else X < 0).sum())
    complete = table._replace(X=machine.impute(table.X))
    _rows.write_rows(arguments.output, complete, machine, arguments)
    print(f"{n_missing} of {X.size} values were missing")
