"""Waits of threads for one another without the interpreter: loads in order, and pauses."""

import os
import platform
import time

from fastmf._jit.arrays import field
from fastmf._jit.kernel import emitted
from fastmf._jit.lazily import ir, types


def load(array, i):
    """Entry of an int64 array that other threads change; what they wrote before is seen too."""
    return array[i]


@emitted(load)
def _load(typing_context, array, i):
    def generate(context, builder, signature, values):
        data = field(context, builder, array, values[0], "data")
        return builder.load_atomic(builder.gep(data, [values[1]]), "acquire", 8)

    return types.int64(array, types.intp), generate


def pause():
    """Let the other thread of the core, and the bus, work for a moment."""


@emitted(pause)
def _pause(typing_context):
    def generate(context, builder, signature, values):
        machine, integer = platform.machine().lower(), ir.IntType(32)
        name, given = {
            "x86_64": ("llvm.x86.sse2.pause", []),
            "amd64": ("llvm.x86.sse2.pause", []),
            "aarch64": ("llvm.aarch64.hint", [ir.Constant(integer, 1)]),
            "arm64": ("llvm.aarch64.hint", [ir.Constant(integer, 1)]),
        }.get(machine, (None, []))
        if name:
            function = ir.FunctionType(ir.VoidType(), [value.type for value in given])
            builder.call(builder.module.declare_intrinsic(name, (), function), given)
        return context.get_dummy_value()

    return types.void(), generate


def leave_processor():
    """Let another thread run on this processor, if one is waiting for it."""
    time.sleep(0)


@emitted(leave_processor)
def _leave_processor(typing_context):
    def generate(context, builder, signature, values):
        # Resolved when the code is loaded, as all of the C library is.
        if os.name == "posix":
            function = ir.FunctionType(ir.IntType(32), [])
            builder.call(_declared(builder.module, function, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


def _declared(module, function, name):
    found = module.globals.get(name)
    return found if found is not None else ir.Function(module, function, name)
