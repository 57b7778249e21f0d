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

import numpy as np

from fastmf._jit import library
from fastmf._jit.arrays import field
from fastmf._jit.intrinsics import fetch_and_increment
from fastmf._jit.kernel import emitted
from fastmf._jit.lazily import cgutils, ir, types, with_numba

# Next task in the queue of a call that is to stop: more than any call has, and the product with the
# number of rows of a task is an integer still.
STOPPED = 1 << 40

# Entries of what is known of signals: the main thread, which alone handles them; the second of its
# last look; type, value and traceback of the exception that a handler has raised; and the addresses
# of the functions that kernels call, so that their code refers to none of Python's.
MAIN, LAST_LOOK, RAISED = 0, 1, 2
THREAD, TIME, ENSURE, CHECK, FETCH, RELEASE, N_SIGNALS = range(5, 12)
_NAMES = {
    THREAD: "PyThread_get_thread_ident",
    ENSURE: "PyGILState_Ensure",
    CHECK: "PyErr_CheckSignals",
    FETCH: "PyErr_Fetch",
    RELEASE: "PyGILState_Release",
}


def _made():
    """The array, in the library of kernels that were built ahead if there is one."""
    kind = ctypes.c_int64 * N_SIGNALS
    made = library.ACTIVE.signals(kind) if library.ACTIVE else kind()
    functions = {k: getattr(ctypes.pythonapi, name) for k, name in _NAMES.items()}
    c_library = ctypes.cdll.msvcrt if os.name == "nt" else ctypes.CDLL(None)
    functions[TIME] = c_library._time64 if os.name == "nt" else c_library.time
    for k, function in functions.items():
        made[k] = ctypes.cast(function, ctypes.c_void_p).value
    return np.frombuffer(made, np.int64)


_signals = _made()
_signals[MAIN] = threading.main_thread().ident or 0


def _name():
    """Tell LLVM where the array is, which compiled code refers to by a name."""
    import llvmlite.binding

    llvmlite.binding.add_symbol(library.SIGNALS, _signals.ctypes.data)


with_numba(_name)


def stopped(queue):
    """Whether a call is to stop, as its queue says, or as the handler of a signal does now."""
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
        return builder.atomic_rmw("add", data, ir.IntType(64)(1), "acq_rel")

    return types.int64(queue), generate


def _emit_look(builder, queue):
    """Emit a call of the function that says whether a call is to stop."""
    kind = ir.FunctionType(ir.IntType(1), [queue.type])
    look = cgutils.get_or_insert_function(builder.module, kind, "fastmf_look")
    if look.is_declaration:
        # A function of its own: compilers would optimise it again in each place.
        look.linkage = "internal"
        look.attributes.add("noinline")
        _define_look(look)
    return builder.call(look, [queue])


def _define_look(look):
    """Write the function: some comparisons, unless it is time to look for signals."""
    word, integer, bit = ir.IntType(64), ir.IntType(32), ir.IntType(1)
    thread_type = ir.IntType(8 * ctypes.sizeof(ctypes.c_ulong))
    module, builder = look.module, ir.IRBuilder(look.append_basic_block())
    (queue,) = look.args
    result = cgutils.alloca_once_value(builder, bit(0))
    signals = ir.GlobalVariable(module, ir.ArrayType(word, N_SIGNALS), library.SIGNALS)

    def entry(k):
        return builder.gep(signals, [integer(0), integer(k)])

    def called(k, returned, *arguments):
        kind = ir.FunctionType(returned, [argument.type for argument in arguments])
        return builder.call(builder.inttoptr(builder.load(entry(k)), kind.as_pointer()), arguments)

    marked = builder.icmp_signed(">=", builder.load_atomic(queue, "acquire", 8), word(STOPPED))
    builder.store(marked, result)
    thread = builder.zext(called(THREAD, thread_type), word)
    is_main = builder.icmp_signed("==", thread, builder.load(entry(MAIN)))
    with cgutils.if_likely(builder, builder.and_(is_main, builder.not_(marked))):
        second = called(TIME, word, word(0))
        is_new = builder.icmp_signed("!=", second, builder.load(entry(LAST_LOOK)))
        none_kept = builder.icmp_signed("==", builder.load(entry(RAISED)), word(0))
        with cgutils.if_unlikely(builder, builder.and_(is_new, none_kept)):
            builder.store(second, entry(LAST_LOOK))
            lock = called(ENSURE, integer)
            raised = builder.icmp_signed("!=", called(CHECK, integer), integer(0))
            with builder.if_then(raised):
                called(FETCH, ir.VoidType(), *(entry(RAISED + k) for k in range(3)))
                builder.store(word(STOPPED), queue)
                builder.store(bit(1), result)
            called(RELEASE, ir.VoidType(), lock)
    builder.ret(builder.load(result))


def stop(kernel, arguments):
    """Stop all threads that are in a kernel with these arguments."""
    code = getattr(kernel, "py_func", kernel).__code__
    for name, value in zip(code.co_varnames, arguments, strict=False):
        if name in ("queue", "work"):
            queue = value if name == "queue" else value.queue
            queue[0] = STOPPED


def raise_kept():
    """Raise in the main thread what the handler of a signal has raised within a kernel."""
    if _signals[RAISED] and threading.get_ident() == _signals[MAIN]:
        kept = [ctypes.c_void_p(address) for address in _signals[RAISED:THREAD].tolist()]
        _signals[RAISED:THREAD] = 0
        ctypes.pythonapi.PyErr_Restore(*kept)


def _start_anew():
    """In a forked process, the thread that has forked is the main thread."""
    _signals[MAIN], _signals[RAISED:THREAD] = threading.get_ident(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
