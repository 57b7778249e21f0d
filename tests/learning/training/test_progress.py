import sys
import time

import numba
import numpy as np
import pytest
from numba.core import event

from fastmf.learning.training.compilation import announced, seconds_compiling, units_of
from fastmf.learning.training.progress import progress
from fastmf.models import CRBM, DBM, RBM
from fastmf.priors import Bernoulli, Gaussian


def new_kernel(module="fastmf.kernels.new", **options):
    """A function that has never been compiled, as if it were of some module."""

    def double(x):
        return 2 * x

    double.__module__ = module
    return numba.njit(double, **options)


def compile_for(seconds):
    """What a thread that compiles for so long tells Numba's listeners."""
    event.start_event("numba:compiler_lock")
    time.sleep(seconds)
    event.end_event("numba:compiler_lock")


def test_the_line_comes_once_and_before_compilation(caplog):
    said, events = [], []

    class Order(event.Listener):
        def on_start(self, event):
            events.append(len(said))

        def on_end(self, event):
            pass

    with caplog.at_level("INFO", "fastmf"), announced("spins", said.append):
        with event.install_listener("numba:llvm_lock", Order()):
            new_kernel()(1)
        new_kernel()(1)
    new_kernel()(1)
    assert len(said) == 1
    assert said[0].startswith("fastmf: compiling kernels for spins (once; kept in the cache")
    # LLVM's turn comes when the line is there.
    assert events and min(events) == 1
    assert [f"fastmf: {r.getMessage()}" for r in caplog.records] == said


def test_without_a_folder_for_the_cache_no_such_promise_is_made(monkeypatch):
    monkeypatch.setattr("fastmf._numba._CACHE_FOLDER", None)
    said = []
    with announced("spins", said.append):
        new_kernel()(1)
    assert "in every process" in said[0]


MODULE = """
import numba

def double(x):
    return 2 * x

double.__module__ = "fastmf.kernels.new"
double = numba.njit(double, cache=True)
"""


def test_nothing_is_said_of_what_is_there_or_comes_from_the_cache(tmp_path, caplog):
    file, said = tmp_path / "module.py", []
    file.write_text(MODULE)

    def again():
        names = {"__file__": str(file), "__name__": "module"}
        exec(compile(MODULE, str(file), "exec"), names)
        return names["double"]

    kernel = again()
    for function, n_lines in ((kernel, 1), (kernel, 0), (again(), 0)):
        said.clear()
        with announced("spins", said.append):
            assert function(3) == 6
        assert len(said) == n_lines


def test_nothing_is_said_of_what_users_compile():
    said = []
    with announced("spins", said.append):
        new_kernel("theirs")(1)
    assert said == []


def test_overlapping_compilation_counts_once():
    before = seconds_compiling()
    event.start_event("numba:compiler_lock")
    compile_for(0.05)
    event.end_event("numba:compiler_lock")
    assert 0.05 <= seconds_compiling() - before < 0.1


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


def test_units_in_words():
    below, above = Bernoulli(np.zeros(3)), Gaussian(np.zeros(2), np.ones(2))
    weights = np.zeros((3, 2))
    assert units_of(RBM(weights, below, above)) == "Bernoulli x Gaussian, float64"
    deep = DBM((weights, weights.T), (below, above, below))
    assert units_of(deep) == "Bernoulli x Gaussian x Bernoulli, float64"
    conditional = CRBM(weights, np.zeros((3, 4)), np.zeros((2, 4)), np.zeros(3), np.zeros(2))
    assert units_of(conditional) == "a conditional RBM, float64"
