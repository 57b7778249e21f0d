"""Threads that run kernels."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait


class Pool:
    """The threads of a process in which kernels run, started when they are needed.

    The calling thread works, too, and takes back the calls that no helper has begun when its own
    ends.
    """

    def __init__(self):
        self.start_anew()

    def start_anew(self):
        """Have no threads, as in a forked child process, where only the forking one lives."""
        self._helpers = ThreadPoolExecutor(os.cpu_count() or 1, "fastmf")
        self._stand_in = ThreadPoolExecutor(1, "fastmf-main")

    def run(self, function, arguments, n_threads, stop=lambda: None, is_long=False):
        """Call a function in this thread and up to `n_threads` - 1 others, until all have ended.

        If the call is long, the main thread has another thread stand in for it, and waits:
        meanwhile Python runs the handlers of signals.
        """
        calls, stand_in = [], None
        try:
            for _ in range(n_threads - 1):
                calls.append(_submitted(self._helpers, function, arguments))
            if is_long and threading.current_thread() is threading.main_thread():
                stand_in = _submitted(self._stand_in, function, arguments)
            if stand_in is None:
                function(*arguments)
            else:
                stand_in.result()
        except BaseException:
            stop()
            raise
        finally:
            # The arguments may hold addresses of memory that the caller frees when this returns.
            begun = [call for call in calls if call and not call.cancel()]
            _wait_for([stand_in, *begun] if stand_in else begun, stop)
        for call in begun:
            call.result()


def _submitted(executor, function, arguments):
    """Give a call to a thread; None while the interpreter ends, when none can be started."""
    try:
        return executor.submit(function, *arguments)
    except RuntimeError:
        return None


def _wait_for(calls, stop):
    try:
        if calls:  # a wait for none takes as long as a small kernel
            wait(calls)
    except BaseException:  # raised by the handler of a signal
        stop()
        _wait_for(calls, stop)  # the threads still use memory that the caller would free
        raise
