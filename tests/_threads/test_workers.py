"""The same numbers wherever solvers and fits are called: in threads, in processes, after a fork."""

import multiprocessing
import os
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import forks
import numpy as np
import pytest
import threadpoolctl
from everywhere import digests, solution

import fastmf as mf
from fastmf._threads.workers import (
    _blas,
    computed_once,
    for_each,
    in_parallel,
    in_row_blocks,
    matrix_product,
    one_blas_thread,
    workers_for,
)

TIMEOUT = 120


@pytest.fixture(scope="module")
def expected():
    return solution()


def test_threads_that_call_at_once(expected):
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(solution, range(8))) == [expected] * 8


def forked(work=solution):
    """What a child of this very process computes; it is killed if it hangs."""
    reader, writer = multiprocessing.get_context("fork").Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python warns of forks beside threads, which is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=lambda: writer.send(work()))
        child.start()
    writer.close()  # the child's is left, so that its end shows
    try:
        return reader.recv() if reader.poll(TIMEOUT) else "hangs"
    except EOFError:
        return "ends without an answer"
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
        assert [forked() for _ in range(3)] == [expected] * 3
    finally:
        stop.set()
        busy.join()


@needs_fork
def test_a_fork_while_another_thread_sets_the_threads_of_blas():
    shared = getattr(threadpoolctl.OpenBLASController, "_SHARED_STATE", None)
    lock_of_threadpoolctl = shared.lock if shared else threading.Lock()  # from 3.8 on
    held = threading.Event()

    def hold():
        with _blas.lock, lock_of_threadpoolctl:
            held.set()
            time.sleep(0.2)  # until the process has been forked, or waits for the lock

    def in_a_block():
        with one_blas_thread():
            return "done"

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(TIMEOUT)
    assert forked(in_a_block) == "done"
    other.join()
    assert in_a_block() == "done"  # released in this process, too


def test_what_one_thread_computes_once_keeps_no_other_waiting():
    """Nor, therefore, a child that is forked meanwhile."""
    begun, go_on = threading.Event(), threading.Event()

    class Costly:
        @computed_once
        def value(self):
            """Something."""
            if threading.current_thread() is not threading.main_thread():
                begun.set()
                assert go_on.wait(TIMEOUT)
            return []

    first, second = Costly(), Costly()
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(lambda: first.value)
        try:
            assert begun.wait(TIMEOUT)
            assert second.value == [] and second.value is second.value
        finally:
            go_on.set()
        assert slow.result(TIMEOUT) is first.value
    assert Costly.value.__doc__ == "Something."


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_jobs_of_joblib(backend, expected):
    joblib = pytest.importorskip("joblib")
    jobs = (joblib.delayed(solution)() for _ in range(4))
    with joblib.parallel_config(backend, n_jobs=2):
        assert joblib.Parallel()(jobs) == [expected] * 4


@pytest.mark.slow
def test_one_thread_of_openmp(expected, tmp_path):
    one = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    forks.fresh("-m", "everywhere", tmp_path / "numbers.npz", **one)
    with np.load(tmp_path / "numbers.npz") as numbers:
        assert digests(numbers) == expected


def blas_threads():
    info = threadpoolctl.threadpool_info()
    return [library["num_threads"] for library in info if library["user_api"] == "blas"]


def test_blas_has_its_threads_back_when_the_last_block_is_left():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        assert set(blas_threads()) == {1}
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(blas_threads()) == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == before
        with one_blas_thread(1000):
            assert blas_threads() == before
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            raise ZeroDivisionError
        assert blas_threads() == before


def test_blas_is_limited_with_a_threadpoolctl_without_owners(monkeypatch):
    # Before 3.8; the limit itself is that of the installed version.
    without = SimpleNamespace(OpenBLASController=object)
    with threadpoolctl.threadpool_limits(2, user_api="blas"), one_blas_thread():
        pass  # the libraries are known now
    monkeypatch.setitem(sys.modules, "threadpoolctl", without)
    with one_blas_thread():
        assert set(blas_threads()) == {1}


def in_a_thread(function):
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function).result()


def test_every_thread_may_limit_blas_and_leave_the_last_block():
    before = in_a_thread(blas_threads)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        for enter, leave in ((in_a_thread, lambda f: f()), (lambda f: f(), in_a_thread)):
            first, second = one_blas_thread(), one_blas_thread()
            enter(first.__enter__)
            assert set(blas_threads()) == {1}
            leave(second.__enter__)
            enter(lambda block=first: block.__exit__(None, None, None))
            assert set(blas_threads()) == {1}
            leave(lambda block=second: block.__exit__(None, None, None))
            assert set(blas_threads()) == {2}
    assert blas_threads() == before


def expectation_propagation():
    X = np.random.default_rng(0).normal(size=(50, 20))
    prior = mf.GaussBernoulli(np.zeros(20), np.ones(20), np.zeros(20))
    found = mf.expectation_propagation(mf.SparseLinearModel(X, X[:, 0] + X[:, 1], 0.1, prior))
    return found.mean, found.var, found.log_partition


def adaptive_tap():
    rng = np.random.default_rng(0)
    model = mf.RBM(rng.normal(size=(60, 40)) / 10, mf.Ising(np.ones(60)), mf.Ising(np.zeros(40)))
    found = mf.adaptive_tap(model)
    return *found.mean, *found.var, found.log_partition


def regression():
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(100, 150)), rng.normal(size=100)
    found = mf.SpikeSlabRegressor().fit(X, X[:, 0] + X[:, 1] + noise / 10)
    return found.coef_, found.inclusion_probability_, found.noise_variance_


def errors_of_couplings():
    X = np.sign(np.random.default_rng(0).normal(size=(300, 20)))
    machine = mf.FullyVisibleBoltzmannMachine().fit(X)
    return machine.couplings_, *machine.standard_errors()


@pytest.mark.parametrize(
    "solve", [expectation_propagation, adaptive_tap, regression, errors_of_couplings]
)
def test_rounding_does_not_depend_on_the_thread(solve):
    """Nor on how many threads BLAS has otherwise."""
    expected = solve()
    for n_threads in (1, 2):
        with threadpoolctl.threadpool_limits(n_threads, user_api="blas"):
            for found in (solve(), in_a_thread(solve)):
                for array, other in zip(found, expected, strict=True):
                    np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_matrices_have_the_same_bits_in_any_number_of_threads(dtype):
    rng, slices = np.random.default_rng(0), []
    in_row_blocks(slices.append, 256, 10**9, 1)  # BLAS packs the other matrix for each slice
    assert slices == [slice(0, 128), slice(128, 256)]
    for n, inner, m in ((500, 300, 90), (1, 3000, 400), (3, 2, 4), (0, 5, 7)):
        a, b = (
            rng.normal(size=(inner, n)).T.astype(dtype),
            rng.normal(size=(inner, m)).astype(dtype),
        )
        alone, *more = (matrix_product(a, b, n_threads) for n_threads in (1, 2, 3))
        exact = a.astype(float) @ b.astype(float)
        np.testing.assert_allclose(alone, exact, atol=20 * np.finfo(dtype).eps * inner)
        assert alone.dtype == dtype
        for product in more:
            np.testing.assert_array_equal(product, alone)


@needs_fork
def test_blas_has_its_threads_back_in_a_fork():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread():
            assert forked(blas_threads) == before


def test_a_child_forked_in_a_block_may_leave_it():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread():
            _blas.forget()  # what the system calls in a child
            assert blas_threads() == before
        assert blas_threads() == before
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert blas_threads() == before


def test_workers_start_no_threads():
    found = []

    def ask(_):
        found.append(workers_for(100, 10**9, 8))
        in_parallel(lambda: found.append(workers_for(100, 10**9, 8)), (), 1)
        found.append(workers_for(100, 10**9, 8))

    for_each(ask, [None], 1)
    assert found == [1, 1, 1]
    assert workers_for(100, 10**9, 8) == 8


LAYER = """
import numpy as np, fastmf as mf
model = mf.RBM(np.ones((200, 150)) / 200, mf.Ising(np.zeros(200)), mf.Ising(np.zeros(150)))
print(mf.tap(model, np.ones((200, 200))).converged.all())
"""


@pytest.mark.slow
def test_numbas_threads_are_not_needed():
    """Nor, therefore, the library for them that a user may have named without having it."""
    assert forks.fresh("-c", LAYER, NUMBA_THREADING_LAYER="tbb").stdout == "True\n"
