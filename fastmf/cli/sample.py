"""Draw rows from a trained machine by Gibbs sampling, small ones exactly.

examples:
  fastmf sample model.npz -n 1000 --output samples.npy
      a thousand rows, each the end of a Gibbs chain of 100 sweeps
  fastmf sample model.npz -n 100 --sweeps 1000 --start data
      chains that start at data
  fastmf sample family.npz -n 5000 --output samples.fasta
      sequences, of a machine that fastmf dca or fastmf train has learned from an alignment
"""

from fastmf.cli import _options, _rows


def add(parser):
    """Add the options to a parser.

    Options
    -------
    MODEL
        file of a trained machine
    -o, --output FILE = samples.npy
        where to write: .npy, .npz, .csv or .fasta
    --seed N = 0
        of random numbers
    """
    from fastmf import GeneralizedRBM

    names = ("n_samples", "n_sweeps", "start")
    _options.add_parameters(parser, GeneralizedRBM.sample, names, n_samples=1000)
    _rows.add_alignment(parser)


def run(arguments):
    """Draw and write."""
    _rows.check_files(arguments, _options.OUTPUTS + _rows.FASTA)
    machine = _rows.load(arguments.model, "sample")
    if arguments.start is not None and not hasattr(machine, "solutions"):
        raise ValueError(
            f"--start is for machines with hidden units, not a {type(machine).__name__}."
        )
    options = _options.given(arguments, "n_samples", "n_sweeps", "start", "random_state")
    X = machine.sample(**options)
    _rows.write_rows(arguments.output, _rows.Rows(X, None, None), machine, arguments)
