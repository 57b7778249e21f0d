import numpy as np
from new_kernels import compile_for, new_kernel
from numba.core import event

from fastmf.learning.training.compilation import announced, seconds_compiling, units_of
from fastmf.models import CRBM, DBM, RBM
from fastmf.priors import Bernoulli, Gaussian


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


def test_units_in_words():
    below, above = Bernoulli(np.zeros(3)), Gaussian(np.zeros(2), np.ones(2))
    weights = np.zeros((3, 2))
    assert units_of(RBM(weights, below, above)) == "Bernoulli x Gaussian, float64"
    deep = DBM((weights, weights.T), (below, above, below))
    assert units_of(deep) == "Bernoulli x Gaussian x Bernoulli, float64"
    conditional = CRBM(weights, np.zeros((3, 4)), np.zeros((2, 4)), np.zeros(3), np.zeros(2))
    assert units_of(conditional) == "a conditional RBM, float64"
