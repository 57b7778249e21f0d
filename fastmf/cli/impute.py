"""`fastmf impute`: fill in missing values by a trained machine."""

from fastmf.cli import _data, _machines, _options

EPILOG = """\
examples:
  fastmf train rbm table.csv --visible gaussian --hidden-units 8 --output model.npz
  fastmf impute model.npz table.csv --output complete.csv
      empty cells are replaced, by conditional means or, of categories, the most probable one
  fastmf impute family.npz fragments.fasta --output whole.fasta
      letters that are not known (X) and, if the machine has no state for gaps, gaps
"""


def add(commands):
    """Add the command to a parser."""
    impute = _options.command(
        commands,
        run,
        "impute",
        help="fill in missing values",
        description="Fill in the missing values of a table or of sequences by a trained machine.",
        epilog=EPILOG,
    )
    impute.add_argument("model", metavar="MODEL", help="file of a trained machine")
    impute.add_argument(
        "data", metavar="DATA", help="rows with empty cells or NaN, or aligned sequences"
    )
    _options.add_output(impute, "imputed.npy", "where to write: .npy, .npz, .csv or .fasta")
    _machines.add_rows(impute)


def run(arguments):
    """Impute and write."""
    from fastmf._jit.messages import announced

    inputs = arguments.model, arguments.data
    _data.check_outputs(inputs, (arguments.output, _machines.MACHINE_SUFFIXES))
    machine = _machines.load(arguments.model, "impute")
    arguments.dtype = "float64"  # cells that are there stay as they are
    X, alignment = _machines.read_rows(arguments.data, machine, arguments)
    names = None if alignment is None else alignment.names
    n_missing = int(((X != X) | ((X < 0) & (names is not None))).sum())
    with announced("imputing"):
        complete = machine.impute(X)
    _machines.write_rows(arguments.output, complete, names, machine, arguments)
    print(f"{n_missing} of {X.size} values were missing")
