"""Words of docstrings, names of classes and constants, and names in texts."""

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "fastmf"
FILES = [path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py"))]
# Words that a text begins with whose noun is elsewhere.
WITHOUT_NOUN = re.compile(r"(Of|Those|That|What)\b")


@pytest.fixture(scope="module")
def trees():
    """Syntax trees of the package's files, which are many: not kept after these tests."""
    return {name: ast.parse((PACKAGE / name).read_text(encoding="utf-8")) for name in FILES}


def indentation(line):
    return len(line) - len(line.lstrip())


def opening_lines(docstring):
    """The first line of a docstring, and that of each text below a parameter, result or error."""
    lines = docstring.splitlines()
    yield lines[0]
    for line, text in pairwise(lines):
        if line.strip() and indentation(text) == indentation(line) + 4:
            yield text.strip()


def without_noun(docstring):
    return [line for line in opening_lines(docstring) if WITHOUT_NOUN.match(line)]


@pytest.mark.parametrize(
    ("docstring", "n_found"),
    [
        ("Of a batch.", 1),
        ("What a batch holds.", 1),
        ("Rows of a batch.\n\n    Parameters\n    ----------\n    rows : array\n        Of X.", 1),
        ("Rows of a batch.\n\n    Parameters\n    ----------\n    rows : array\n        Rows.", 0),
        ("Rows.\n\n    Of these, none.", 0),
    ],
)
def test_texts_without_a_noun_are_found(docstring, n_found):
    assert len(without_noun(docstring)) == n_found


def test_docstrings_and_parameters_begin_with_a_noun(trees):
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    found = [
        f"{name}: {line}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        for line in without_noun(ast.get_docstring(node, clean=False) or "-")
    ]
    assert not found


def test_comments_begin_with_a_noun():
    """But for questions that a comment answers, which begin with What."""
    opening = re.compile(r"^\s*# (Of|Those|That)\b")
    found = [
        f"{name}: {line.strip()}"
        for name in FILES
        for before, line in pairwise(
            ["", *(PACKAGE / name).read_text(encoding="utf-8").split("\n")]
        )
        if opening.match(line) and not before.lstrip().startswith("#")
    ]
    assert not found


def test_names_of_classes_occur_once(trees):
    nodes = [node for tree in trees.values() for node in tree.body]
    counts = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert {name: n for name, n in counts.items() if n > 1} == {}


# --- constants ------------------------------------------------------------------------------------

# Names that several modules must have: of commands, and of packages that import when asked.
REQUIRED = {"DESCRIPTION", "EPILOG", "_HOME"}
# Numbers that rooms without an arrow between them have in common: the moments and tilts of a unit
# are the first planes of a state everywhere, and damping has one limit.
COMMON = {"MEAN", "VAR", "B", "A", "MAX_DAMPING"}


def constants(tree):
    """Names of the constants that a module defines."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    nodes = [node for a in assigned for target in a.targets for node in ast.walk(target)]
    names = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return {node.id for node in names if node.id.isupper()}


def module_of(name):
    """The module in a file of the package."""
    path = ".".join(["fastmf", *Path(name).with_suffix("").parts])
    return import_module(path.removesuffix(".__init__"))


def test_a_constant_that_occurs_twice_has_one_value(trees):
    values = defaultdict(set)
    for name, tree in trees.items():
        for constant in constants(tree) - REQUIRED:
            values[constant].add(repr(getattr(module_of(name), constant)))
    assert {constant for constant, found in values.items() if len(found) > 1} == set()


def test_a_constant_is_defined_in_one_file(trees):
    """Twins, which import nothing that they check, define theirs again."""
    kept = [tree for name, tree in trees.items() if not name.startswith("reference/")]
    counts = Counter(constant for tree in kept for constant in constants(tree) - REQUIRED)
    assert {constant for constant, n in counts.items() if n > 1} <= COMMON


# --- names in texts -------------------------------------------------------------------------------

NAME = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)`")
MODULES = defaultdict(list)
for file in FILES:
    parts = ["fastmf", *Path(file).with_suffix("").parts]
    path = ".".join(parts).removesuffix(".__init__")
    MODULES[path.rpartition(".")[-1]].append(path)


def exists(path):
    """Whether a module, or something in one, has this path."""
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:n]))
        except ImportError:
            continue
        for part in parts[n:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def homes_of(name):
    """Modules that the first part of a name may be."""
    first = name.partition(".")[0]
    return ["fastmf"] if first in ("fastmf", "mf") else MODULES.get(first, [])


def unknown_names(text):
    """Names `module.attribute` in the docstrings and comments of a program that do not exist.

    The first part must be a module of the package, and no variable of the program.
    """
    if not any(homes_of(name) for name in NAME.findall(text)):  # in most files
        return
    variables = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    for kind, string, *_ in tokens:
        for name in NAME.findall(string) if kind in (tokenize.COMMENT, tokenize.STRING) else ():
            first, _, rest = name.partition(".")
            homes = homes_of(name)
            known = first in variables or rest.rpartition(".")[-1] in ("py", "md", "npz")
            if homes and not known and not any(exists(f"{home}.{rest}") for home in homes):
                yield name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""See `_groups.groups`."""', []),
        ('"""See `_groups.no_such_name`."""', ["_groups.no_such_name"]),
        ("# as in `fastmf.priors._queries.support`, not `fastmf.priors._queries.no`",
         ["fastmf.priors._queries.no"]),
        ("memory = 1  # its `memory.rows`", []),
        ("# in `tap.py`, or `numpy.exp`", []),
    ],
)  # fmt: skip
def test_a_name_that_does_not_exist_is_found(text, found):
    assert list(unknown_names(text)) == found


def test_names_in_texts_exist():
    texts = {name: (PACKAGE / name).read_text(encoding="utf-8") for name in FILES}
    found = {name: list(unknown_names(text)) for name, text in texts.items()}
    assert {name: unknown for name, unknown in found.items() if unknown} == {}
