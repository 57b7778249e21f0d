"""The examples in docstrings run, and print what they say."""

import doctest
from importlib import import_module
from pathlib import Path

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
