"""The README's examples run as they stand."""

import pytest
from readme import BLOCKS, example


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_example(number, capsys):
    assert "mf" in example(number)


def test_there_are_examples():
    assert len(BLOCKS) == 2
