"""Files are short, public names documented, and no text speaks of the machine it was written on."""

import inspect
import re
from pathlib import Path

import pytest

import fastmf

PACKAGE = Path(fastmf.__file__).parent
ROOT = PACKAGE.parent

MAX_LINES = 500

# Absolute folders of one machine. A slash after a word, as in a URL, is something else.
MACHINE_PATH = re.compile(r"(?<![\w.~$}\])/])/(?:work|root|home|Users|opt|mnt)\b")


def texts():
    """All text files of the project, generated ones excluded."""
    folders = ("fastmf", "tests", "asv_bench", "scripts", "docs", ".ci", ".github")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    for path in sorted([*files, *ROOT.iterdir()]):
        generated = {"__pycache__", ".asv", ".git"} & set(path.parts)
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
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


def test_no_file_of_tests_is_empty():
    files = (PACKAGE.parent / "tests").rglob("test_*.py")
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    assert texts
    assert [name for name, text in texts.items() if not re.search("def test_|Test", text)] == []


def test_no_text_names_a_path_of_one_machine():
    found = {str(path.relative_to(ROOT)): machine_paths(text) for path, text in texts()}
    assert Path("fastmf", "_numba.py") in map(Path, found)
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("folder", ["work", "root", "home", "Users"])
def test_a_path_of_one_machine_is_found(folder):
    path = f"/{folder}/somebody/data.npy"
    for line in (path, f'x = "{path}"', f"see {path}.", f"cp a:{path}", f"({path})"):
        assert machine_paths(line) == [line]
    for line in (f"https://example.org{path}", f"~{path}", "this and/root that", f"./data{path}"):
        assert machine_paths(line) == []


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
    with pytest.raises(ImportError, match=r"fastmf\.Forest .*pip install 'fastmf\[sklearn\]'"):
        fastmf.Forest
