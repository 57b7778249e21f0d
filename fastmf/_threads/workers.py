"""The pool of threads in which kernels run, and the number of threads of BLAS.

Kernels release the interpreter's lock and take their work, a few rows at a time, from a shared
queue. The calling thread works, too, and when the queue is empty, it does not wait for threads of
the pool that have not yet started. Numba's parallel loops wait at their end for every thread; with
another busy process on two cores, that made two threads twice as slow as one.

The main thread, in which Python runs the handlers of signals, does not run long kernels, but waits
for the threads that do. When a handler raises, as for Ctrl-C, or a thread fails, the queue of the
call is marked as stopped. Kernels test this before each task, and in each sweep of a long task.
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

    This is at most the number of cores in its affinity (set by `taskset`, a scheduler or a cpuset)
    and at most its quota of time, rounded up: with more threads, the operating system would pause
    all of them for a part of each period.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota_of_this_process())))


@cache
def _quota_of_this_process():
    return quota(CGROUP, OF_THIS_PROCESS)


def quota(root, groups):
    """Return the quota of time that control groups allow a process, in cores; infinity if none."""
    line = next((line for line in _text(groups).splitlines() if line.startswith("0::")), "")
    group = root / line.removeprefix("0::").strip("/")
    folders = [group, *group.parents] if line else []
    return min((_limit(folder) for folder in folders), default=math.inf)


def _limit(group):
    """Return the quota of a control group, in cores; infinity for "max" and invalid text."""
    try:
        time, period = map(int, _text(group / "cpu.max").split())
        return time / period
    except (ValueError, ZeroDivisionError):
        return math.inf


def _text(file):
    """Return the text of a file; an empty string if it does not exist or cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# Next task in the queue of a call that has to stop: larger than the number of tasks of any call,
# but so small that products with the number of rows of a task do not overflow.
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


# Smallest numbers of multiplications of a call that is worth several threads (1 ms without
# vectors), and of a long call, in which a user would have to wait after Ctrl-C (0.1 s).
SHARED_WORK, LONG_WORK = 10**6, 10**8
# Multiplications in vectorised code that take as long as one without vectors.
VECTOR_SPEED = 16
# Smallest number of rows in a call of BLAS, which packs the right operand in each call.
MIN_PRODUCT_ROWS = 128


class computed_once:
    """A property that is computed at its first use, and cached.

    In Python 3.11 `functools.cached_property` computes under one lock for all objects, for which
    other threads wait, and a child process that is forked during the computation waits for ever.
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


# The attribute `is_worker` says whether this thread makes a call of the pool.
_thread = threading.local()


class _Call(NamedTuple):
    """A call for another thread, which the caller may cancel until it begins."""

    function: Callable
    arguments: tuple
    begun: threading.Lock  # taken by the thread that begins or cancels the call
    running: threading.Lock  # taken until the call has ended
    errors: list


class _Threads:
    """Threads that make calls from a queue, and are started when they are needed."""

    def __init__(self, name, most):
        self.name, self.most, self.calls, self.n_started = name, most, SimpleQueue(), 0

    def submit(self, function, arguments, n_threads):
        """Queue a call for `n_threads` threads; raise a RuntimeError if no thread can run."""
        if sys.is_finalizing():  # threads have stopped, and the caller would wait for ever
            raise RuntimeError("the interpreter ends.")
        if self.n_started < n_threads:
            threading.Thread(target=self._work, name=self.name, daemon=True).start()
            self.n_started += 1
        call = _Call(function, arguments, threading.Lock(), threading.Lock(), [])
        call.running.acquire()
        self.calls.put(call)
        return call

    def _work(self):
        """Make calls from the queue for ever, as a worker."""
        _thread.is_worker = True
        while True:
            call = self.calls.get()
            if call.begun.acquire(blocking=False):
                try:
                    call.function(*call.arguments)
                except BaseException as error:
                    call.errors.append(error)
                call.running.release()
            del call  # its arguments may be large


class Pool:
    """The threads of a process in which kernels run, started when they are needed.

    The calling thread works, too, and at its end cancels the calls that no other thread has begun.
    """

    def __init__(self):
        self.start_anew()

    def start_anew(self):
        """Start without threads, also in a forked child process, which has only one."""
        self._helpers = _Threads("fastmf", os.cpu_count() or 1)
        self._stand_in = _Threads("fastmf-main", 1)

    def run(self, function, arguments, n_threads, stop=lambda: None, is_long=False):
        """Call a function in this thread and up to `n_threads` - 1 others, and wait for the end.

        If the call is long, another thread makes it in place of the main thread, which waits, so
        that Python can run the handlers of signals. Calls within the function start no threads.
        """
        nested, _thread.is_worker = getattr(_thread, "is_worker", False), True
        n_helpers, calls, errors = min(n_threads - 1, self._helpers.most), [], []
        waits = is_long and threading.current_thread() is threading.main_thread()
        try:
            for threads in [self._helpers] * n_helpers + ([self._stand_in] if waits else []):
                try:
                    calls.append(threads.submit(function, arguments, max(n_helpers, 1)))
                except RuntimeError:  # no other thread can run
                    waits = False
            if waits:
                with calls[-1].running:
                    pass
            else:
                function(*arguments)
        except BaseException as error:
            errors.append(error)
            stop()
        # The arguments may have addresses of memory that the caller frees after this method: also
        # after an exception, as from the handler of a signal, wait for all threads.
        begun = [call for call in calls if not call.begun.acquire(blocking=False)]
        while begun:
            try:
                with begun[-1].running:
                    pass
                errors += begun.pop().errors
            except BaseException as error:
                errors.append(error)
                stop()
        _thread.is_worker = nested
        if errors:
            raise errors[0]


class _BLAS:
    """Counter of the active blocks that need one BLAS thread, and the setting before them."""

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
        """Let no thread change the number of BLAS threads until `release`, during a fork.

        Otherwise a child process might wait for ever for a lock of threadpoolctl.
        """
        self.lock.acquire()

    def release(self):
        """Let threads change the number of BLAS threads again."""
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
    """Return a controller of the libraries with threads; None without threadpoolctl."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


@contextmanager
def _in_control():
    """Let this thread set the number of threads of OpenBLAS.

    Since threadpoolctl 3.8, only the first thread that sets the number can change it again. Here
    blocks of all threads are counted together, and another thread may leave the last block.
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

    After each product the threads of BLAS spin for a while on cores that the next kernel needs, and
    on a busy machine each product waits for all of them. There is no limit without threadpoolctl, a
    dependency of scikit-learn, nor if the factorisation of a matrix of this order takes long. The
    setting holds for the whole process: of overlapping blocks, the first one saves the previous
    setting, and the last one restores it.
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
    """Number of threads for a call, with `work`, the number of multiplications of the call."""

    work = 0


def workers_for(n_tasks, work, n_threads=None, n_sweeps=1):
    """Return the `ThreadCount` of a call with this number of tasks; one thread within a call.

    So the user's limit `n_threads` also holds for the calls within a solve. `work` is the number of
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

    Another thread makes a long call in place of the main thread, so that Python can run the
    handlers of signals. The main thread makes short calls, such as those of a step of learning.
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
    size = max(MIN_PRODUCT_ROWS, VECTOR_SPEED * SHARED_WORK // max(work, 1))
    slices = [slice(k, k + size) for k in range(0, n_rows, size)]
    with one_blas_thread():
        for_each(function, slices, workers_for(len(slices), n_rows * work, n_threads))


def matrix_product(a, b, n_threads=None):
    """Compute a @ b, some rows at a time in the threads of the pool, and not in those of BLAS."""
    if a.size * b.shape[1] < SHARED_WORK:
        return a @ b
    out = np.empty((len(a), b.shape[1]), np.result_type(a, b))
    in_row_blocks(lambda rows: np.matmul(a[rows], b, out=out[rows]), len(a), b.size, n_threads)
    return out


def default_threads():
    """Return the default number of threads.

    This is Numba's number if NUMBA_NUM_THREADS or `numba.set_num_threads` has set it, otherwise the
    number of cores that the affinity and the quota of this process allow.
    """
    chosen = os.environ.get("NUMBA_NUM_THREADS", "").strip()
    if "numba" in sys.modules:
        import numba
        from numba.np.ufunc import parallel

        # Do not start Numba's threads, which this package does not use: before they are started,
        # nobody can have set their number.
        started = getattr(parallel, "_is_initialized", False)
        numbas = numba.get_num_threads() if started else numba.config.NUMBA_NUM_THREADS
        if chosen or numbas != numba.config.NUMBA_NUM_THREADS:
            return numbas
    return int(chosen) if chosen.isdigit() else n_cores()
