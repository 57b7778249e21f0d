"""The pool of threads in which kernels run, and the number of threads of BLAS.

Kernels release the interpreter's lock and take their work, a few rows at a time, from a shared
queue. The calling thread works too, and does not wait for threads of the pool that have not yet
started when the queue is empty. Numba's parallel loops wait at their end for every thread; with
another busy process on two cores, that made two threads twice as slow as one.

The main thread, in which Python runs signal handlers, does not run long kernels, but waits for the
threads that do. When a handler raises, as for Ctrl-C, or a thread fails, the queue of the call is
marked as stopped. Kernels check the mark at each task, and at each sweep of a long task.
"""

import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment
from fastmf._jit.kernel import emitted, field
from fastmf._jit.lazily import ir, types

CGROUP = Path("/sys/fs/cgroup")
OF_THIS_PROCESS = Path("/proc/self/cgroup")


def n_cores():
    """Return the number of cores that this process may use, at least one.

    It is limited by the affinity (set by `taskset`, a scheduler or a cpuset) and by the quota of
    CPU time, rounded up: with more threads, the operating system would pause all threads for a part
    of each period.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota_of_this_process())))


@cache
def _quota_of_this_process():
    return quota(CGROUP, OF_THIS_PROCESS)


def quota(root, groups):
    """Return the CPU quota of control groups in cores, infinite without a limit."""
    line = next((line for line in _text(groups).splitlines() if line.startswith("0::")), "")
    group = root / line.removeprefix("0::").strip("/")
    folders = [group, *group.parents] if line else []
    return min((_limit(folder) for folder in folders), default=math.inf)


def _limit(group):
    """Return the quota of a control group in cores; infinite for "max" and invalid text."""
    try:
        time, period = map(int, _text(group / "cpu.max").split())
        return time / period
    except (ValueError, ZeroDivisionError):
        return math.inf


def _text(file):
    """Return the text of a file, empty if it does not exist or cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# Next task in the queue of a call that is to stop: larger than any number of tasks, but its product
# with the number of rows of a task is in the range of integers.
STOPPED = 1 << 40

next_task = fetch_and_increment


def stopped(queue):
    """Return whether the queue of a call is marked as stopped."""
    return queue[0] >= STOPPED


@emitted(stopped)
def _stopped(typing_context, queue):
    def generate(context, builder, signature, values):
        data = field(context, builder, queue, values[0], "data")
        task = builder.load_atomic(data, "acquire", 8)
        return builder.icmp_signed(">=", task, ir.Constant(ir.IntType(64), STOPPED))

    return types.boolean(queue), generate


def stop(kernel, arguments):
    """Stop all threads that run a kernel with these arguments."""
    code = getattr(kernel, "py_func", kernel).__code__
    for name, value in zip(code.co_varnames, arguments, strict=False):
        if name in ("queue", "work"):
            queue = value if name == "queue" else value.queue
            queue[0] = STOPPED


# Multiplications from which a call uses several threads, and from which a user who presses Ctrl-C
# would notice that it waits: 1 ms and 0.1 s without vectors.
SHARED_WORK, LONG_WORK = 10**6, 10**8
# Number of vectorised multiply-adds in the time of a scalar one.
VECTOR_SPEED = 16


class computed_once:
    """A property that is computed at its first use, and cached.

    In Python 3.11 `functools.cached_property` computes under one lock for all objects: other
    threads wait for it, and a child process that is forked at this time waits for ever.
    """

    def __init__(self, compute):
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, owner, kind=None):
        if owner is None:
            return self
        # An entry of the object's dictionary takes precedence over this descriptor.
        value = owner.__dict__[self.name] = self.compute(owner)
        return value


# The attribute `is_worker` is true in threads that run a call of the pool.
_thread = threading.local()

# Seconds after which a waiting thread checks for signals that another thread received.
SIGNAL_SECONDS = 0.2


class _Call(NamedTuple):
    """A call for another thread, which the caller may cancel until it begins."""

    function: Callable
    arguments: tuple
    begun: threading.Lock  # acquired by the thread that begins the call, or that cancels it
    running: threading.Lock  # released when the call has ended
    ended: list  # not empty when the call has ended
    errors: list


class _Threads:
    """At most `most` threads that take calls from a queue, started when they are needed."""

    def __init__(self, name, most):
        self.name, self.most, self.calls, self.n_started = name, most, SimpleQueue(), 0

    def submit(self, function, arguments, n_threads):
        """Queue a call for one of `n_threads` threads; raise a RuntimeError if none can run."""
        if sys.is_finalizing():  # threads have stopped, and the caller would wait for ever
            raise RuntimeError("the interpreter ends.")
        if self.n_started < n_threads:
            threading.Thread(target=self._work, name=self.name, daemon=True).start()
            self.n_started += 1
        call = _Call(function, arguments, threading.Lock(), threading.Lock(), [], [])
        call.running.acquire()
        self.calls.put(call)
        return call

    def _work(self):
        """Run calls from the queue, for ever."""
        _thread.is_worker = True
        while True:
            call = self.calls.get()
            if call.begun.acquire(blocking=False):
                try:
                    call.function(*call.arguments)
                except BaseException as error:
                    call.errors.append(error)
                call.ended.append(True)
                call.running.release()
            del call  # its arguments may be large


class Pool:
    """The threads of a process in which kernels run, started when they are needed.

    The calling thread works too. When its call ends, it cancels the calls that no other thread has
    begun.
    """

    def __init__(self):
        self.start_anew()

    def start_anew(self):
        """Reset to no threads, as in a forked child process, which has a single thread."""
        self._helpers = _Threads("fastmf", os.cpu_count() or 1)
        self._stand_in = _Threads("fastmf-main", 1)

    def run(self, function, arguments, n_threads, stop=lambda: None, is_long=False):
        """Call a function in this thread and up to `n_threads` - 1 other threads, and wait for all.

        If the call is long, another thread replaces the main thread, which waits, so that Python
        can run signal handlers in it. Calls within the function start no threads.
        """
        nested, _thread.is_worker = getattr(_thread, "is_worker", False), True
        n_helpers, calls, errors = min(n_threads - 1, self._helpers.most), [], []
        waits = is_long and threading.current_thread() is threading.main_thread()
        try:
            for threads in [self._helpers] * n_helpers + ([self._stand_in] if waits else []):
                try:
                    calls.append(threads.submit(function, arguments, max(n_helpers, 1)))
                except RuntimeError:  # this thread makes the call alone
                    waits = False
            if waits:
                while not calls[-1].ended:
                    calls[-1].running.acquire(timeout=SIGNAL_SECONDS)
            else:
                function(*arguments)
        except BaseException as error:
            errors.append(error)
            stop()
        # The arguments may hold addresses of memory that the caller frees after this returns, so
        # that an exception of a signal handler must wait for the threads, too.
        begun = [call for call in calls if not call.begun.acquire(blocking=False)]
        while begun:
            try:
                if begun[-1].ended or begun[-1].running.acquire(timeout=SIGNAL_SECONDS):
                    errors += begun.pop().errors
            except BaseException as error:
                errors.append(error)
                stop()
        _thread.is_worker = nested
        if errors:
            raise errors[0]


class _BLAS:
    """Number of active blocks with one thread of BLAS, and the setting before the first block."""

    def __init__(self):
        self._start()

    def _start(self):
        self.lock, self.n_blocks, self.limiter = threading.Lock(), 0, None

    def enter(self):
        with self.lock:
            if self.n_blocks == 0:
                with _in_control():
                    self.limiter = _libraries().limit(limits=1, user_api="blas")
            self.n_blocks += 1

    def leave(self):
        with self.lock:
            if self.n_blocks == 0:  # in a child that was forked within the block: see `forget`
                return
            self.n_blocks -= 1
            if self.n_blocks == 0:
                self._restore()

    def hold(self):
        """Let no thread change the setting until `release`.

        threadpoolctl has a lock, and a child that is forked while it is held would wait for ever.
        """
        self.lock.acquire()

    def release(self):
        """Let threads change the setting again."""
        self.lock.release()

    def forget(self):
        """Reset in a forked child process, which has a single thread."""
        if self.n_blocks:
            self._restore()
        self._start()

    def _restore(self):
        with _in_control():
            self.limiter.restore_original_limits()


@cache
def _libraries():
    """Return the controller of threaded libraries in this process; None without threadpoolctl."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


@contextmanager
def _in_control():
    """Let this thread set the number of threads of OpenBLAS.

    From threadpoolctl 3.8 on, the first thread that sets this number owns it, and calls of other
    threads have no effect. Here the blocks of all threads are counted together, and the last block
    may end in another thread than the first.
    """
    import threadpoolctl

    owner = getattr(threadpoolctl, "OpenBLASController", None)
    clear = getattr(owner, "clear_controlling_thread", lambda force=False: None)
    clear(force=True)
    try:
        yield
    finally:
        clear()


_blas = _BLAS()
_pool = Pool()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.start_anew)
    os.register_at_fork(
        before=_blas.hold, after_in_parent=_blas.release, after_in_child=_blas.forget
    )


@contextmanager
def one_blas_thread(order=0):
    """Limit BLAS to a single thread in a block where small products and kernels alternate.

    After each product the threads of BLAS spin for a while, on cores that the next kernel needs,
    and on a busy machine each product waits for all of them. Nothing is changed without
    threadpoolctl (a dependency of scikit-learn), nor if the factorisation of a matrix of this order
    takes long. The process has one setting: of overlapping blocks, the first one saves it, and the
    last one restores it.
    """
    if order**3 / 3 >= LONG_WORK or _libraries() is None:
        yield
        return
    _blas.enter()
    try:
        yield
    finally:
        _blas.leave()


class ThreadCount(int):
    """Number of threads for a call, and the number of its multiplications (`work`)."""

    work = 0


def workers_for(n_tasks, work, n_threads=None, n_sweeps=1):
    """Return the `ThreadCount` of a call with this number of tasks, one thread within another call.

    A limit `n_threads` of the user thus holds for nested calls, too. `work` is the number of
    multiplications of one sweep.
    """
    if work < SHARED_WORK or getattr(_thread, "is_worker", False):
        n_threads = 1
    elif n_threads is None:
        n_threads = default_threads()
    count = ThreadCount(min(n_threads, n_tasks))
    count.work = work * n_sweeps
    return count


def in_parallel(kernel, arguments, n_workers):
    """Call `kernel(*arguments)` in several threads at once, and wait until the work is done.

    The main thread leaves long calls to other threads, so that Python can run signal handlers; it
    takes part in short calls, such as the calls of a step of learning.
    """
    is_long = getattr(n_workers, "work", 0) >= LONG_WORK
    _pool.run(kernel, arguments, n_workers, partial(stop, kernel, arguments), is_long)


def for_each(function, tasks, n_workers):
    """Call a Python function for each task, in several threads, and wait until all are done."""
    waiting = deque(tasks)

    def take():
        while waiting:
            try:
                task = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            function(task)

    _pool.run(take, (), n_workers, waiting.clear)


def in_row_blocks(function, n_rows, work, n_threads=None):
    """Call a function for slices of rows in the threads of the pool, with one thread of BLAS.

    `work` is the number of multiplications for a row. The slices, and so the bits of the results,
    do not depend on the number of threads.
    """
    # BLAS packs the right operand for each slice, which takes an eighth of the time at worst.
    size = VECTOR_SPEED * max(8, SHARED_WORK // max(work, 1))
    slices = [slice(k, k + size) for k in range(0, n_rows, size)]
    with one_blas_thread():
        for_each(function, slices, workers_for(len(slices), n_rows * work, n_threads))


def matrix_product(a, b, n_threads=None):
    """Compute a @ b, some rows at a time, in the threads of the pool instead of BLAS threads."""
    if a.size * b.shape[1] < SHARED_WORK:
        return a @ b
    out = np.empty((len(a), b.shape[1]), np.result_type(a, b))
    in_row_blocks(lambda rows: np.matmul(a[rows], b, out=out[rows]), len(a), b.size, n_threads)
    return out


def default_threads():
    """Return the default number of threads.

    It is Numba's, if the environment variable NUMBA_NUM_THREADS or `numba.set_num_threads` has set
    it, and otherwise the number of cores that this process may use (`n_cores`).
    """
    chosen = os.environ.get("NUMBA_NUM_THREADS", "").strip()
    if "numba" in sys.modules:
        import numba
        from numba.np.ufunc import parallel

        # Numba's own threads, which none of this package's code uses, are not started for this;
        # before they are, nobody can have set their number.
        started = getattr(parallel, "_is_initialized", False)
        numbas = numba.get_num_threads() if started else numba.config.NUMBA_NUM_THREADS
        if chosen or numbas != numba.config.NUMBA_NUM_THREADS:
            return numbas
    return int(chosen) if chosen.isdigit() else n_cores()
