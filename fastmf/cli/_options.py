"""Parsers of commands, and the options that several of them have."""

import argparse


def command(commands, run, name, *, help, description, epilog):
    """The parser of a command, which is run by a function of its arguments.

    Parameters
    ----------
    commands : action of argparse's `add_subparsers`
    run : function
    name, help, description, epilog : str
        The epilog keeps its lines.
    """
    parser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_output(parser, default, what="where to write", *, metavar="FILE"):
    """Add the option that names what is written."""
    text = f"{what} [{default}]"
    parser.add_argument("-o", "--output", default=default, metavar=metavar, help=text)


def add_seed(parser):
    """Add the option that seeds random numbers."""
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="[0]")


def add_quiet(parser, what="progress bar"):
    """Add the option that leaves out progress."""
    parser.add_argument("-q", "--quiet", action="store_true", help=f"no {what}")
