"""`fastmf sample`: draw from a trained machine."""

from fastmf.cli import _data, _machines, _options, dca

EPILOG = """\
examples:
  fastmf sample model.npz -n 1000 --output samples.npy
      a thousand rows, each the end of a Gibbs chain of 100 sweeps
  fastmf sample model.npz -n 100 --sweeps 1000 --start data
      chains that start at data
  fastmf sample family.npz -n 5000 --output samples.fasta
      sequences, of a machine that fastmf dca or fastmf train has learned from an alignment
"""


def add(commands):
    """Add the command to a parser."""
    sample = _options.command(
        commands,
        run,
        "sample",
        help="draw rows from a trained machine",
        description="Draw rows from a trained machine by Gibbs sampling, small ones exactly.",
        epilog=EPILOG,
    )
    sample.add_argument("model", metavar="MODEL", help="file of a trained machine")
    _options.add_output(sample, "samples.npy", "where to write: .npy, .npz, .csv or .fasta")
    sample.add_argument(
        "-n", "--n-samples", type=int, default=1000, metavar="N", help="rows to draw [1000]"
    )
    sample.add_argument(
        "--sweeps", type=int, default=100, metavar="N", help="sweeps of each chain [100]"
    )
    sample.add_argument(
        "--start",
        choices=("independent", "data", "solutions", "annealed"),
        help="where chains of a machine with hidden units start [annealed]",
    )
    _options.add_seed(sample)
    dca.add_alphabet(sample)


def run(arguments):
    """Draw and write."""
    from fastmf._jit.messages import announced

    _data.check_outputs([arguments.model], (arguments.output, _machines.MACHINE_SUFFIXES))
    machine = _machines.load(arguments.model, "sample")
    options = {"n_sweeps": arguments.sweeps, "random_state": arguments.seed}
    if arguments.start is not None:
        if not hasattr(machine, "solutions"):
            raise ValueError(
                f"--start is for machines with hidden units, not a {type(machine).__name__}."
            )
        options["start"] = arguments.start
    with announced("sampling"):
        X = machine.sample(arguments.n_samples, **options)
    _machines.write_rows(arguments.output, X, None, machine, arguments)
