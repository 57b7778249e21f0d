"""Modules that are left out of a block of imports until they are used."""

import importlib
import sys

import pytest

from fastmf._common.deferred import deferred


@pytest.fixture
def name(tmp_path, monkeypatch):
    """A module that can be imported, and has not been."""
    (tmp_path / "seldom_used.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "seldom_used"
    sys.modules.pop("seldom_used", None)


def test_the_import_has_no_effect_until_later(name):
    with deferred(name):
        early = importlib.import_module(name)
        assert "VALUE" not in vars(early)
    assert name not in sys.modules
    late = importlib.import_module(name)
    assert vars(late)["VALUE"] == 3 and late is not early
    assert early.VALUE == 3


def test_use_within_the_block_imports_the_module(name):
    with deferred(name):
        early = importlib.import_module(name)
        assert early.VALUE == 3
        assert vars(sys.modules[name])["VALUE"] == 3
    assert vars(sys.modules[name])["VALUE"] == 3


def test_what_is_not_there_is_missed(name):
    with deferred(name):
        early = importlib.import_module(name)
    with pytest.raises(AttributeError, match="no_such"):
        early.no_such
