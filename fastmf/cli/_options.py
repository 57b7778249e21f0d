"""Parsers of commands, and the options that several of them have."""

import argparse
import re

# Arguments of functions that options of other names set.
_OPTION_NAMES = {
    "n_components": "--hidden-units",
    "n_epochs": "--epochs",
    "n_sweeps": "--sweeps",
    "random_state": "--seed",
    "validation_data": "--validation-share",
    "n_rows": "--rows",
    "clamp": "--evidence",
}


def command(commands, run, name, *, help, description, epilog):
    """The parser of a command, which is run by a function of its arguments."""
    parser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, parser=parser)
    return parser


def in_options(message, parser):
    """A message in which arguments of functions have the names of the command's options.

    Names count as such before a sign of equality, if they have an underscore, and at the start
    before "must"; not within quotes, paths or longer names.
    """
    strings = [string for action in parser._actions for string in action.option_strings]
    names = {name: option for name, option in _OPTION_NAMES.items() if option in strings}
    names |= {s[2:].replace("-", "_"): s for s in strings if s.startswith("--")}

    def replaced(found):
        name, equals = found["name"], found["equals"]
        at_start = message.startswith(f"{name} must ") and found.start() == 0
        if name not in names or not (equals or "_" in name or at_start):
            return found[0]
        return names[name] + (" " if equals else "")

    pattern = r"""(?<![\w./'"-])(?P<name>[a-z]\w*)((?P<equals>=)(?=\S)|(?![\w/'"(=-]|\.\w))"""
    return re.sub(pattern, replaced, message)


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
