"""The one pool of threads in which kernels run.

Kernels release the interpreter's lock and take their work, a few rows at a time, from a shared
queue. The calling thread works too, and never waits for a helper that has not started: so a helper
that the machine is too busy to wake costs nothing. Numba's own parallel loops wait at their end for
every thread to have been there; with another busy process on two cores, that made two threads twice
as slow as one.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numba
from numba.core.errors import TypingError


@cache
def _pool():
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="fastmf")


if hasattr(os, "register_at_fork"):
    # The threads of a pool do not survive a fork.
    os.register_at_fork(after_in_child=_pool.cache_clear)


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
