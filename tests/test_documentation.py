"""The pages of `docs/`: code runs, links and names lead somewhere, the reference is complete."""

import ast
import re
import sys
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

import fastmf
from tests.test_docstrings import public_objects

ROOT = Path(fastmf.__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "gallery" not in page.parts)
EXAMPLES = sorted((DOCS / "examples").glob("plot_*.py"))
# Without packages that an extra installs some pages cannot run.
NEEDS = {"large.md": "dask.distributed"}

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="an installed package has no docs")


def code(page):
    """The blocks of Python code of a page, as one program."""
    return "\n".join(
        re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
    )


def listed(text):
    """Names under `autosummary`, those of `fastmf` itself without a prefix."""
    return set(re.findall(r"^   ([A-Za-z_][\w.]*)$", text, re.M))


WITH_CODE = [page for page in PAGES if code(page)]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_names_what_there_is(page):
    """Each night the code runs."""
    program = ast.parse(code(page), page.name)
    for node in ast.walk(program):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"mf(\.\w+)*", ast.unparse(node)):
            resolve_name("fastmf." + ast.unparse(node).removeprefix("mf."))
        elif isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "fastmf":
            for alias in node.names:
                resolve_name(f"{node.module}.{alias.name}")


@cache
def names_of(page):
    """The names that the code of a page defines."""
    program = re.sub(r"n_epochs=\d+", "n_epochs=8", code(page))
    names = {"__name__": f"docs_{page.stem}"}
    exec(compile(program, page.name, "exec"), names)
    return names


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page):
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    assert names_of(page)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_quickstart_prints_what_it_says(capsys):
    text, names = (DOCS / "quickstart.md").read_text(encoding="utf-8"), {}
    numbers = re.compile(r"-?\d+\.?[\de-]*").findall
    for kind, block in re.findall(r"^```(python|text)\n(.*?)^```", text, re.S | re.M):
        if kind == "python":
            exec(block, names)
            printed = capsys.readouterr().out
        else:
            right = pytest.approx([float(x) for x in numbers(block)], rel=0.02, abs=1e-6)
            assert [float(x) for x in numbers(printed)] == right


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_papers_own_algorithms_are_those_of_plain_numpy():
    differences = names_of(DOCS / "papers/own_algorithms.md")["differences"]
    assert len(differences) == 12 and max(differences.values()) < 1e-9, differences


def test_every_guide_has_code():
    guides = [page for page in PAGES if page.parent.name == "guide" and page.stem != "index"]
    assert len(guides) >= 8
    assert [page.name for page in guides if not code(page)] == []


def test_records_of_design_count_lines_as_they_are():
    """`N lines (`path`)` on the page of design: within a tenth of the file's, or the folder's."""
    page = " ".join((DOCS / "project/design.md").read_text(encoding="utf-8").split())
    found = re.findall(r"([\d,]+) lines \(`([\w./]+)`\)", page)
    assert len(found) == 5
    for number, path in found:
        whole = ROOT / "fastmf" / path
        files = whole.rglob("*.py") if whole.is_dir() else [whole]
        n_lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
        assert abs(int(number.replace(",", "")) - n_lines) <= n_lines / 10, (path, n_lines)


def test_the_reference_lists_every_public_name():
    names = listed((DOCS / "api" / "index.rst").read_text(encoding="utf-8"))
    objects = {id(resolve_name(f"fastmf:{name}")) for name in names}
    assert [name for name, value in public_objects() if id(value) not in objects] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_what_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`", text):
        path = DOCS / target.lstrip("/") if target[0] == "/" else page.parent / target
        if "gallery" in path.parts:
            index = path.name == "index"
            assert index or (DOCS / "examples" / path.name).with_suffix(".py").exists(), target
        else:
            assert any(path.with_suffix(end).exists() for end in (".md", ".rst")), target
    for target in re.findall(r"```\{include\} (\S+)", text):
        assert (page.parent / target).exists(), target
    for name in re.findall(r"`(?:mf|fastmf)\.([a-z]\w*(?:\.\w+)*|[A-Z]\w*)\b", text):
        resolve_name(f"fastmf.{name}")


def test_the_gallery_has_an_order():
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        from gallery_order import ORDER
    finally:
        sys.path.pop(0)
    assert sorted(ORDER) == [example.stem for example in EXAMPLES]
    assert len(EXAMPLES) >= 12


def test_the_gallery_shows_every_plot():
    text = (DOCS / "examples" / "plot_gallery.py").read_text(encoding="utf-8")
    names = fastmf.plotting.__all__
    assert [name for name in names if f"plotting.{name}(" not in text] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_is_a_program_with_title_and_figures(example):
    text = example.read_text(encoding="utf-8")
    compile(text, example.name, "exec")
    assert re.match(r'"""\n(.+)\n(=+)\n\n', text)
    assert "figure" in text or "axes" in text
