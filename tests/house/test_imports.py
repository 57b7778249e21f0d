"""Imports go one way, and an optional package is imported only where it is needed."""

import ast
import sys
from pathlib import Path

import pytest

import fastmf

PACKAGE = Path(fastmf.__file__).parent

# Part of the package -> the parts it may import. An arrow is enough: what can be reached by arrows
# may be imported too, except from `reference`, which must not meet what it is there to check.
ARROWS = {
    "_numba": (),
    "_threads": (),
    "special": ("_numba",),
    "priors": ("special",),
    "kernels": ("priors",),
    "models": ("priors",),
    "inference": ("kernels", "models", "_threads"),
    "learning": ("inference",),
    "distributed": ("learning",),
    "estimators": ("learning",),
    "reference": ("priors", "special"),
    "datasets": (),
    "evaluation": ("learning",),
    "plotting": ("learning",),
    "cli": ("estimators", "evaluation", "datasets", "plotting"),
    "__main__": ("cli",),
}
DIRECT_ONLY = {"reference"}

CORE = {"numba", "llvmlite", "numpy", "scipy"}

# Optional package -> (parts that may import it at the top, parts that may do so in a function).
OPTIONAL = {
    "sklearn": ({"estimators"}, {"estimators", "datasets", "evaluation", "cli"}),
    "threadpoolctl": (set(), {"_threads"}),
    "matplotlib": ({"plotting"}, {"plotting", "cli"}),
    "tqdm": (set(), {"inference", "learning", "estimators", "evaluation", "cli"}),
    "dask": (set(), {"distributed"}),
    "distributed": (set(), {"distributed"}),
}


def reachable(part):
    if part in DIRECT_ONLY:
        return set(ARROWS[part])
    found, left = set(), list(ARROWS[part])
    while left:
        found.add(next_ := left.pop())
        left += ARROWS[next_]
    return found


def part_of(package, path):
    """The part of the package that a file belongs to; None for the package's own __init__."""
    part = path.relative_to(package).with_suffix("").parts[0]
    return None if part == "__init__" else part


def imports(tree):
    """(imported module, whether at the top of the file) of all imports of a syntax tree."""
    inside = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node not in inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots, module = "." * node.level, node.module or ""
            if dots or module == "fastmf":
                names = (f"{dots}{module}.{alias.name}" for alias in node.names)
                yield from ((name, node not in inside) for name in names)
            else:
                yield module, node not in inside


def violations(package):
    """One line for each import in `package` that the tables above do not allow."""
    for path in sorted(package.rglob("*.py")):
        part = part_of(package, path)
        where = path.relative_to(package.parent)
        if part is not None and part not in ARROWS:
            yield f"{where}: {part} is not in the table ARROWS of the parts of the package"
            continue
        for name, at_top in imports(ast.parse(path.read_text(encoding="utf-8"))):
            if not allowed(part, name, at_top):
                yield f"{where}: imports {name}" + (" at the top" if at_top else " in a function")


def allowed(part, name, at_top):
    first, *rest = name.split(".")
    if first == "":
        return False  # relative imports hide which part is meant
    if first == "fastmf":
        if part is None or (part == "cli" and not rest):
            return True
        # A public name says where it is at home; anything else is a part of the package.
        target = fastmf._HOME.get(rest[0], rest[0]) if rest else None
        if target is not None:
            target = target.partition(".")[0]
        return target == "__version__" or target == part or target in reachable(part)
    if first in OPTIONAL:
        top, lazy = OPTIONAL[first]
        return part in (top if at_top else lazy)
    return first in CORE or first in sys.stdlib_module_names


def test_imports_go_one_way():
    assert list(violations(PACKAGE)) == []


def test_the_arrows_form_no_circle():
    assert [part for part in ARROWS if part in reachable(part)] == []


@pytest.mark.parametrize(
    "file, line",
    [
        ("priors/x.py", "from fastmf.kernels import tap"),
        ("priors/x.py", "from fastmf import kernels"),
        ("priors/x.py", "import fastmf"),
        ("priors/x.py", "from .. import special"),
        ("special.py", "def f():\n    from fastmf.priors import Bernoulli"),
        ("special.py", "from fastmf import Bernoulli"),
        ("inference/x.py", "from fastmf.reference.tap import sweep"),
        ("reference/x.py", "import fastmf.kernels.tap"),
        ("reference/x.py", "from fastmf.models import RBM"),
        ("learning/x.py", "import sklearn"),
        ("learning/x.py", "def f():\n    import sklearn.base"),
        ("datasets/x.py", "import sklearn"),
        ("estimators/x.py", "from tqdm import tqdm"),
        ("cli.py", "import matplotlib.pyplot"),
        ("models/x.py", "import pandas"),
        ("__init__.py", "import sklearn"),
        ("unheard_of.py", ""),
    ],
)
def test_what_is_not_allowed_is_found(tmp_path, file, line):
    path = tmp_path / "fastmf" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line)
    assert len(list(violations(tmp_path / "fastmf"))) == 1


@pytest.mark.parametrize(
    "file, line",
    [
        ("estimators/x.py", "import sklearn.base, numpy, math"),
        ("estimators/x.py", "from fastmf.kernels.tap import sweep"),
        ("estimators/x.py", "def f():\n    from tqdm import tqdm"),
        ("datasets/x.py", "def f():\n    import sklearn"),
        ("cli.py", "import fastmf"),
        ("kernels/x.py", "from fastmf import priors, special"),
        ("learning/x.py", "from fastmf import Bernoulli"),
    ],
)
def test_what_is_allowed_is_not_reported(tmp_path, file, line):
    path = tmp_path / "fastmf" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line)
    assert list(violations(tmp_path / "fastmf")) == []


def test_scripts_do_not_lean_on_the_reference():
    found = {
        path.name: [name for name, _ in imports(ast.parse(path.read_text(encoding="utf-8")))]
        for path in (PACKAGE.parent / "scripts").rglob("*.py")
    }
    leaning = [file for file, names in found.items() if any("fastmf.reference" in n for n in names)]
    assert leaning == []
