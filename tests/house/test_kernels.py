"""Every kernel can be stopped, and lives where the cache looks for changes."""

import ast
import re
from pathlib import Path

import fastmf
from fastmf._jit import library

PACKAGE = Path(fastmf.__file__).parent

# The files whose text names the cache folder: see `fastmf._jit.library.digest_of_sources`.
WATCHED = {"_jit", "_threads", "special.py", "priors", "kernels"}


def is_kernel(node):
    """Whether a function is compiled for use from outside, not only by other kernels."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    within = r"\bmode=.(inner|inline|merged|by_address)"
    return any(re.match(rf"kernel(?!.*{within})", d) for d in decorators)


def endless(package):
    """Kernels whose calls could not be ended: without an argument `queue`, or `work`."""
    for path in sorted((package / "kernels").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and is_kernel(node):
                if not {"queue", "work"} & {argument.arg for argument in node.args.args}:
                    yield f"{path.stem}.{node.name}"


def unwatched(package):
    """Files that compile functions where an edit would not change the cache's folder."""
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] in WATCHED:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
        if names & {
            "njit",
            "jit",
            "vectorize",
            "guvectorize",
            "overload",
            "intrinsic",
            "emitted",
            "compiled_from",
            "compilable",
            "kernel",
        }:
            yield str(path.relative_to(package))


def test_the_cache_reads_all_modules_of_the_watched_rooms():
    rooms = [PACKAGE / room for room in library.ROOMS]
    assert {room.name for room in rooms} == {name for name in WATCHED if not name.endswith(".py")}
    files = [*PACKAGE.glob("*.py"), *(file for room in rooms for file in room.rglob("*.py"))]
    names = {file.relative_to(PACKAGE).as_posix() for file in files}
    assert "kernels/bp/messages.py" in names
    assert library.sources(PACKAGE).keys() == names - {"_jit/cache.py", "_jit/messages.py"}


def test_every_kernel_can_be_stopped():
    # Few units.
    assert set(endless(PACKAGE)) == {"sites.visit_block"}


def test_all_that_compiles_is_watched_by_the_cache():
    assert list(unwatched(PACKAGE)) == []
