"""Children that are forked while another thread holds a lock of Numba or llvmlite."""

import multiprocessing
import os
import threading
import time
import warnings

import llvmlite.binding
import numba
import pytest

from fastmf._jit.forks import LOCKS

TIMEOUT = 30


def compiled():
    """What a function gives that is compiled here, by llvmlite under Numba's lock."""
    return numba.njit(lambda x: x + 1)(1)


def freed():
    """What is left of a module of llvmlite that is freed here."""
    return llvmlite.binding.parse_assembly("").close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("lock", LOCKS, ids=["numba", "llvmlite"])
@pytest.mark.parametrize(("work", "expected"), [(compiled, 2), (freed, None)])
def test_a_child_waits_for_no_thread_that_it_lacks(lock, work, expected):
    held = threading.Event()

    def hold():
        with lock:
            held.set()
            time.sleep(0.2)  # until the process has been forked, or waits for the lock

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(TIMEOUT)
    fork = multiprocessing.get_context("fork")
    reader, writer = fork.Pipe(duplex=False)
    child = fork.Process(target=lambda: writer.send(work()))
    with warnings.catch_warnings():
        # Python warns of forks beside threads, which is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    try:
        assert reader.poll(TIMEOUT), "the child waits for ever"
        assert reader.recv() == expected
    finally:
        child.kill()
        child.join()
        other.join()
    with lock:  # released in this process, too
        assert work() == expected
