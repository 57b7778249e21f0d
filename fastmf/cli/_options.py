"""Command-line options made from docstrings and signatures, and checks of output files."""

import argparse
import ast
import inspect
import re
from textwrap import dedent

from fastmf._jit.messages import to_stderr

# Flags of parameters that have another name on the command line.
_FLAGS = {
    "n_components": ("-n", "--hidden-units"),
    "n_samples": ("-n", "--n-samples"),
    "n_epochs": ("--epochs",),
    "n_sweeps": ("--sweeps",),
    "n_permutations": ("--permutations",),
    "n_top": ("--top",),
    "n_rows": ("--rows",),
    "id_column": ("--id",),
    "clamp": ("--evidence",),
    "validation_data": ("--validation-share",),
    "random_state": ("--seed",),
}


def docstring(thing):
    """Return the docstring of a module, class or function; from its source under python -OO."""
    if thing.__doc__ is not None:
        return inspect.getdoc(thing)
    tree = ast.parse(dedent(inspect.getsource(thing)))
    return ast.get_docstring(tree if inspect.ismodule(thing) else tree.body[0]) or ""


class NumberOrPair(argparse.Action):
    """Store a single number as a scalar, and several numbers as a tuple."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Store the values in the namespace."""
        setattr(namespace, self.dest, values[0] if len(values) == 1 else tuple(values))


def add_options(parser, function):
    """Add the options listed in the section "Options" of a function's docstring.

    The first line of an option has its flags, the name of its value, "..." for several values, and
    "=" before a default; its help is below. A value N is an integer, R a float, {a,b} a choice.
    """
    section = docstring(function).partition("Options\n-------\n")[2] + "\n"
    for usage, lines in re.findall(r"^(\S.*)\n((?: .*\n)+)", section, re.MULTILINE):
        usage, _, default = usage.partition(" = ")
        flags, value, several = re.fullmatch(r"((?:-[a-z-]+,? ?)*)(\S*)( \.\.\.)?", usage).groups()
        flags = flags.replace(",", "").split()
        text = " ".join(lines.split()) + (f" [{default}]" if default else "")
        options = {"help": text.replace("%", "%%")}
        if not value:
            options["action"] = "store_true"
        elif value.startswith("{"):
            options |= {"choices": value[1:-1].split(","), "default": default}
        else:  # argparse converts default values
            kind = {"N": int, "R": float}.get(value, str)
            options |= {"metavar": value, "type": kind, "default": default or None}
        if several:
            options |= {"nargs": "+", "default": []}
        if flags:
            names = (name for name, renamed in _FLAGS.items() if renamed[-1] == flags[-1])
            options["dest"] = next(names, flags[-1].strip("-").replace("-", "_"))
        parser.add_argument(*(flags or [value.lower()]), **options)


def add_parameters(parser, function, names, **defaults):
    """Add an option for each named parameter of a function or class.

    Type and help come from its docstring. An omitted option is None, so that the default of the
    function applies, unless `defaults` has a value.
    """
    texts, signature = _documented(function), inspect.signature(function).parameters
    for name in names:
        default = defaults.get(name, signature[name].default)
        kind, text = texts.get(name, (type(default).__name__, ""))
        flags = _FLAGS.get(name, ("--" + name.replace("_", "-"),))
        shown = f"[{default}]" if default not in (None, inspect.Parameter.empty) else ""
        options = {"dest": name, "help": f"{text} {shown}".strip().replace("%", "%%")}
        if kind.startswith("{") and " str" not in kind:
            options["choices"] = re.findall(r'"([\w-]+)"', kind.partition("}")[0])
        elif isinstance(default, bool):
            options["action"] = argparse.BooleanOptionalAction
        else:
            options |= _converter(kind)
        parser.add_argument(*flags, default=defaults.get(name), **options)


def _documented(function):
    """Return type and first sentence of each parameter in a numpydoc docstring."""
    text = docstring(function).partition("Parameters\n----------\n")[2]
    pattern = r"^(\w[\w, ]*) : (.*)\n((?:    .*\n|\n(?=    ))*)"
    parts = {}
    for names, kind, lines in re.findall(pattern, text + "\n", re.MULTILINE):
        text = re.sub(r"\(None:[^)]*\)|`|^None: .*", "", " ".join(lines.split()))
        sentence = re.split(r"\.(?:\s|$)|:\s|\s- ", text)[0]
        parts |= {name: (kind, sentence.strip()) for name in names.split(", ")}
    return parts


def _converter(kind):
    """Return argparse options for a type in numpydoc's notation."""
    number = {"int": int, "float": float}
    first = next((number[word] for word in re.findall(r"\w+", kind) if word in number), str)
    options = {"type": first, "metavar": {int: "N", float: "R", str: "TEXT"}[first]}
    if "(" in kind and first is float:
        options |= {"nargs": "+", "action": NumberOrPair}
    return options


def given(arguments, *names):
    """Return the named options that were given, as a dict."""
    values = {name: getattr(arguments, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def in_options(message, parser):
    """Replace names of parameters in a message by the flags of the command's options.

    A name is replaced if it precedes an equals sign, has an underscore, or begins the message and
    precedes "must"; names within quotes, paths or longer names are left unchanged.
    """
    flags = {action.dest: action.option_strings[-1] for action in parser._actions
             if action.option_strings}  # fmt: skip

    def substitute(match):
        name, equals = match["name"], match["equals"]
        at_start = message.startswith(f"{name} must ") and match.start() == 0
        if name not in flags or not (equals or "_" in name or at_start):
            return match[0]
        return flags[name] + (" " if equals else "")

    pattern = r"""(?<![\w./'"-])(?P<name>[a-z]\w*)((?P<equals>=)(?=\S)|(?![\w/'"(=-]|\.\w))"""
    return re.sub(pattern, substitute, message)


def say(text, quiet=False):
    """Print a line to stderr, unless `quiet`."""
    if not quiet:
        to_stderr(f"fastmf: {text}")


# --- files ----------------------------------------------------------------------------------------

OUTPUTS = (".npy", ".npz", ".csv")
PICTURES = (".png", ".pdf", ".svg")


def check_outputs(inputs, *outputs):
    """Raise early if an output cannot be written or would replace another file.

    `outputs` are pairs of a path, or None, and the suffixes that it may have.
    """
    from fastmf.models._io import check_folder

    roles = {_identity(path): "a file that is read" for path in inputs if path is not None}
    for name, suffixes in outputs:
        if name is None:
            continue
        path = check_folder(name)
        if path.suffix.lower() not in suffixes:
            raise ValueError(
                f"{path}: the name of this output must end in {' or '.join(suffixes)}."
            )
        if (replaced := roles.get(_identity(path))) is not None:
            raise ValueError(
                f"output {path} would replace {replaced}: give another name of output."
            )
        roles[_identity(path)] = "another output"


def _identity(path):
    """Return a key that is equal for links to the same file; ".npz:KEY" is the .npz file."""
    from fastmf.datasets.files import file_and_key

    path = file_and_key(path)[0].resolve()
    # Hard links have the same inode and device; on some file systems the inode is 0.
    return path.stat()[1:3] if path.exists() and path.stat().st_ino else path
