"""Words of docstrings, and names of classes."""

import ast
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "fastmf"
TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}
# What a text begins with whose noun is elsewhere.
WITHOUT_NOUN = re.compile(r"(Of|Those|That)\b")


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
        ("Rows of a batch.\n\n    Parameters\n    ----------\n    rows : array\n        Of X.", 1),
        ("Rows of a batch.\n\n    Parameters\n    ----------\n    rows : array\n        Rows.", 0),
        ("Rows.\n\n    Of these, none.", 0),
    ],
)
def test_texts_without_a_noun_are_found(docstring, n_found):
    assert len(without_noun(docstring)) == n_found


def test_docstrings_and_parameters_begin_with_a_noun():
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    found = [
        f"{name}: {line}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        for line in without_noun(ast.get_docstring(node, clean=False) or "-")
    ]
    assert not found


def test_names_of_classes_occur_once():
    counts = Counter(
        node.name for tree in TREES.values() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    assert {name: n for name, n in counts.items() if n > 1} == {}
