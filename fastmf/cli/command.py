"""Mean-field inference and learning in pairwise models (Boltzmann machines).

examples:
  fastmf demo                                       see what it does, on digits that come with it
  fastmf train rbm images.npy --output model.npz    learn a restricted Boltzmann machine
  fastmf sample model.npz --output samples.npy      draw from it; fastmf score, impute, denoise
  fastmf dca alignment.fasta --plot contacts.png    predict contacts from aligned sequences
  fastmf network symptoms.csv --group diagnosis     networks of items, as a page
  fastmf regress table.csv --target yield           find the columns that predict another one;
                                                    fastmf predict
  fastmf tap model.npz                              marginals and log-partition of a model
  fastmf info model.npz                             describe a file
  fastmf warmup                                     compile what the first calls would compile

DATA is a file of numbers, one sample per row: .npy, .npz (or .npz:KEY), a table of text (.csv,
.tsv, .txt, .dat; commas, semicolons, tabs or spaces), or MNIST's IDX format (all but .npz perhaps
compressed by gzip). `fastmf COMMAND --help` explains a command.

exit codes: 0 done, 1 an error in data, model or options, 2 wrong usage, 130 interrupted.
FASTMF_DEBUG=1 in the environment shows where an error comes from; FASTMF_QUIET=1 leaves out
messages about compilation.
"""

import argparse
import os
import sys
import warnings
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import fastmf
from fastmf.cli._options import add_options, docstring, in_options
from fastmf.models._io import UnknownPrior

# A command is a function with its name, in the module of this name or in `machines`. Its docstring
# contains description, options and examples; `add_NAME` adds further options to its parser.
COMMANDS = {
    "demo": "learn digits, denoise them, and write a report",
    "train": "train a machine on data",
    "score": "log-likelihoods of rows",
    "sample": "draw rows from a trained machine",
    "denoise": "restore noisy data by a trained machine",
    "impute": "fill in missing values",
    "dca": "predict contacts from an alignment of sequences",
    "mutants": "effects of the single mutations of a sequence",
    "network": "the network of a table of binary or ordinal items",
    "regress": "find the columns that predict another one",
    "predict": "predict targets of new rows",
    "tap": "marginals and log-partition of a model",
    "info": "describe a file",
    "warmup": "compile the kernels beforehand",
}

# Errors in data, options and resources; other errors are bugs, and are shown with a traceback.
_USER_ERRORS = (
    ValueError, TypeError, OSError, ImportError, FloatingPointError, MemoryError, UnknownPrior,
    BrokenProcessPool,
)  # fmt: skip


def _complete(command, name):
    """Add the description, the options and the examples of a command to its parser."""
    path = f"fastmf.cli.{name}"
    module = import_module(path if find_spec(path) else "fastmf.cli.machines")
    function = getattr(module, name)
    command.description, command.epilog = _description_and_examples(function)
    command.set_defaults(run=function, parser=command)
    add_options(command, function)
    getattr(module, f"add_{name}", lambda parser: None)(command)


def _description_and_examples(thing):
    """Split a docstring without its options at the examples."""
    text = docstring(thing).partition("\n\nOptions\n")[0]
    description, examples, text = text.partition("\n\nexample")
    return description, (examples + text).strip()


def parser(chosen=None):
    """Return the parser of the command line, with options of the chosen command only."""
    layout = argparse.RawDescriptionHelpFormatter
    description, epilog = _description_and_examples(sys.modules[__name__])
    main_parser = argparse.ArgumentParser(
        prog="fastmf", description=description, epilog=epilog, formatter_class=layout
    )
    main_parser.add_argument("--version", action="version", version=f"fastmf {fastmf.__version__}")
    commands = main_parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, formatter_class=layout)
        if name == chosen:
            _complete(command, name)
    return main_parser


def main(argv=None):
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Command-line arguments after the program name; default: ``sys.argv[1:]``.

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
            # Names in files may have letters that the encoding of the console lacks.
            stream.reconfigure(errors="backslashreplace")
    argv, arguments = sys.argv[1:] if argv is None else list(argv), None
    try:
        arguments = parser(*argv[:1]).parse_args(argv)
        with warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, arguments.parser)
            # Commands match columns by name before they call estimators.
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            arguments.run(arguments)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _print_error("interrupted", 130)
    except BrokenPipeError:
        # The reader has closed the pipe: redirect stdout, as Python would flush it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except _USER_ERRORS as error:
        if os.environ.get("FASTMF_DEBUG"):
            raise
        text = str(error) if arguments is None else in_options(str(error), arguments.parser)
        return _print_error(f"error: {text or type(error).__name__}", 1)
    return 0


def _print_error(text, code):
    print(f"fastmf: {_one_line(text)}", file=sys.stderr)
    return code


def _show_warning(parser, message, category, filename, lineno, file=None, line=None):
    print(f"fastmf: warning: {in_options(_one_line(message), parser)}", file=sys.stderr)


def _one_line(text):
    return " ".join(str(text).split())
