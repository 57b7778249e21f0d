"""Only the package of priors looks at their fields and optional methods: see `_queries`."""

import ast
from pathlib import Path

import fastmf
from fastmf.priors._registry import REGISTRY

PACKAGE = Path(fastmf.__file__).parent

# All fields and optional members of priors, and what says that something is a NamedTuple.
NAMES = {"_fields", "parts", "support", "precomputed", "as_dtype", "take"}
NAMES |= {name for class_ in REGISTRY.values() for name in vars(class_) if name[0] != "_"}


def probes(tree):
    """Lines in which an object is asked for a member of a prior by its name, or for `_fields`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "_fields":
            yield node.lineno
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id in ("hasattr", "getattr") and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant) and name.value in NAMES:
                yield node.lineno


def test_only_priors_look_at_priors():
    found = {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "priors"
        for line in probes(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set()
