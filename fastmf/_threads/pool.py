"""Threads that run kernels beside the thread that calls them."""

import os
from concurrent.futures import ThreadPoolExecutor, wait


class Pool:
    """The workers of a process, which are started when they are needed.

    The calling thread works, too, so that it handles signals (see `interrupts`), and takes back
    the calls that no worker has begun when its own ends.
    """

    def __init__(self):
        self.forget()

    def forget(self):
        """Start anew in a forked child process: no thread survives but the one that forks."""
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, "fastmf")

    def run(self, function, arguments, n_threads, stop=lambda: None):
        """Call a function in this thread and in up to `n_threads` - 1 workers."""
        calls = []
        try:
            for _ in range(n_threads - 1):
                calls.append(self._submit(function, arguments))
            function(*arguments)
        except BaseException:
            stop()
            raise
        finally:
            # The arguments may hold addresses of what the caller frees when this returns.
            begun = [call for call in calls if call and not call.cancel()]
            _wait_for(begun, stop)
        for call in begun:
            call.result()

    def _submit(self, function, arguments):
        """Give a call to a worker; None while the interpreter ends, when none can be started."""
        try:
            return self._threads.submit(function, *arguments)
        except RuntimeError:
            return None


def _wait_for(calls, stop):
    try:
        wait(calls)
    except BaseException:  # of the handler of a signal
        stop()
        _wait_for(calls, stop)  # they still use what the caller would free
        raise
