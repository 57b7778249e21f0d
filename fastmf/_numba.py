"""The interface to Numba: compiled kernels, calls by address, intrinsics.

A `kernel` is compiled for the types of its arguments. What differs from one unit prior to another
is not part of these types: a kernel calls a prior's functions by their addresses, which it finds in
an array (`address_of`, `call`). So a solver is compiled once for each floating type, and a prior's
functions, or the matrix product, once for all solvers. `unit` and `compile_methods` compile the
methods of a NamedTuple of per-unit arrays (a unit prior), written once for NumPy arrays, for
scalars.
"""

import ctypes
import inspect
from collections.abc import Callable
from functools import cache

import numba
import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  Numba would import it in the middle of the first call
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import infer_global, make_intrinsic_template
from numba.extending import intrinsic, overload_method
from numba.np.arrayobj import populate_array

from fastmf import _cache
from fastmf import _compilation as _compilation  # tells users when something is compiled

# Sums may be reordered, which lets them vectorise; NaN and infinity keep their meaning.
REORDER = {"reassoc", "contract", "nsz", "arcp"}
# Options of functions that only kernels call: division as in NumPy, and no wrapper for calls from
# C, which would take time to compile.
INNER = {"error_model": "numpy", "no_cfunc_wrapper": True}


def kernel(function=None, *, fastmath=False, name="", **kind):
    """Compile a kernel: no Python objects or lock, division as in NumPy, cached on disk.

    Parameters
    ----------
    fastmath : False or set of str
        `REORDER`, for functions whose result may differ in the last bits between builds.
    name : str or None
        Tells it from other functions of the same name in the cache; None to keep it out of it.
    inner : bool
        Whether only other kernels call it. There is no wrapper for calls from Python.
    inline : bool
        Whether it is also inlined into its callers, which pays for short loops.
    merged : bool
        Whether its text is made part of its callers' before they are compiled, so that nothing of
        it is compiled or optimised twice; its own `fastmath` does not count then. For what one
        kernel calls in one place.
    by_address, from_kernels : bool
        Whether kernels call it by its address (see `call`), and nobody or Python too.
    views : bool
        Whether it makes views of arrays, but no arrays, so that references to them need not be
        counted. Inner, inline and merged kernels never make arrays.
    """
    if function is None:
        return lambda f: kernel(f, fastmath=fastmath, name=name, **kind)
    unknown = set(kind) - {"inner", "inline", "merged", "by_address", "from_kernels", "views"}
    if unknown:
        raise TypeError(f"kernel has no options {sorted(unknown)}.")
    kind = {key for key, value in kind.items() if value}
    within = bool(kind & {"inner", "inline", "merged"})
    dispatcher = numba.njit(
        function,
        nogil=True,
        error_model="numpy",
        fastmath=fastmath,
        no_cpython_wrapper=within or "by_address" in kind,
        no_cfunc_wrapper=not kind & {"by_address", "from_kernels"},
        forceinline="inline" in kind,
        inline="always" if "merged" in kind else "never",
        _nrt=not (within or "views" in kind),
    )
    cached = name is not None and "merged" not in kind and _cache.FOLDER is not None
    if cached and not numba.config.DISABLE_JIT:
        dispatcher._cache = _cache.Cache(dispatcher, name)
    return dispatcher


def emitted(function):
    """Decorator: code generator that replaces a Python function inside kernels, as an intrinsic.

    An `overload` would be compiled as a separate function, with all that it calls, even if it is
    always inlined.
    """

    def register(define):
        template = make_intrinsic_template(function, define, function.__name__)
        infer_global(function, types.Function(template))
        return define

    return register


# --- calls by address -----------------------------------------------------------------------------

# Python functions by the numbers that stand for their addresses where nothing is compiled.
_FUNCTIONS: dict[int, Callable] = {}


@cache
def address_of(function, *arguments):
    """Address of a function of kernel(by_address=True), compiled for arguments of such types.

    Found once: llvmlite has a lock for it, and a child that is forked meanwhile waits for ever.

    Parameters
    ----------
    function : kernel
    *arguments : Numba types
        Integers int64; arrays C-contiguous if they have one dimension, of any layout otherwise.
    """
    if numba.config.DISABLE_JIT:
        _FUNCTIONS[id(function)] = function
        return id(function)
    function.compile(types.void(*arguments))
    compiled = function.overloads[arguments]
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)


def call(address, arguments):
    """Call the function at an address, which returns nothing, with a tuple of arguments."""
    _FUNCTIONS[int(address)](*arguments)


def _canonical(given):
    """The type as which an argument is passed to a function that is called by its address."""
    if isinstance(given, types.Array):
        wanted = given.copy(layout="C" if given.ndim == 1 else "A", readonly=False)
        if wanted.layout == "C" != given.layout:
            raise TypeError("a function that is called by its address takes contiguous arrays")
        return wanted
    return types.int64 if isinstance(given, types.Integer) else given


def _emit_call(context, builder, address, given, values):
    """Emit a call with values of the given Numba types."""
    passed = [_canonical(type_) for type_ in given]
    values = [context.cast(builder, *item) for item in zip(values, given, passed, strict=True)]
    function = ir.FunctionType(
        context.get_value_type(types.none), [context.get_value_type(type_) for type_ in passed]
    )
    builder.call(builder.inttoptr(address, function.as_pointer()), values)
    return context.get_dummy_value()


@emitted(call)
def _call(typing_context, address, arguments):
    def generate(context, builder, signature, values):
        items = cgutils.unpack_tuple(builder, values[1])
        return _emit_call(context, builder, values[0], arguments.types, items)

    return types.void(types.int64, arguments), generate


def calls(entry=None, parameters=None):
    """Decorator: in kernels, call the function at an address, with the same arguments.

    Parameters
    ----------
    entry : int, optional
        The first argument is an array with the address there; by default it is the address. It is
        not passed on.
    parameters : int, optional
        Of the array, the entry that is passed on in its place.
    """

    def decorate(function):
        def by_address(typing_context, table, *others):
            given = others if parameters is None else (types.int64, *others)

            def generate(context, builder, signature, values):
                address, *passed = values
                if entry is not None:
                    data = context.make_array(table)(context, builder, address).data
                    places = (entry, parameters)[: 1 + len(given) - len(others)]
                    places = [context.get_constant(types.intp, place) for place in places]
                    address, *more = (builder.load(builder.gep(data, [k])) for k in places)
                    passed = more + passed
                return _emit_call(context, builder, address, given, passed)

            return types.void(table, *map(types.unliteral, others)), generate

        # Numba reads the names of the arguments.
        context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        arguments = inspect.signature(function).parameters.values()
        by_address.__signature__ = inspect.Signature([context, *arguments])
        emitted(function)(by_address)
        return function

    return decorate


def view(address, shape, like):
    """The C-contiguous array at an address, of the type of the array `like`."""
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


def array_at(context, builder, type_, address, sizes):
    """Emit a C-contiguous array of a Numba type at an address, of sizes that are LLVM integers."""
    array = context.make_array(type_)(context, builder)
    n_bytes = context.get_abi_sizeof(context.get_data_type(type_.dtype))
    item = context.get_constant(types.intp, n_bytes)
    strides = [item]
    for size in reversed(sizes[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    pointer = context.get_data_type(type_.dtype).as_pointer()
    populate_array(
        array,
        data=builder.inttoptr(address, pointer),
        shape=sizes,
        strides=strides,
        itemsize=item,
        meminfo=None,
    )
    return array._getvalue()


def row(array, start, n):
    """The `n` entries of a C-contiguous array, in the order of memory, from the indices `start` on.

    Without the checks of a slice, which take longer to compile than the loops that follow.
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
        pointer = _entry(context, builder, array, values[0], indices)
        address = builder.ptrtoint(pointer, cgutils.intp_t)
        return array_at(context, builder, result, address, [values[2]])

    return result(array, types.UniTuple(types.intp, array.ndim), types.intp), generate


def copy_row(old, source, new, target, n_planes):
    """Copy the first planes of one row of a state to a row of another, of the same type and width.

    Parameters
    ----------
    old, new : C-contiguous arrays of shape (planes, rows, units)
    source, target : int
        The rows.
    n_planes : int
    """
    new[:n_planes, target] = old[:n_planes, source]


@emitted(copy_row)
def _copy_row(typing_context, old, source, new, target, n_planes):
    def generate(context, builder, signature, values):
        n_units = context.make_array(old)(context, builder, values[0]).shape
        n_units = builder.extract_value(n_units, 2)
        size = context.get_abi_sizeof(context.get_data_type(old.dtype))
        with cgutils.for_range(builder, values[4]) as loop:
            zero = context.get_constant(types.intp, 0)
            entries = [
                _entry(context, builder, old, array, [loop.index, row_, zero])
                for array, row_ in ((values[2], values[3]), (values[0], values[1]))
            ]
            cgutils.raw_memcpy(builder, *entries, n_units, size)
        return context.get_dummy_value()

    if old != new or old.layout != "C":
        raise TypeError("copy_row takes two C-contiguous arrays of one type")
    integer = types.intp
    return types.void(old, integer, new, integer, integer), generate


def _entry(context, builder, type_, array, indices):
    """Emit a pointer to an entry of a C-contiguous array."""
    whole = context.make_array(type_)(context, builder, array)
    position = context.get_constant(types.intp, 0)
    sizes = cgutils.unpack_tuple(builder, whole.shape)
    for index, size in zip(indices, sizes, strict=True):
        position = builder.add(builder.mul(position, size), index)
    return builder.gep(whole.data, [position])


def scatter(numbers, array, start, step):
    """Write a tuple of numbers to entries start, start + step, ... of a one-dimensional array."""
    array[start : start + step * len(numbers) : step] = numbers


@emitted(scatter)
def _scatter(typing_context, numbers, array, start, step):
    def generate(context, builder, signature, values):
        position = values[2]
        for number in cgutils.unpack_tuple(builder, values[0]):
            builder.store(number, _entry(context, builder, array, values[1], [position]))
            position = builder.add(position, values[3])
        return context.get_dummy_value()

    if any(number != array.dtype for number in numbers):
        raise TypeError("scatter takes numbers of the type of the array")
    return types.void(numbers, array, types.intp, types.intp), generate


def gathered(class_, array, start, step):
    """A NamedTuple of the entries start, start + step, ... of a one-dimensional array."""
    return class_(*array[start : start + step * len(class_.__annotations__) : step])


@emitted(gathered)
def _gathered(typing_context, class_, array, start, step):
    class_ = class_.instance_class
    result = types.NamedTuple([array.dtype] * len(class_.__annotations__), class_)

    def generate(context, builder, signature, values):
        numbers, position = [], values[2]
        for _ in class_.__annotations__:
            numbers.append(builder.load(_entry(context, builder, array, values[1], [position])))
            position = builder.add(position, values[3])
        return context.make_tuple(builder, result, numbers)

    return result(types.NamedTupleClass(class_), array, types.intp, types.intp), generate


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
    """The smaller of two numbers; the second if they cannot be compared."""
    return x if x < y else y


def larger(x, y):
    """The larger of two numbers; the second if they cannot be compared."""
    return x if x > y else y


_of_two(smaller, "<")
_of_two(larger, ">")


# --- unit priors inside kernels -----------------------------------------------------------------


def unit(prior, i):
    """One unit of a prior: the same NamedTuple, with the i-th entry of every array field."""
    return prior._make(f[i] if isinstance(f, np.ndarray) else f for f in prior)


@emitted(unit)
def _unit(typing_context, prior, i):
    if not isinstance(prior, types.BaseNamedTuple):
        return None
    scalars = [t.dtype if isinstance(t, types.Array) else t for t in prior.types]
    result = types.BaseTuple.from_types(scalars, prior.instance_class)

    def generate(context, builder, signature, arguments):
        values = []
        for position, type_ in enumerate(prior.types):
            value = builder.extract_value(arguments[0], position)
            if isinstance(type_, types.Array):
                array = context.make_array(type_)(context, builder, value)
                pointer = cgutils.get_item_pointer(
                    context, builder, type_, array, [arguments[1]], wraparound=False
                )
                value = context.unpack_value(builder, type_.dtype, pointer)
            values.append(value)
        return context.make_tuple(builder, signature.return_type, values)

    return result(prior, types.intp), generate


def compile_methods(*names, tilted=True):
    """Let kernels call these methods of NamedTuples, compiled from their Python source.

    Parameters
    ----------
    names : str
    tilted : bool
        Whether the methods take a tilt `(self, b, a)` or a mean `(self, mean)`.
    """

    def hook(name):
        def of_tilt(self, b, a):
            return inspect.unwrap(getattr(self.instance_class, name, None))

        def of_mean(self, mean):
            return inspect.unwrap(getattr(self.instance_class, name, None))

        overload_method(types.BaseNamedTuple, name, jit_options=INNER)(
            of_tilt if tilted else of_mean
        )

    for name in names:
        hook(name)


# --- intrinsics -----------------------------------------------------------------------------------

_INTEGER = {types.float64: types.int64, types.float32: types.int32}
_FLOAT = {integer: float_ for float_, integer in _INTEGER.items()}


@intrinsic
def fma(typing_context, x, y, z):
    """x * y + z, rounded once."""
    if not isinstance(x, types.Float):
        return None

    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return x(x, x, x), generate


def _reinterpret(typing_context, value, mapping):
    if value not in mapping:
        return None

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return mapping[value](value), generate


@intrinsic
def float_to_bits(typing_context, x):
    """The bits of a float as a signed integer of the same width."""
    return _reinterpret(typing_context, x, _INTEGER)


@intrinsic
def bits_to_float(typing_context, i):
    """The float with these bits."""
    return _reinterpret(typing_context, i, _FLOAT)


def fetch_and_increment(counter):
    """Take the next number from a one-element int64 array shared by all threads."""
    value = counter[0]
    counter[0] += 1
    return value


@emitted(fetch_and_increment)
def _fetch_and_increment(typing_context, counter):
    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        one = ir.Constant(ir.IntType(64), 1)
        return builder.atomic_rmw("add", array.data, one, "acq_rel")

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
