"""The pool of threads: every task is done once, failures reach the caller, nobody is waited for."""

import _thread
import threading
import time

import forks
import numpy as np
import pytest

from fastmf._jit.intrinsics import fetch_and_increment
from fastmf._jit.kernel import kernel
from fastmf._threads.workers import SIGNAL_SECONDS, Pool

TIMEOUT = 60


@kernel(views=True)
def count(queue, out):
    task = fetch_and_increment(queue)
    while task < out.shape[0]:
        out[task] += task
        task = fetch_and_increment(queue)


def test_every_task_is_done_once():
    pool = Pool()
    for n_threads in (1, 2, 3, 2):
        for _ in range(20):
            out = np.zeros(1000, np.int64)
            pool.run(count, (np.zeros(1, np.int64), out), n_threads)
            np.testing.assert_array_equal(out, np.arange(1000))


def test_there_are_no_more_workers_than_processors(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    pool, threads = Pool(), set()
    barrier = threading.Barrier(3)

    def work():
        threads.add(threading.get_ident())
        barrier.wait(TIMEOUT)

    pool.run(work, (), 10)
    assert len(threads) == 3  # the caller's and two


@pytest.mark.parametrize("of_caller", [True, False])
def test_a_failure_reaches_the_caller_when_all_have_ended(of_caller):
    caller, barrier, ended = threading.current_thread(), threading.Barrier(2), []

    def work():
        barrier.wait(TIMEOUT)
        if (threading.current_thread() is caller) == of_caller:
            raise ZeroDivisionError("on purpose")
        time.sleep(0.05)
        ended.append(True)

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        Pool().run(work, (), 2)
    assert ended == [True]


def test_callers_in_several_threads_share_the_pool():
    pool, sums = Pool(), []

    def call():
        for _ in range(30):
            out = np.zeros(300, np.int64)
            pool.run(count, (np.zeros(1, np.int64), out), 3)
            sums.append(out.sum())

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(TIMEOUT)
    assert sums == [300 * 299 // 2] * 120


def test_nobody_waits_for_a_worker_that_has_not_begun(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    pool, begun, end = Pool(), threading.Event(), threading.Event()
    pool._helpers.submit(lambda: begun.set() or end.wait(TIMEOUT), (), 1)
    assert begun.wait(TIMEOUT)  # the only worker is at it now
    calls = []
    pool.run(lambda: calls.append(1), (), 2)
    assert calls == [1]
    end.set()


def test_an_interrupt_reaches_the_caller_when_all_have_ended(monkeypatch):
    caller, barrier, ended, stopped = threading.current_thread(), threading.Barrier(3), [], []
    interrupts = threading.Lock()  # one of the helpers takes it

    def work():
        barrier.wait(TIMEOUT)
        if threading.current_thread() is not caller:
            time.sleep(0.1)  # the caller waits by then
            if interrupts.acquire(blocking=False):
                _thread.interrupt_main()
            time.sleep(0.1)
            ended.append(True)

    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with pytest.raises(KeyboardInterrupt):
        Pool().run(work, (), 3, lambda: stopped.append(True))
    assert ended == [True, True] and stopped


def test_a_waiting_thread_sees_a_signal_that_another_thread_received():
    stopped, noticed = threading.Event(), []

    def work():
        time.sleep(0.1)  # the main thread waits by then
        _thread.interrupt_main()
        noticed.append(stopped.wait(TIMEOUT))

    with pytest.raises(KeyboardInterrupt):
        Pool().run(work, (), 1, stopped.set, is_long=True)
    assert noticed == [True]
    start, _ = time.perf_counter(), [Pool().run(int, (), n, is_long=True) for n in (1, 2, 3, 4)]
    assert time.perf_counter() - start < SIGNAL_SECONDS  # no call waits in vain


def test_the_main_thread_leaves_a_long_call_to_another():
    pool, threads = Pool(), []

    def work():
        threads.append(threading.current_thread())

    pool.run(work, (), 1, is_long=True)
    assert threads[0] is not threading.main_thread()
    other = threading.Thread(target=pool.run, args=(work, (), 1), kwargs={"is_long": True})
    other.start()
    other.join(TIMEOUT)
    assert threads[1:] == [other]
    with pytest.raises(ZeroDivisionError):
        pool.run(lambda: 1 / 0, (), 1, is_long=True)


def test_calls_are_made_without_threads_if_none_can_be_started(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    pool, calls = Pool(), []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for is_long in (False, True, True):
        pool.run(calls.append, (is_long,), 2, is_long=is_long)
    assert calls == [False, True, True]


def test_calls_while_the_interpreter_ends_are_made():
    """Threads that have run before do not run then: a caller would wait for ever."""
    program = """
import os, sys
from fastmf._threads.workers import Pool

class Last:
    def __init__(self):
        self.pool, self.write = Pool(), os.write
        self.pool.run(lambda: None, (), 2, is_long=True)

    def __del__(self):
        self.pool.run(self.write, (1, b"made"), 2, is_long=True)

last = Last()
"""
    assert forks.fresh("-c", program).stdout == "made"
