"""How a call of kernels ends before its work is done: Ctrl-C, and failures in other threads.

While the main thread is in a kernel, Python cannot run the handler of a signal. So kernels ask, at
each task and at each sweep of a long one, whether their call is to stop. There the main thread also
looks for signals, once in a second at most, and has Python run their handlers. What a handler
raises, such as KeyboardInterrupt, is kept until the kernel has returned; and the call's queue is
marked, for all of its threads to stop.
"""

import ctypes
import os
import threading

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba.core import types

from fastmf._intrinsics import fetch_and_increment, view
from fastmf._numba import compilable, compiled_from, emitted
from fastmf._waiting import load

# Next task in the queue of a call that is to stop: more than any call has, and the product with the
# number of rows of a task is an integer still.
STOPPED = 1 << 40

# Entries of what is known of signals: the main thread, which alone handles them; the second of its
# last look; type, value and traceback of the exception that a handler has raised.
MAIN, SECOND, RAISED, N_ENTRIES = 0, 1, 2, 5

_signals = np.zeros(N_ENTRIES, np.int64)
_signals[MAIN] = threading.main_thread().ident


def _clock():
    """Address of the C library's function for the seconds of today."""
    function = ctypes.cdll.msvcrt._time64 if os.name == "nt" else ctypes.CDLL(None).time
    return ctypes.cast(function, ctypes.c_void_p).value


# Names that compiled code, which other processes may have compiled, refers to.
llvmlite.binding.add_symbol("fastmf_signals", _signals.ctypes.data)
llvmlite.binding.add_symbol("fastmf_seconds", _clock())

_seconds = types.ExternalFunction("fastmf_seconds", types.int64(types.intp))
_this_thread = types.ExternalFunction("PyThread_get_thread_ident", types.ulong())
_take_lock = types.ExternalFunction("PyGILState_Ensure", types.intc())
_release_lock = types.ExternalFunction("PyGILState_Release", types.void(types.intc))
_run_handlers = types.ExternalFunction("PyErr_CheckSignals", types.intc())
_keep_exception = types.ExternalFunction("PyErr_Fetch", types.void(*[types.intp] * 3))


def _address_of_signals():
    """Address of `_signals` in this process."""


@emitted(_address_of_signals)
def _emit_address(typing_context):
    def generate(context, builder, signature, values):
        name, integer = "fastmf_signals", context.get_value_type(types.intp)
        found = builder.module.globals.get(name)
        if found is None:
            found = ir.GlobalVariable(builder.module, integer, name)
        return builder.ptrtoint(found, integer)

    return types.intp(), generate


def stopped(queue):
    """Whether a call is to stop, as its queue says, or as the handler of a signal does now.

    Parameters
    ----------
    queue : int64 array of one entry or more
        The first is the next task; it is set to `STOPPED`.

    Returns
    -------
    bool
    """
    return queue[0] >= STOPPED


@compiled_from(stopped)
def _stopped(queue):
    return _look


def _look(queue):
    if load(queue, 0) >= STOPPED:
        return True
    address = _address_of_signals()
    signals = view(address, (N_ENTRIES,), queue)
    if np.int64(_this_thread()) != signals[MAIN]:
        return False
    second = _seconds(0)
    if second == signals[SECOND] or signals[RAISED] != 0:
        return False
    signals[SECOND] = second
    lock = _take_lock()
    raised = _run_handlers() != 0
    if raised:
        entry = address + 8 * RAISED
        _keep_exception(entry, entry + 8, entry + 16)
        queue[0] = STOPPED
    _release_lock(lock)
    return raised


@compilable
def next_task(queue):
    """Take the next task from a queue that all threads of a call share; none if it is to stop."""
    if stopped(queue):
        return STOPPED
    return fetch_and_increment(queue)


def stop(kernel, arguments):
    """Stop all threads that are in a kernel with these arguments.

    Parameters
    ----------
    kernel : compiled function
        With an argument `queue`, or `work` that has one; others end by themselves.
    arguments : tuple
    """
    code = getattr(kernel, "py_func", kernel).__code__
    for name, value in zip(code.co_varnames, arguments, strict=False):
        if name in ("queue", "work"):
            queue = value if name == "queue" else value.queue
            queue[0] = STOPPED


def raise_kept():
    """Raise in the main thread what the handler of a signal has raised within a kernel."""
    if _signals[RAISED] and threading.get_ident() == _signals[MAIN]:
        kept = [ctypes.c_void_p(address) for address in _signals[RAISED:].tolist()]
        _signals[RAISED:] = 0
        ctypes.pythonapi.PyErr_Restore(*kept)


def _start_anew():
    """In a forked process, the thread that has forked is the main thread."""
    _signals[MAIN], _signals[RAISED:] = threading.get_ident(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
