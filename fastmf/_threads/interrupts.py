"""How a call of kernels ends before its work is done: Ctrl-C, and failures in other threads.

The main thread, in which Python runs the handlers of signals, does not run kernels: it waits for
the threads that do (see `workers`). When a handler raises, or a thread fails, the queue of the call
is marked. Kernels look at it at each task, and at each sweep of a long task.
"""

from fastmf._jit.arrays import field
from fastmf._jit.intrinsics import fetch_and_increment
from fastmf._jit.kernel import emitted
from fastmf._jit.lazily import ir, types

# Next task in the queue of a call that is to stop: more than any call has, and the product with the
# number of rows of a task is an integer still.
STOPPED = 1 << 40

next_task = fetch_and_increment


def stopped(queue):
    """Whether a call is to stop, as its queue says."""
    return queue[0] >= STOPPED


@emitted(stopped)
def _stopped(typing_context, queue):
    def generate(context, builder, signature, values):
        data = field(context, builder, queue, values[0], "data")
        task = builder.load_atomic(data, "acquire", 8)
        return builder.icmp_signed(">=", task, ir.Constant(ir.IntType(64), STOPPED))

    return types.boolean(queue), generate


def stop(kernel, arguments):
    """Stop all threads that are in a kernel with these arguments."""
    code = getattr(kernel, "py_func", kernel).__code__
    for name, value in zip(code.co_varnames, arguments, strict=False):
        if name in ("queue", "work"):
            queue = value if name == "queue" else value.queue
            queue[0] = STOPPED
