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
from numba.core import cgutils, types

from fastmf._jit.arrays import field
from fastmf._jit.intrinsics import fetch_and_increment
from fastmf._jit.kernel import emitted

# Next task in the queue of a call that is to stop: more than any call has, and the product with the
# number of rows of a task is an integer still.
STOPPED = 1 << 40

# Entries of what is known of signals: the main thread, which alone handles them; the second of its
# last look; type, value and traceback of the exception that a handler has raised.
MAIN, LAST_LOOK, RAISED, N_SIGNALS = 0, 1, 2, 5

_signals = np.zeros(N_SIGNALS, np.int64)
_signals[MAIN] = threading.main_thread().ident or 0


def _clock():
    """Address of the C library's function for the seconds of today."""
    function = ctypes.cdll.msvcrt._time64 if os.name == "nt" else ctypes.CDLL(None).time
    return ctypes.cast(function, ctypes.c_void_p).value


# Names that compiled code, which other processes may have compiled, refers to.
llvmlite.binding.add_symbol("fastmf_signals", _signals.ctypes.data)
llvmlite.binding.add_symbol("fastmf_seconds", _clock())


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


@emitted(stopped)
def _stopped(typing_context, queue):
    def generate(context, builder, signature, values):
        data = field(context, builder, queue, values[0], "data")
        return _emit_look(builder, data)

    return types.boolean(queue), generate


def next_task(queue):
    """Take the next task from a queue that all threads of a call share; none if it is to stop."""
    return fetch_and_increment(queue)


@emitted(next_task)
def _next_task(typing_context, queue):
    def generate(context, builder, signature, values):
        data = field(context, builder, queue, values[0], "data")
        _emit_look(builder, data)  # marks the queue
        return builder.atomic_rmw("add", data, _WORD(1), "acq_rel")

    return types.int64(queue), generate


_WORD, _INT, _BIT, _VOID = ir.IntType(64), ir.IntType(32), ir.IntType(1), ir.VoidType()
_THREAD = ir.IntType(8 * ctypes.sizeof(ctypes.c_ulong))


def _emit_look(builder, queue):
    """Emit a call of the function that says whether a call is to stop."""
    kind = ir.FunctionType(_BIT, [queue.type])
    look = cgutils.get_or_insert_function(builder.module, kind, "fastmf_look")
    if look.is_declaration:
        # A function of its own: compilers would optimise it again in each place.
        look.linkage = "internal"
        look.attributes.add("noinline")
        _define_look(look)
    return builder.call(look, [queue])


def _define_look(look):
    """Write the function: some comparisons, unless it is time to look for signals."""
    module, builder = look.module, ir.IRBuilder(look.append_basic_block())
    (queue,) = look.args
    result = cgutils.alloca_once_value(builder, _BIT(0))
    signals = ir.GlobalVariable(module, ir.ArrayType(_WORD, N_SIGNALS), "fastmf_signals")

    def entry(k):
        return builder.gep(signals, [_INT(0), _INT(k)])

    def called(name, returned, *arguments):
        function = ir.FunctionType(returned, [argument.type for argument in arguments])
        function = cgutils.get_or_insert_function(module, function, name)
        return builder.call(function, arguments)

    marked = builder.icmp_signed(">=", builder.load_atomic(queue, "acquire", 8), _WORD(STOPPED))
    builder.store(marked, result)
    thread = builder.zext(called("PyThread_get_thread_ident", _THREAD), _WORD)
    is_main = builder.icmp_signed("==", thread, builder.load(entry(MAIN)))
    with cgutils.if_likely(builder, builder.and_(is_main, builder.not_(marked))):
        second = called("fastmf_seconds", _WORD, _WORD(0))
        is_new = builder.icmp_signed("!=", second, builder.load(entry(LAST_LOOK)))
        none_kept = builder.icmp_signed("==", builder.load(entry(RAISED)), _WORD(0))
        with cgutils.if_unlikely(builder, builder.and_(is_new, none_kept)):
            builder.store(second, entry(LAST_LOOK))
            lock = called("PyGILState_Ensure", _INT)
            raised = builder.icmp_signed("!=", called("PyErr_CheckSignals", _INT), _INT(0))
            with builder.if_then(raised):
                called("PyErr_Fetch", _VOID, *(entry(RAISED + k) for k in range(3)))
                builder.store(_WORD(STOPPED), queue)
                builder.store(_BIT(1), result)
            called("PyGILState_Release", _VOID, lock)
    builder.ret(builder.load(result))


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
