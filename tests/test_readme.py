"""The README's examples run as they stand."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_example(number, tmp_path, capsys):
    # As a module of its own: a prior's source is looked up in its file.
    names = {"__name__": f"readme_{number}"}
    block = BLOCKS[number].replace("n_epochs=20", "n_epochs=2")
    exec(compile(block, str(tmp_path / "example.py"), "exec"), names)
    assert "mf" in names


def test_there_are_examples():
    assert len(BLOCKS) == 2
