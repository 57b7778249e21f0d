"""The examples in docstrings run, and print what they say; what texts name exists."""

import doctest
import re
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

import fastmf

PACKAGE = Path(fastmf.__file__).parent
WITH_EXAMPLES = [f for f in PACKAGE.rglob("*.py") if ">>>" in f.read_text(encoding="utf-8")]


@pytest.mark.parametrize("file", WITH_EXAMPLES, ids=lambda f: f.stem)
def test_examples(file):
    name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    failed, attempted = doctest.testmod(import_module(name))
    assert attempted and not failed


def test_there_are_examples():
    assert len(WITH_EXAMPLES) >= 7


def named(text):
    """Names from `fastmf` on in backticks; those of files end otherwise."""
    return set(re.findall(r"`(fastmf(?:\.[A-Za-z_]\w*)+)[`(]", text))


def test_what_texts_name_exists():
    root = PACKAGE.parent
    files = [*PACKAGE.rglob("*.py"), *root.glob("*.md"), *(root / "scripts").rglob("*.md")]
    names = set().union(*(named(file.read_text(encoding="utf-8")) for file in files))
    assert "fastmf.learning.layered.settings.LayeredSettings" in names
    missing = []
    for name in sorted(names):
        try:
            resolve_name(name)
        except (AttributeError, ImportError):
            missing.append(name)
    assert missing == []


def test_a_name_that_does_not_exist_is_found():
    assert named("see `fastmf.inference.rings` and `fastmf.tap(model)`") == {
        "fastmf.inference.rings",
        "fastmf.tap",
    }
    with pytest.raises(AttributeError):
        resolve_name("fastmf.inference.rings")
