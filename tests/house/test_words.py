"""Names of classes and constants, and names in texts."""

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "fastmf"
FILES = [path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py"))]


@pytest.fixture(scope="module")
def trees():
    """Syntax trees of the package's files, which are many: not kept after these tests."""
    return {name: ast.parse((PACKAGE / name).read_text(encoding="utf-8")) for name in FILES}


def test_names_of_classes_occur_once(trees):
    nodes = [node for tree in trees.values() for node in tree.body]
    counts = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert {name: n for name, n in counts.items() if n > 1} == {}


# --- constants ------------------------------------------------------------------------------------

# Names that several modules must have: of packages that import when asked.
REQUIRED = {"_HOME"}
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


def test_names_in_texts_exist():
    texts = {name: (PACKAGE / name).read_text(encoding="utf-8") for name in FILES}
    found = {name: list(unknown_names(text)) for name, text in texts.items()}
    assert {name: unknown for name, unknown in found.items() if unknown} == {}
