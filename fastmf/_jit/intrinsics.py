"""Functions that kernels call and that are emitted as LLVM instructions.

Each function, such as an array at an address, a row of an array without the checks of a slice, or
the smaller of two numbers, becomes a few instructions in its caller. A Python function would be
compiled, and its types inferred, wherever it is called. Without compilation the Python bodies run.
"""

import ctypes

import numpy as np

from fastmf._jit.kernel import array_at, emitted, field, pointer_to_entry
from fastmf._jit.lazily import cgutils, ir, types

# --- arrays ---------------------------------------------------------------------------------------


def view(address, shape, like):
    """Return the C-contiguous array at an address, of the type of the array `like`."""
    if 0 in shape:  # there may be nothing at the address
        return np.empty(shape, like.dtype)
    kind = np.ctypeslib.as_ctypes_type(like.dtype)
    pointer = ctypes.cast(int(address), ctypes.POINTER(kind))
    return np.ctypeslib.as_array(pointer, shape)


@emitted(view)
def _view(typing_context, address, shape, like):
    result = types.Array(like.dtype, len(shape), "C")

    def generate(context, builder, signature, values):
        sizes = cgutils.unpack_tuple(builder, values[1])
        return array_at(context, builder, result, values[0], sizes)

    return result(types.int64, types.UniTuple(types.intp, len(shape)), like), generate


def row(array, start, n):
    """Return `n` consecutive entries in memory of a C-contiguous array, from `start` on.

    There are no checks as of a slice, which take longer to compile than the loops that follow.
    """
    first = 0
    for index, size in zip(start, array.shape, strict=True):
        first = first * size + index
    return array.reshape(-1)[first : first + n]


@emitted(row)
def _row(typing_context, array, start, n):
    if array.layout != "C" or len(start) != array.ndim:
        raise TypeError("row takes a C-contiguous array and an index for each of its axes")
    result = types.Array(array.dtype, 1, "C")

    def generate(context, builder, signature, values):
        indices = cgutils.unpack_tuple(builder, values[1])
        pointer = pointer_to_entry(context, builder, array, values[0], indices)
        address = builder.ptrtoint(pointer, cgutils.intp_t)
        return array_at(context, builder, result, address, [values[2]])

    return result(array, types.UniTuple(types.intp, array.ndim), types.intp), generate


# --- numbers --------------------------------------------------------------------------------------


def _of_two(function, predicate):
    @emitted(function)
    def of_two(typing_context, x, y):
        common = typing_context.unify_types(types.unliteral(x), types.unliteral(y))

        def generate(context, builder, signature, values):
            x, y = values
            compare = (
                builder.fcmp_ordered if isinstance(common, types.Float) else builder.icmp_signed
            )
            return builder.select(compare(predicate, x, y), x, y)

        return common(common, common), generate


def smaller(x, y):
    """Return the smaller of two numbers; the second if one is NaN."""
    return x if x < y else y


def larger(x, y):
    """Return the larger of two numbers; the second if one is NaN."""
    return x if x > y else y


_of_two(smaller, "<")
_of_two(larger, ">")


def fma(x, y, z):
    """Return x * y + z, rounded once inside kernels."""
    return x * y + z


@emitted(fma)
def _fma(typing_context, x, y, z):
    if not isinstance(x, types.Float):
        return None

    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return x(x, x, x), generate


def float_to_bits(x):
    """Return the bits of a float as a signed integer of the same width."""
    return x.view(f"i{x.itemsize}")


def bits_to_float(i):
    """Return the float with these bits."""
    return i.view(f"f{i.itemsize}")


def _reinterpret(function, of):
    @emitted(function)
    def reinterpret(typing_context, value):
        if not isinstance(value, of()):
            return None
        kind = "int" if isinstance(value, types.Float) else "float"

        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

        return getattr(types, f"{kind}{value.bitwidth}")(value), generate


_reinterpret(float_to_bits, lambda: types.Float)
_reinterpret(bits_to_float, lambda: types.Integer)


def fetch_and_increment(counter):
    """Take the next number from a one-element int64 array shared by all threads."""
    value = counter[0]
    counter[0] += 1
    return value


@emitted(fetch_and_increment)
def _fetch_and_increment(typing_context, counter):
    def generate(context, builder, signature, arguments):
        data = field(context, builder, counter, arguments[0], "data")
        return builder.atomic_rmw("add", data, ir.Constant(ir.IntType(64), 1), "acq_rel")

    return types.int64(counter), generate


def widest_vectors():
    """Let the calling function use the machine's widest vectors, for its polynomials.

    By default LLVM uses 256 of Intel's 512 bits, because older processors reduce their frequency
    for wider vectors.
    """


@emitted(widest_vectors)
def _widest_vectors(typing_context):
    def generate(context, builder, signature, arguments):
        # llvmlite's own `add` rejects attributes with a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate
