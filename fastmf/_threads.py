"""The one pool of threads in which kernels run.

Kernels release the interpreter's lock and take their work, a few rows at a time, from a shared
queue. The calling thread works too, and never waits for a helper that has not started: so a helper
that the machine is too busy to wake costs nothing. Numba's own parallel loops wait at their end for
every thread to have been there; with another busy process on two cores, that made two threads twice
as slow as one.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import numba
from numba.core.errors import TypingError

# Order of a matrix from which BLAS's threads gain more by its factors than they cost.
LARGE = 1000


class computed_once:
    """A property that is computed when it is first asked for, and kept.

    In Python 3.11 `functools.cached_property` computes under a lock, one for all objects: other
    threads wait for it, and a child that is forked meanwhile does so for ever.
    """

    def __init__(self, compute):
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, owner, kind=None):
        if owner is None:
            return self
        # What an object holds comes before what its class makes.
        value = owner.__dict__[self.name] = self.compute(owner)
        return value


@cache
def _pool():
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="fastmf")


class _BLAS:
    """How many blocks of code want one thread of BLAS, and what there was before the first."""

    def __init__(self):
        self._start()

    def _start(self):
        self.lock, self.n_blocks, self.limiter = threading.Lock(), 0, None

    def enter(self):
        with self.lock:
            if self.n_blocks == 0:
                self.limiter = _libraries().limit(limits=1, user_api="blas")
            self.n_blocks += 1

    def leave(self):
        with self.lock:
            if self.n_blocks == 0:  # a child, forked within this block, has forgotten it
                return
            self.n_blocks -= 1
            if self.n_blocks == 0:
                self.limiter.restore_original_limits()

    def forget(self):
        """In a forked child, of whose threads this one alone is left."""
        if self.n_blocks:
            self.limiter.restore_original_limits()
        self._start()


@cache
def _libraries():
    """The libraries with threads in this process; None if nobody can tell."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


_blas = _BLAS()

if hasattr(os, "register_at_fork"):
    # The threads of a pool do not survive a fork.
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=_blas.forget)


@contextmanager
def one_blas_thread(order=0):
    """Give BLAS a single thread where small products and kernels take turns.

    After each product the threads of BLAS spin for a while in wait of the next one, on the cores
    that kernels need then, and on a busy machine each product waits for all of them. Without
    threadpoolctl, which comes with scikit-learn, BLAS is left alone. Settings are those of the
    whole process: of blocks that overlap the first one saves them, and the last one restores them.

    Parameters
    ----------
    order : int, default 0
        Of the matrices that are factorised in the block: BLAS keeps its threads for those from
        1000 on.
    """
    if order >= LARGE or _libraries() is None:
        yield
        return
    _blas.enter()
    try:
        yield
    finally:
        _blas.leave()


def in_parallel(kernel, arguments, n_workers):
    """Call `kernel(*arguments)` in several threads at once, and wait until the work is done.

    Parameters
    ----------
    kernel : compiled function
        Takes its share of the work through `fetch_and_increment`, until none is left.
    arguments : tuple
    n_workers : int

    Raises
    ------
    TypeError
        If Numba cannot compile the kernel for a user's own prior.
    """
    helpers = [_pool().submit(kernel, *arguments) for _ in range(n_workers - 1)]
    try:
        kernel(*arguments)
    except TypingError as error:
        raise TypeError(
            "no code can be compiled for these unit priors: the methods of one's own must keep to "
            "what Numba knows, such as the functions of NumPy and fastmf.special."
        ) from error
    for helper in helpers:
        if not helper.cancel():
            helper.result()


def workers_for(n_tasks, work, n_threads=None):
    """Number of threads for so many tasks.

    Parameters
    ----------
    n_tasks : int
    work : int
        Multiply-adds in all of them together. Waking a thread takes as long as about a million.
    n_threads : int, optional
        At most so many; default Numba's number of threads.
    """
    if work < 1_000_000:
        return 1
    return min(numba.get_num_threads() if n_threads is None else n_threads, n_tasks)
