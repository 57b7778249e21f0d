"""Imports go one way, and an optional package is imported only where it is needed."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

import fastmf

PACKAGE = Path(fastmf.__file__).parent

# Part of the package -> the parts it may import. An arrow is enough: what can be reached by arrows
# may be imported too, except from `reference`, which must not meet what it is there to check.
ARROWS = {
    "_jit": (),
    "_threads": ("_jit", "_common"),
    "_common": (),
    "_outcomes": (),
    "special": ("_jit",),
    "priors": ("special", "_threads"),
    "kernels": ("priors", "_outcomes"),
    "models": ("priors",),
    "inference": ("kernels", "models", "_common", "_threads"),
    "learning": ("inference",),
    "distributed": ("learning",),
    "estimators": ("evaluation", "distributed"),
    "reference": ("priors", "special", "_outcomes", "_jit"),
    "convert": ("models", "_common"),
    "datasets": ("kernels", "models", "_common"),
    "evaluation": ("learning",),
    "plotting": ("evaluation",),
    "cli": ("estimators", "datasets", "plotting"),
    "__main__": ("cli",),
}
DIRECT_ONLY = {"reference"}

# The same inside a part: room (a folder or a file) -> the rooms that it imports. Here every arrow
# is listed: a newcomer should see them all at once.
ROOMS = {
    "kernels": {
        "linear": (),
        "mean_field": ("linear",),
        "sampling": ("linear",),
        "training": ("linear",),
        "bp": ("linear",),
        "ep": ("linear",),
        "pseudo_likelihood": ("linear",),
    },
    "inference": {
        "fixed_point": (),
        "gaussian": (),
        "mean_field": ("fixed_point",),
        "bp": ("fixed_point", "mean_field"),
        "ep": ("fixed_point", "gaussian", "mean_field"),
        "sampling": ("mean_field",),
        "missing": ("mean_field", "sampling"),
        "checks": ("bp", "ep", "mean_field"),
    },
    "learning": {
        "training": (),
        "layered": ("quasi_newton", "training"),
        "pseudo_likelihood": ("quasi_newton",),
        "conditional": ("training",),
        "chains": ("training", "pseudo_likelihood"),
        "quasi_newton": (),
        "evidence": ("quasi_newton",),
    },
    "estimators": {
        "common": (),
        "networks": ("common",),
        "pseudo_likelihood": ("common", "networks"),
        "layered": ("common",),
        "sparse_regression": ("common",),
    },
}
# Folder inside a room -> the files of the room that import it. It imports others of the room only.
FOLDERS = {"inference/bp/graphs": {"belief_propagation", "bounds"}}
CORE = {"numba", "llvmlite", "numpy", "scipy"}

# Optional package -> (parts that may import it at the top, parts that may do so in a function).
OPTIONAL = {
    "sklearn": ({"estimators"}, {"estimators", "datasets", "evaluation", "cli"}),
    "threadpoolctl": (set(), {"_threads"}),
    "matplotlib": ({"plotting"}, {"plotting", "cli"}),
    "pandas": (set(), {"_common", "estimators"}),
    "tqdm": (set(), {"_common", "learning", "estimators", "evaluation", "cli"}),
    "dask": (set(), {"distributed"}),
    "distributed": (set(), {"distributed"}),
}


def reachable(part, arrows=ARROWS):
    if part in DIRECT_ONLY:
        return set(arrows[part])
    parts, pending = set(), list(arrows[part])
    while pending:
        parts.add(next_ := pending.pop())
        pending += arrows[next_]
    return parts


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


@cache
def imports_of(path):
    """The same of a file, which several tests read."""
    return tuple(imports(ast.parse(path.read_text(encoding="utf-8"))))


def violations(package):
    """One line for each import in `package` that the tables above do not allow."""
    for path in sorted(package.rglob("*.py")):
        part = part_of(package, path)
        where = path.relative_to(package.parent)
        if part is not None and part not in ARROWS:
            yield f"{where}: {part} is not in the table ARROWS of the parts of the package"
            continue
        for name, at_top in imports_of(path):
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


@pytest.mark.parametrize("arrows", [ARROWS, *ROOMS.values()])
def test_the_arrows_form_no_circle(arrows):
    assert [part for part in arrows if part in reachable(part, arrows)] == []


def room_arrows(package, part):
    """Room -> the other rooms of the same part that its files import."""
    arrows = {}
    for path in sorted((package / part).rglob("*.py")):
        room = path.relative_to(package / part).with_suffix("").parts[0]
        if room == "__init__":
            continue
        targets = arrows.setdefault(room, set())
        for name, _ in imports_of(path):
            top, *inner = name.split(".")
            if top == "fastmf" and inner[:1] == [part] and len(inner) > 1 and inner[1] != room:
                targets.add(inner[1])
            elif top == "fastmf" and inner and fastmf._HOME.get(inner[0], "").startswith(part):
                targets.add(fastmf._HOME[inner[0]].split(".")[1])
    return arrows


@pytest.mark.parametrize("part", ROOMS)
def test_rooms_import_along_the_listed_arrows(part):
    assert room_arrows(PACKAGE, part) == {room: set(to) for room, to in ROOMS[part].items()}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_inside_a_room_imports_none_of_its_users(folder):
    path, name = PACKAGE / folder, "fastmf." + folder.replace("/", ".")
    imported = {
        file.stem: {name for name, _ in imports_of(file)} for file in path.parent.glob("*.py")
    }
    users = {file for file, names in imported.items() if any(n.startswith(name) for n in names)}
    assert users == FOLDERS[folder]
    inside = set()
    for file in path.glob("*.py"):
        inside |= {name for name, _ in imports_of(file)}
    room = name.rpartition(".")[0]
    assert not [n for n in inside for user in users if n.startswith(f"{room}.{user}.")]


def test_scripts_do_not_lean_on_the_reference():
    names = {
        name for path in PACKAGE.parents[0].glob("scripts/**/*.py") for name, _ in imports_of(path)
    }
    assert [name for name in names if name.startswith("fastmf.reference")] == []
