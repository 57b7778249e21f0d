import pytest

from fastmf._jit import cache
from fastmf.cli import _warmup_tasks, main, warmup


@pytest.fixture
def few_tasks(monkeypatch):
    """Names of tasks, and workers that do nothing in the place of compilation."""
    monkeypatch.setattr(_warmup_tasks, "STANDARD", dict.fromkeys("abcdefgh"))
    monkeypatch.setattr(warmup, "_WORKER", "")


@pytest.mark.slow
def test_every_standard_task_runs():
    failed = {name: _warmup_tasks.run(task) for name, task in _warmup_tasks.STANDARD.items()}
    assert {name: error for name, error in failed.items() if error} == {}


def test_the_function_returns_seconds(few_tasks, capfd):
    assert 0 < warmup.warmup(verbose=False) < 60
    assert capfd.readouterr() == ("", "")


def test_each_task_has_a_line(monkeypatch, capsys):
    def fail():
        raise ValueError("it is\nbad")

    monkeypatch.setattr(_warmup_tasks, "STANDARD", {"a": lambda: None, "b": fail})
    _warmup_tasks.main("ab", verbose=True)
    shown = capsys.readouterr()
    assert shown.err.splitlines() == ["fastmf: compiled a", "fastmf: compiled b"]
    assert shown.out == "b: ValueError: it is bad\n"


def test_failures_are_said_and_a_worker_that_dies_does_not_hang(few_tasks, monkeypatch, capsys):
    monkeypatch.setattr(warmup, "_WORKER", "print('c: bad')")
    with pytest.raises(RuntimeError, match="of 8 tasks some failed: c: bad"):
        warmup.warmup(verbose=False)
    monkeypatch.setattr(warmup, "_WORKER", "import sys; sys.exit(3)")
    assert main(["warmup", "-q"]) == 1
    assert "tasks some failed: a process has ended" in capsys.readouterr().err


def test_an_interrupt_ends_the_workers(few_tasks, monkeypatch):
    monkeypatch.setattr(warmup, "_WORKER", "import time; time.sleep(1000)")
    worker, begun = warmup._worker, []

    def started(names, verbose):
        begun.append(worker(names, verbose))
        return begun[-1]

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(warmup, "_worker", started)
    monkeypatch.setattr(warmup.subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        warmup.warmup(verbose=False)
    assert len(begun) == 2 and all(process.poll() is not None for process in begun)


@pytest.mark.slow
def test_real_workers_find_the_package(monkeypatch, capfd):
    name = "expectation_propagation"
    monkeypatch.setattr(_warmup_tasks, "STANDARD", {name: _warmup_tasks.STANDARD[name]})
    assert main(["warmup"]) == 0
    shown = capfd.readouterr()
    assert shown.err == f"fastmf: compiled {name}\n"
    assert shown.out.startswith(f"kernels are in {cache.folder()}, ")


def test_without_a_folder_it_fails(monkeypatch, capsys):
    monkeypatch.setattr(cache, "folder", lambda: None)
    assert main(["warmup"]) == 1
    assert "set NUMBA_CACHE_DIR" in capsys.readouterr().err
