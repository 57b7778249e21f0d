import warnings
from pathlib import Path

import pytest

from fastmf.cli.warmup import run


@pytest.fixture
def script(load):
    return load("first_call")


def test_seconds_of_each_call(script, tmp_path):
    seconds = script.run(["time.sleep(0.2)", "1"], tmp_path)
    assert len(seconds) == 3 and 0.2 <= seconds[1] < 5
    with pytest.raises(RuntimeError, match="NameError"):
        script.run(["nonsense"], tmp_path)


def test_every_call_runs(script, load, monkeypatch):
    """In this process, whose compiled code the other tests use too."""
    monkeypatch.syspath_prepend(Path(script.__file__).parent)
    names = vars(load("calls"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one epoch does not converge
        for call in dict.fromkeys(call for row in script.ROWS.values() for call in row):
            for dtype in ("float64", "float32")[: 1 + ("dtype" in call)]:
                eval(script.in_type(call, dtype), names)


def test_the_page_has_the_table(script):
    text = script.PAGE.read_text(encoding="utf-8")
    part = text.partition("first calls table: begin")[2].partition("first calls table: end")[0]
    assert [name for name in script.ROWS if f"| {name} |" not in part] == []


@pytest.mark.slow
def test_every_call_of_the_library_runs(load):
    """Those of the command `warmup` included."""
    errors = {name: run(task) for name, task in load("calls").tasks_of_library().items()}
    assert {name: error for name, error in errors.items() if error} == {}
