"""The command line: parser, error messages and exit codes."""

import argparse
import os
import sys
import warnings
from functools import partial

import fastmf
from fastmf.cli import (
    _options,
    dca,
    demo,
    denoise,
    impute,
    info,
    mutants,
    network,
    regress,
    sample,
    score,
    tap,
    train,
    warmup,
)
from fastmf.models._io import UnknownPrior

DESCRIPTION = "Mean-field inference and learning in pairwise models (Boltzmann machines)."

EPILOG = """\
examples:
  fastmf demo                                       see what it does, on digits that come with it
  fastmf train rbm images.npy --output model.npz    learn a restricted Boltzmann machine
  fastmf sample model.npz --output samples.npy      draw from it; fastmf score, impute, denoise
  fastmf dca alignment.fasta --plot contacts.png    predict contacts from aligned sequences
  fastmf network symptoms.csv --group diagnosis     networks of items, as a page
  fastmf regress table.csv --target yield           find the columns that predict another one
  fastmf tap model.npz                              marginals and log-partition of a model
  fastmf info model.npz                             say what is in a file
  fastmf warmup                                     compile what the first calls would compile

DATA is a file of numbers, one sample per row: .npy, .npz (or .npz:KEY), a table of text (.csv,
.tsv, .txt, .dat; commas, semicolons, tabs or spaces), or MNIST's IDX format (all but .npz perhaps
compressed by gzip). `fastmf COMMAND --help` explains a command.

exit codes: 0 done, 1 an error in data, model or options, 2 wrong usage, 130 interrupted.
FASTMF_DEBUG=1 in the environment shows where an error comes from; FASTMF_QUIET=1 leaves out
messages about compilation.
"""

_COMMANDS = (
    demo, train, score, sample, denoise, impute, dca, mutants, network, regress, tap, info, warmup,
)  # fmt: skip

# Errors in data, options and resources; any other error is a bug, and is shown with its traceback.
_USER_ERRORS = (
    ValueError, TypeError, OSError, ImportError, FloatingPointError, MemoryError, UnknownPrior,
    warmup.Failed,
)  # fmt: skip


def parser():
    """The parser of the command line."""
    main_parser = argparse.ArgumentParser(
        prog="fastmf",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    main_parser.add_argument("--version", action="version", version=f"fastmf {fastmf.__version__}")
    commands = main_parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return main_parser


def main(argv=None):
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the name of the command; by default those of the process.

    Returns
    -------
    int
        Exit code: 0, 1 for an error, 130 if interrupted.

    Raises
    ------
    SystemExit
        With code 2 for wrong usage, 0 after --help and --version.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Names in files may have letters that a console of another encoding has not.
            stream.reconfigure(errors="backslashreplace")
    arguments = parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, arguments.parser)
            # Commands match columns by their names themselves.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            arguments.run(arguments)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _print_error("interrupted", 130)
    except BrokenPipeError:
        # The reader has closed the pipe: nothing can be written, not even by the flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except _USER_ERRORS as error:
        if os.environ.get("FASTMF_DEBUG"):
            raise
        text = _options.in_options(str(error), arguments.parser)
        return _print_error(f"error: {text or type(error).__name__}", 1)
    return 0


def _print_error(text, code):
    print(f"fastmf: {_one_line(text)}", file=sys.stderr)
    return code


def _show_warning(parser, message, category, filename, lineno, file=None, line=None):
    text = _options.in_options(_one_line(message), parser)
    print(f"fastmf: warning: {text}", file=sys.stderr)


def _one_line(text):
    return " ".join(str(text).split())
