"""Files and functions are short, and public names are documented."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import fastmf

PACKAGE = Path(fastmf.__file__).parent
ROOT = PACKAGE.parent

MAX_FILE_LINES = 800
# Lines of a function's body (the docstring not counted) and levels of nesting.
LIMITS = {"lines": 60, "levels": 3}
NESTED = ast.If | ast.For | ast.While | ast.With | ast.Try

# Absolute folders of one machine. A slash after a word, as in a URL, is something else.
MACHINE_PATH = re.compile(r"(?<![\w.~$}\])/])/(?:work|root|home|Users|opt|mnt)\b")


def texts():
    """All text files of the project, generated ones excluded."""
    folders = ("fastmf", "tests", "asv_bench", "scripts", "docs", ".ci", ".github")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    for path in sorted([*files, *ROOT.iterdir()]):
        generated = {"__pycache__", ".asv", ".git", "gallery", "generated"} & set(
            path.relative_to(ROOT).parts
        )
        if path.is_file() and not generated:
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def machine_paths(text):
    return [line for line in text.splitlines() if MACHINE_PATH.search(line)]


def test_no_file_is_too_long():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    assert {name: n for name, n in lengths.items() if n > MAX_FILE_LINES} == {}


def n_lines(function):
    """Lines of a function's body, the docstring not counted."""
    body = function.body[ast.get_docstring(function) is not None :]
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def n_levels(node):
    """Levels of nested statements in a node; functions inside it are measured on their own.

    An `elif`, which the syntax tree holds as the only statement of an `else`, adds no level.
    """
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, n_levels(child) + (isinstance(child, NESTED) and not is_elif))
    return deepest


def too_large(package):
    """Map "file: function, measure" to the measure of each function beyond a limit."""
    beyond = {}
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for measure, size in {"lines": n_lines(node), "levels": n_levels(node)}.items():
                    if size > LIMITS[measure]:
                        name = f"{path.relative_to(package).as_posix()}: {node.name}"
                        beyond[f"{name}, {measure}"] = size
    return beyond


def test_no_function_is_too_large():
    assert too_large(PACKAGE) == {}


def module_names(package):
    """Names of the modules and folders of a package, without leading underscores."""
    return {path.stem.strip("_") for path in package.rglob("*") if path.suffix in ("", ".py")}


def misleading_aliases(source, names):
    """Aliases of imports in a source that are the names of other modules."""
    if names.isdisjoint(alias.strip("_") for alias in re.findall(r"\bas\s+(\w+)", source)):
        return  # a syntax tree takes long
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if alias.asname and alias.asname.strip("_") in names:
                    if alias.name.split(".")[-1] != alias.asname:
                        yield alias.asname


def test_no_alias_is_the_name_of_another_module():
    names = module_names(PACKAGE)
    assert {"kernels", "trainer", "threads"} <= names
    found = set()
    for folder in ("fastmf", "tests", "scripts", "asv_bench"):
        for path in (ROOT / folder).rglob("*.py"):
            aliases = misleading_aliases(path.read_text(encoding="utf-8"), names)
            found |= {f"{path.relative_to(ROOT).as_posix()}: {alias}" for alias in aliases}
    assert found == set()


def test_no_property_is_computed_under_a_lock():
    """`functools.cached_property` has a lock in Python 3.11: see `computed_once`."""
    files = {path.name: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    pattern = re.compile(r"import .*\bcached_property|@(functools\.)?cached_property")
    assert pattern.search("from functools import cache, cached_property")
    assert [name for name, text in files.items() if pattern.search(text)] == []


def test_no_text_names_a_path_of_one_machine():
    found = {str(path.relative_to(ROOT)): machine_paths(text) for path, text in texts()}
    assert Path("fastmf", "_jit/kernel.py") in map(Path, found)
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("name", fastmf.__all__)
def test_every_public_name_exists_and_is_documented(name):
    value = getattr(fastmf, name)
    assert inspect.getdoc(value)
    # A NamedTuple or dataclass without a docstring is given its signature for one.
    assert not (value.__doc__ or "").startswith(f"{name}(")
    if inspect.ismodule(value):
        for inner in value.__all__:
            assert inspect.getdoc(getattr(value, inner)), f"fastmf.{name}.{inner}"
    assert name in dir(fastmf)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fastmf' has no attribute 'nonsense'"):
        fastmf.nonsense
    assert not hasattr(fastmf, "nonsense")


def test_a_missing_optional_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(fastmf._HOME, "Forest", "estimators")
    monkeypatch.setattr(fastmf, "__all__", [*fastmf.__all__, "Forest"])

    def import_module(name):
        assert name == "fastmf.estimators"
        raise ModuleNotFoundError("No module named 'sklearn.base'", name="sklearn.base")

    monkeypatch.setattr(fastmf, "import_module", import_module)
    with pytest.raises(ImportError, match=r"fastmf\.Forest .*pip install scikit-learn"):
        fastmf.Forest
