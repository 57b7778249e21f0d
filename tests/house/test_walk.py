"""The functions that a solve enters: the walk of a reader through `tap`."""

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import fastmf as mf
from fastmf._threads import workers

PACKAGE = str(Path(mf.__file__).parent)


def entered(call):
    """Pairs (file, function) of the package that a call enters, in all threads.

    Comprehensions belong to their function; a kernel counts by its own name.
    """
    names = set()

    def note(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            if not code.co_name.startswith("<"):
                names.add((code.co_filename, code.co_qualname))

    workers._pool.start_anew()  # its new threads are followed
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        workers._pool.start_anew()
    return names


@pytest.mark.parametrize(
    "units, clamped, n_functions, n_files",
    [(mf.Ising, False, 40, 15), (mf.Bernoulli, True, 44, 17)],
)
def test_tap_enters_few_functions_in_few_files(units, clamped, n_functions, n_files):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(784, 500)) / 50
    model = mf.RBM(weights, units(rng.normal(size=784) / 10), units(np.zeros(500)))
    values = (rng.random((20, 784)) < 0.5).astype(float) if clamped else None
    mf.tap(model, clamp=values)
    names = entered(lambda: mf.tap(model, clamp=values))
    assert len(names) <= n_functions, sorted(names)
    assert len({file for file, _ in names}) <= n_files
