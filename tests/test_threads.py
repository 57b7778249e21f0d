"""The same numbers wherever a solver is called: in threads, in processes, after a fork."""

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fastmf as mf

TIMEOUT = 120


def problem():
    """A machine and starts for two threads: the work is worth waking another."""
    rng = np.random.default_rng(0)
    weights = rng.normal(scale=0.3, size=(60, 40))
    model = mf.RBM(weights, mf.Bernoulli(rng.normal(size=60)), mf.Bernoulli(np.zeros(40)))
    return model, (rng.random((100, 60)) < 0.4).astype(float)


OPTIONS = {"max_iter": 50, "n_threads": 2}


def solution(_=None):
    """The hidden means, byte for byte."""
    return mf.tap(*problem(), **OPTIONS).mean[1].tobytes()


@pytest.fixture(scope="module")
def expected():
    return solution()


def test_threads_that_call_at_once(expected):
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(solution, range(16))) == {expected}


def forked():
    """What a child of this very process computes; it is killed if it hangs."""
    reader, writer = multiprocessing.get_context("fork").Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python warns of forks beside threads, which is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(
            target=lambda: writer.send_bytes(solution())
        )
        child.start()
    try:
        return reader.recv_bytes() if reader.poll(TIMEOUT) else "hangs"
    finally:
        child.kill()
        child.join()


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@needs_fork
def test_a_fork_has_threads_of_its_own(expected):
    assert forked() == expected
    assert solution() == expected


@needs_fork
def test_a_fork_while_other_threads_solve(expected):
    stop = threading.Event()

    def go_on():
        while not stop.is_set():
            solution()

    busy = threading.Thread(target=go_on)
    busy.start()
    try:
        assert [forked() for _ in range(5)] == [expected] * 5
    finally:
        stop.set()
        busy.join()


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_jobs_of_joblib(backend, expected):
    joblib = pytest.importorskip("joblib")
    jobs = (joblib.delayed(mf.tap)(*problem(), **OPTIONS) for _ in range(4))
    with joblib.parallel_config(backend, n_jobs=2):
        found = joblib.Parallel()(jobs)
    assert {result.mean[1].tobytes() for result in found} == {expected}


def test_one_thread_of_openmp(expected):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    code = (
        "import runpy, sys; f = runpy.run_path(sys.argv[1])['solution'];"
        "sys.stdout.buffer.write(f())"
    )
    paths = [os.path.dirname(os.path.dirname(mf.__file__)), os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    found = subprocess.run(
        [sys.executable, "-c", code, __file__],
        env=environment,
        capture_output=True,
        timeout=TIMEOUT,
    )
    assert found.stdout == expected, found.stderr.decode()
