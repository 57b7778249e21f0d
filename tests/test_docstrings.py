"""The examples in docstrings run, and print what they say; what texts name exists."""

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

import fastmf

PACKAGE = Path(fastmf.__file__).parent
WITH_EXAMPLES = [f for f in PACKAGE.rglob("*.py") if ">>>" in f.read_text(encoding="utf-8")]


def public_objects():
    """Qualified name -> value, of all public functions and classes."""
    for name in fastmf.__all__:
        value = getattr(fastmf, name)
        if not inspect.ismodule(value):
            yield name, value
            continue
        for inner in value.__all__:
            yield f"{name}.{inner}", getattr(value, inner)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "file", WITH_EXAMPLES, ids=lambda f: f.relative_to(PACKAGE).with_suffix("").as_posix()
)
def test_examples(file):
    name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    failed, attempted = doctest.testmod(import_module(name))
    assert attempted and not failed


def test_every_public_name_has_examples():
    docs = {name: inspect.getdoc(value) or "" for name, value in public_objects()}
    assert [name for name, text in docs.items() if "Examples\n" not in text] == []


def named(text):
    """Names from `fastmf` on in backticks; those of files end otherwise."""
    return set(re.findall(r"`(fastmf(?:\.[A-Za-z_]\w*)+)[`(]", text))


def test_what_texts_name_exists():
    root = PACKAGE.parent
    files = [*PACKAGE.rglob("*.py"), *root.glob("*.md"), *(root / "scripts").rglob("*.md")]
    names = set().union(*(named(file.read_text(encoding="utf-8")) for file in files))
    assert "fastmf.distributed.LayeredSettings" in names
    missing = []
    for name in sorted(names):
        try:
            resolve_name(name)
        except (AttributeError, ImportError):
            missing.append(name)
    assert missing == []
