import sys
import time

import pytest
from new_kernels import compile_for, new_kernel

from fastmf.learning.training.progress import progress

MODULE = """
import numba

def double(x):
    return 2 * x

double.__module__ = "fastmf.kernels.new"
double = numba.njit(double, cache=True)
"""


@pytest.mark.parametrize("method", ["update", "set_postfix_str"])
def test_the_clock_of_the_bar_stands_still_while_code_is_compiled(monkeypatch, method):
    import tqdm

    bars = []

    class Spy(tqdm.tqdm):
        def __init__(self, *args, **options):
            super().__init__(*args, mininterval=0, **options)
            bars.append(self)

    monkeypatch.setattr(tqdm, "tqdm", Spy)
    with progress(1000, 0, 1, "spins") as bar:
        for wait in (0.5, 0, 0.5, 0):
            compile_for(wait)
            time.sleep(0.01)
            bar.update() if method == "update" else bar.set_postfix_str("")
        assert bars[0].format_dict["elapsed"] < 0.3
        if method == "update":
            assert bars[0].format_dict["rate"] > 10


def test_compilation_in_another_thread_takes_no_more_than_has_passed(monkeypatch):
    seconds = iter([0.0, 100.0, 100.0])
    monkeypatch.setattr(
        "fastmf.learning.training.progress.seconds_compiling", lambda: next(seconds)
    )
    with progress(10, 0, 1, "spins") as bar:
        bar.update()
        assert bar._bar.format_dict["elapsed"] >= 0


def test_lines_and_silence(capsys, monkeypatch, caplog):
    with progress(10, 0, 1, "spins") as bar:
        new_kernel()(1)
        bar.update()
    assert "fastmf: compiling kernels for spins" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with progress(10, 0, 1, "spins") as bar:
        new_kernel()(1)
        bar.update()
        bar.set_postfix_str("epoch 1")
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("fastmf: compiling kernels for spins") and second == "epoch 1"
    with caplog.at_level("INFO", "fastmf"), progress(10, 0, 0, "spins") as bar:
        new_kernel()(1)
        bar.update()
        bar.set_postfix_str("epoch 1")
    assert capsys.readouterr().err == ""
    assert len(caplog.records) == 1
