"""The page "from equation to code" names code and tests that exist."""

import ast
import re
from pathlib import Path
from pkgutil import resolve_name

import fastmf

PAGE = Path(fastmf.__file__).parent / "FROM_EQUATION_TO_CODE.md"
TESTS = Path(__file__).parent
ROW = re.compile(r"\| (?P<where>[^|]*) \| [^|]* \| `(?P<code>[\w.]+)` \| `(?P<test>[\w./:]+)` \|")


def rows():
    """(where, code, test) of every row of every table."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    in_tables = [line for line in lines if line.startswith("|")]
    found = [
        match.group("where", "code", "test") for line in in_tables if (match := ROW.match(line))
    ]
    heads = sum(line.startswith("| where") for line in in_tables)
    assert len(found) + 2 * heads == len(in_tables)  # all but heads and rules are understood
    return found


def functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_code_exists():
    assert all(callable(resolve_name(f"fastmf.{code}")) for _, code, _ in rows())


def test_the_tests_exist():
    for name in {test for *_, test in rows()}:
        file, _, function = name.partition("::")
        assert function.startswith("test_") and function in functions(TESTS / file), name


def equations(where):
    """Numbers of the equations that a row is about, such as "3", "5", "6" of "Eqs. 3, 5-6"."""
    listed = []
    for names in re.findall(r"Eqs?\. ([\d., -]+)", where):
        for first, last in re.findall(r"([\d.]*\d)(?:-(\d+))?", names):
            listed += map(str, range(int(first), int(last) + 1)) if last else [first]
    return listed


def places(page):
    """Every (paper, equation) of a page, once for each row that has it."""
    for paper in page.split("\n## ")[1:]:
        title, *lines = paper.splitlines()
        for line in lines:
            if match := ROW.match(line):
                yield from ((title, number) for number in equations(match.group("where")))


def test_every_equation_has_one_place():
    listed = list(places(PAGE.read_text(encoding="utf-8")))
    assert sorted(set(listed)) == sorted(listed)
