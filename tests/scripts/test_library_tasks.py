import pytest

from fastmf.cli._warmup_tasks import run


@pytest.mark.slow
def test_every_task_runs(load):
    tasks = load("library_tasks").everything()
    errors = {name: run(task) for name, task in tasks.items()}
    assert {name: error for name, error in errors.items() if error} == {}
