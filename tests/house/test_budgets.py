"""Sizes of the package do not exceed their budgets, which only go down."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import fastmf

PACKAGE = Path(fastmf.__file__).parent
ROOT = PACKAGE.parent

# The numbers of today: lower them whenever a change removes code.
BUDGETS = {
    "lines": 54_592,
    "lines of code": 33_946,
    "numeric constants": 255,
    "lines of tests": 41_872,
    "lines of the longest docstring of a function": 60,
    "lines of the longest docstring of a class": 83,
    "parameters of tap": 14,
    "parameters of belief_propagation": 10,
    "replaced parts of Numba": 4,
    "circles of imports": 0,
}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef
# Names of private or undocumented extension points of Numba, llvmlite and threadpoolctl.
REPLACED = re.compile(
    r"__deepcopy__|replaced\(|DefaultPassBuilder|CompilerBase|JITCodeLibrary|_optimize_functions"
    r"|BaseFunction\b|PostProcessor|ReconstructSSA|InlineInlinables|NativeLowering"
    r"|class \w+\(Lower\)|class \w+\(Flags\)|clear_controlling_thread|_lock\._lock"
    r"|global_compiler_lock\._lock|gc\.(disable|freeze)"
)


def lines_of_docstrings(tree):
    """Return the numbers of the lines that docstrings occupy."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
    texts = [node.body[0] for node in nodes if ast.get_docstring(node, clean=False) is not None]
    return {n for text in texts for n in range(text.lineno, text.end_lineno + 1)}


def n_code_lines(text):
    """Count lines that are neither blank, comments nor docstrings."""
    docstrings = lines_of_docstrings(ast.parse(text))
    lines = enumerate(text.splitlines(), 1)
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and n not in docstrings
        for n, line in lines
    )


def numeric_constants(tree):
    """Yield the numbers assigned to upper-case names of a module, tuples of numbers included."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = [t for name in node.targets for t in getattr(name, "elts", [name])]
            if all(re.fullmatch("_?[A-Z][A-Z0-9_]+", getattr(t, "id", "")) for t in targets):
                values = getattr(node.value, "elts", [node.value])
                if all(map(is_number, values)):
                    yield from values


def is_number(node):
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return isinstance(node, ast.UnaryOp | ast.BinOp)


def modules_imported(tree, modules):
    """Return the modules of the package that a module imports, imports in functions included."""
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fastmf."):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            imported |= {name if name in modules else node.module for name in names}
    return imported & modules


def in_circles(arrows):
    """Return the nodes of a graph from which arrows lead back to themselves."""
    reached = {node: set(targets) for node, targets in arrows.items()}
    for middle in reached:
        for targets in reached.values():
            if middle in targets:
                targets |= reached[middle]
    return {node for node, targets in reached.items() if node in targets}


def docstring_lengths(predicate):
    """Return the numbers of lines of the docstrings of public objects of one kind."""
    names = {name: getattr(fastmf, name) for name in fastmf.__all__}
    parts = [value for value in names.values() if inspect.ismodule(value)]
    values = [*names.values(), *(getattr(part, name) for part in parts for name in part.__all__)]
    return [len(inspect.getdoc(value).splitlines()) for value in values if predicate(value)]


@pytest.fixture(scope="module")
def sizes():
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): tree
        for path, tree in trees.items()
    }
    arrows = {
        name: modules_imported(tree, modules.keys()) - {name} for name, tree in modules.items()
    }
    tests = (ROOT / "tests").rglob("*.py")
    return {
        "lines": sum(len(text.splitlines()) for text in texts.values()),
        "lines of code": sum(map(n_code_lines, texts.values())),
        "numeric constants": sum(1 for tree in trees.values() for _ in numeric_constants(tree)),
        "lines of tests": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in tests),
        "lines of the longest docstring of a function": max(docstring_lengths(inspect.isfunction)),
        "lines of the longest docstring of a class": max(docstring_lengths(inspect.isclass)),
        "parameters of tap": len(inspect.signature(fastmf.tap).parameters),
        "parameters of belief_propagation": len(
            inspect.signature(fastmf.belief_propagation).parameters
        ),
        "replaced parts of Numba": sum(len(REPLACED.findall(text)) for text in texts.values()),
        "circles of imports": len(in_circles(arrows)),
    }


@pytest.mark.parametrize("size", BUDGETS)
def test_a_size_does_not_exceed_its_budget(sizes, size):
    assert sizes[size] <= BUDGETS[size]


def test_lines_of_code_are_counted():
    assert n_code_lines('"""Title.\n\nText."""\n\n# comment\nx = 1\ndef f():\n    """Do."""\n') == 2


def test_numeric_constants_are_counted():
    source = (
        "A_B, C_D = 1, 2.5\nTOL = -1e-3\nNAMES = 'a', 'b'\nlower = 3\nFLAG = True\nD_D = (1, 2)"
    )
    assert len(list(numeric_constants(ast.parse(source)))) == 5


def test_circles_are_found():
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert in_circles(arrows) == {"b", "c"}
    assert in_circles({"a": {"b"}, "b": set()}) == set()
