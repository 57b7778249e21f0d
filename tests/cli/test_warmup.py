import pytest

from fastmf._jit import cache
from fastmf.cli import main, warmup


def test_an_error_of_a_task_is_a_line():
    def fail():
        raise ValueError("it is\nbad")

    assert warmup.run(fail) == "ValueError: it is bad"
    assert warmup.run(lambda: None) == ""


def test_failures_are_said(monkeypatch, capsys):
    monkeypatch.setenv("FASTMF_QUIET", "0")  # set by the command, and restored
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setattr(warmup, "STANDARD", {"nothing": None})
    assert main(["warmup", "-q"]) == 1
    assert "of 1 tasks some failed: nothing: KeyError" in capsys.readouterr().err


@pytest.mark.slow
def test_processes_compile(monkeypatch, capfd):
    monkeypatch.setenv("FASTMF_QUIET", "0")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    name = "expectation_propagation"
    monkeypatch.setattr(warmup, "STANDARD", {name: warmup.STANDARD[name]})
    assert main(["warmup"]) == 0
    shown = capfd.readouterr()
    assert shown.err == f"fastmf: compiled {name}\n"
    assert shown.out.startswith(f"kernels are in {cache.folder()}, ")


def test_without_a_folder_it_fails(monkeypatch, capsys):
    monkeypatch.setattr(cache, "folder", lambda: None)
    assert main(["warmup"]) == 1
    assert "set NUMBA_CACHE_DIR" in capsys.readouterr().err
