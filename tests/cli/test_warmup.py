import pytest

import fastmf as mf
from fastmf._jit import cache
from fastmf.cli import _warmup_tasks, main, warmup


@pytest.fixture
def few_tasks(monkeypatch):
    """Answers of workers in the place of compilation."""
    tasks = {name: None for name in "abcdefgh"}
    monkeypatch.setattr(_warmup_tasks, "STANDARD", tasks)
    monkeypatch.setattr(
        warmup, "_WORKER", "import sys\nfor name in sys.argv[2:]: print('', flush=True)"
    )


@pytest.mark.slow
def test_every_standard_task_runs():
    failed = {name: _warmup_tasks.run(task) for name, task in _warmup_tasks.STANDARD.items()}
    assert {name: error for name, error in failed.items() if error} == {}


def test_the_function_returns_seconds(few_tasks, capsys):
    assert 0 < mf.warmup(n_processes=3, verbose=False) < 60
    assert capsys.readouterr() == ("", "")


def test_the_command_shows_progress(few_tasks, capsys):
    assert main(["warmup", "-j", "2"]) == 0
    shown = capsys.readouterr()
    assert "8/8" in shown.err
    assert shown.out.startswith(f"kernels are in {cache.folder()}, ")


def test_each_task_has_a_line(few_tasks, capsys):
    mf.warmup(n_processes=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"fastmf: compiled {k + 1}/8: {name}" for k, name in enumerate("abcdefgh")]


def test_what_goes_wrong_is_said_and_the_rest_is_done(few_tasks, monkeypatch):
    worker = "import sys\nfor x in sys.argv[2:]: print('bad' if x == 'c' else '', flush=True)"
    monkeypatch.setattr(warmup, "_WORKER", worker)
    with pytest.raises(RuntimeError, match="1 of 8 tasks failed: c: bad"):
        mf.warmup(verbose=False)


def test_a_worker_that_dies_does_not_hang(few_tasks, monkeypatch, capsys):
    monkeypatch.setattr(warmup, "_WORKER", "import sys; sys.exit(3)")
    assert main(["warmup", "-q"]) == 1
    assert "8 of 8 tasks failed: a: the process has ended" in capsys.readouterr().err


def test_an_interrupt_ends_the_workers(few_tasks, monkeypatch):
    monkeypatch.setattr(warmup, "_WORKER", "import time; print(flush=True); time.sleep(1000)")
    worker, begun = warmup._worker, []
    monkeypatch.setattr(warmup, "_worker", lambda names: begun.append(worker(names)) or begun[-1])

    def interrupted(text):
        raise KeyboardInterrupt

    monkeypatch.setattr(warmup, "to_stderr", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mf.warmup(n_processes=2)
    assert len(begun) == 2 and all(process.poll() is not None for process in begun)


def test_real_workers_find_the_package(monkeypatch):
    name = "expectation_propagation"
    monkeypatch.setattr(_warmup_tasks, "STANDARD", {name: _warmup_tasks.STANDARD[name]})
    assert mf.warmup(n_processes=1, verbose=False) > 0


def test_bad_arguments(monkeypatch, capsys):
    with pytest.raises(ValueError, match="n_processes"):
        mf.warmup(n_processes=0)
    monkeypatch.setattr(cache, "folder", lambda: None)
    assert main(["warmup"]) == 1
    assert "set NUMBA_CACHE_DIR" in capsys.readouterr().err
