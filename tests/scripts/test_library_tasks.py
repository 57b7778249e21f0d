import pytest

from fastmf.cli._warmup_tasks import STANDARD, run


@pytest.mark.slow
def test_every_task_runs(load):
    tasks = load("library_tasks").everything()
    errors = {name: run(task) for name, task in tasks.items()}
    assert {name: error for name, error in errors.items() if error} == {}


def test_names_are_unique_lines(load):
    tasks = load("library_tasks").everything()
    assert set(STANDARD) < set(tasks)
    assert all("\n" not in name and name.isascii() for name in tasks)
    half = [name for name in tasks if name.endswith("float64")]
    assert {name.replace("float64", "float32") for name in half} <= set(tasks)
