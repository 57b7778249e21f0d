"""Threads that run kernels beside the thread that calls them.

To wake a thread that sleeps takes 50 to 400 microseconds, as long as many a kernel runs. So a
worker that has done its job watches for the next one for a while before it sleeps, and a caller
watches for the end of the jobs that it has given away, both without the interpreter's lock. A
caller never waits for a worker that has not begun: it takes the job back.
"""

import os
import threading
import time
from collections import deque
from functools import cache
from queue import Empty, SimpleQueue

import numpy as np

from fastmf._jit.kernel import kernel
from fastmf._jit.lazily import is_disabled
from fastmf._threads.waiting import load, pause

# Microseconds for which a worker, or a caller, watches before it sleeps.
WATCHING = 1000
# Microseconds after which a worker that was given a job takes it up: until then the caller, which
# is about to call the kernel itself, has the interpreter's lock, and to wait for that is to sleep.
START_DELAY = 10

# The entries of the flags of a worker: numbers of the last job given, and of the last done.
# They are apart by more than a cache line.
GIVEN, DONE, N_FLAGS = 0, 16, 32


@kernel(views=True)
def watch(flags, done, entry, old, n_looks, n_delays):
    """Look at an entry of the flags until it changes, but `n_looks` times at most.

    Parameters
    ----------
    flags : int64 array of shape (N_FLAGS,)
    done : int
        Set as the number of the last job done, if not negative.
    entry, old : int
        Place that is watched, and the value that it has had.
    n_looks, n_delays : int
        Largest number of looks, and number of pauses after the change.

    Returns
    -------
    bool
        Whether it has changed.
    """
    if done >= 0:
        flags[DONE] = done
    for _ in range(n_looks):
        if load(flags, entry) != old:
            for _ in range(n_delays):
                pause()
            return True
        pause()
    return False


@cache
def _looks_per_microsecond():
    if is_disabled():
        return 0.0
    flags, n_looks = np.zeros(N_FLAGS, np.int64), 1000
    seconds = []
    for _ in range(4):  # the first one compiles
        start = time.perf_counter()
        watch(flags, -1, GIVEN, 0, n_looks, 0)
        seconds.append(time.perf_counter() - start)
    return n_looks / min(seconds) / 1e6


class _Job:
    """A call that a worker may take."""

    def __init__(self, function, arguments, stop):
        self.function, self.arguments, self.stop = function, arguments, stop
        self.failure, self.given = None, False
        self.running = threading.Lock()
        self.running.acquire()

    def run(self):
        """Make the call, and keep what it raises."""
        try:
            self.function(*self.arguments)
        except BaseException as error:
            self.failure = error
        self.running.release()


class _Worker(threading.Thread):
    """A thread that runs jobs, given to it one at a time."""

    def __init__(self):
        super().__init__(name="fastmf", daemon=True)
        self.jobs, self.flags = SimpleQueue(), np.zeros(N_FLAGS, np.int64)
        self.n_given = self.n_done = 0
        self.n_looks = int(WATCHING * _looks_per_microsecond())
        self.n_delays = int(START_DELAY * _looks_per_microsecond())
        self.start()

    def run(self):
        """Run jobs for ever."""
        number = 0
        while True:
            watch(self.flags, number, GIVEN, number, self.n_looks, self.n_delays)
            number, job = self.jobs.get()
            job.run()
            del job  # nothing of it is kept until there is another

    def give(self, job):
        """Give it a job."""
        self.n_done = self.flags[DONE]
        self.n_given += 1
        job.given = True
        self.jobs.put((self.n_given, job))
        self.flags[GIVEN] = self.n_given

    def take_back(self):
        """Whether it had not begun the job that it was given, and will not."""
        try:
            self.jobs.get_nowait()
        except Empty:
            return False
        return True

    def wait_for(self, job):
        """Wait until the job that it was given, and has begun, is done."""
        try:
            watch(self.flags, -1, DONE, self.n_done, self.n_looks, 0)
            with job.running:
                pass
        except BaseException:  # of the handler of a signal
            # It still uses what the caller would free.
            job.stop()
            self.wait_for(job)
            raise


class Pool:
    """The workers of a process: as many as have been needed at once, if there are processors."""

    def __init__(self):
        self._idle, self._n_workers = deque(), 0

    def run(self, function, arguments, n_threads, stop=lambda: None):
        """Call a function in this thread and in up to `n_threads` - 1 workers.

        Parameters
        ----------
        function : callable
        arguments : tuple
        n_threads : int
        stop : callable
            Called where this thread fails: lets the workers end soon.

        Raises
        ------
        What the function raises in this thread, or else what it raises in another.
        """
        given, jobs = [], []
        try:
            for worker in self._take(n_threads - 1):
                job = _Job(function, arguments, stop)
                given.append((worker, job))
                jobs.append(job)
                worker.give(job)
            function(*arguments)
        except BaseException:
            stop()
            raise
        finally:
            # The arguments may hold addresses of what the caller frees when this returns.
            self._end(given)
        for failure in filter(None, (job.failure for job in jobs)):
            raise failure

    def _end(self, given):
        """Take back or wait for all jobs, and count their workers as idle."""
        while given:
            worker, job = given.pop()
            try:
                if job.given and not worker.take_back():
                    worker.wait_for(job)
            finally:
                self._idle.append(worker)
                self._end(given)  # also after an interrupt

    def _take(self, n):
        """Up to `n` idle workers."""
        workers = []
        while len(workers) < n:
            try:
                workers.append(self._idle.pop())
            except IndexError:
                if self._n_workers >= (os.cpu_count() or 1):
                    break
                self._n_workers += 1
                workers.append(_Worker())
        return workers

    def forget(self):
        """Reset in a forked child process: no thread survives a fork but the one that calls it."""
        self.__init__()
