"""Predict targets of new rows by the model of a regression, or labels by a conditional machine.

example:
  fastmf regress table.csv --target yield --model model.npz
  fastmf predict model.npz new.csv --output predictions.csv
      a line a row, in the order of the rows; columns go by their names
"""

import numpy as np

from fastmf.cli import _rows


def add(parser):
    """Add the options to a parser.

    Options
    -------
    MODEL
        file of a fitted estimator
    DATA
        rows of features
    -o, --output FILE = predictions.csv
        where to write: .npy, .npz or .csv
    """
    _rows.add_data(parser)


def run(arguments):
    """Predict and write."""
    _rows.check_files(arguments)
    machine = _rows.load(arguments.model, "predict")
    arguments.dtype = "float64"
    table = _rows.read_table(arguments.data, machine, arguments)
    predictions = machine.predict(table.X)
    names = [f"prediction_{k}" for k in range(1, 1 + np.size(predictions[0]))]
    names = names if len(names) > 1 else ["prediction"]
    _rows.write(arguments.output, table._replace(X=predictions, columns=names))
    print(f"{arguments.output}: {len(predictions)} rows")
