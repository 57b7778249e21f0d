"""The interface to Numba: compiled kernels, calls by address, methods of unit priors.

A `kernel` is compiled for the types of its arguments. These types do not depend on unit priors: a
kernel calls a prior's functions by their addresses, which it reads from an array (`address_of`,
`call`). So a solver is compiled once for each floating type, and a prior's functions, or the matrix
product, once for all solvers. `unit` and `compile_methods` compile the methods of a NamedTuple of
per-unit arrays (a unit prior), which are written once for NumPy arrays, for scalars.
"""

import inspect
from collections.abc import Callable
from functools import cache, partial, update_wrapper

import numpy as np

from fastmf._jit import library
from fastmf._jit.argument_types import numba_type
from fastmf._jit.lazily import activate, cgutils, ir, is_disabled, numba, types, with_numba


def field(context, builder, type_, array, name):
    """Return a field of an array of a Numba type; sizes and strides as a list."""
    value = context.data_model_manager[type_].get(builder, array, name)
    return value if name == "data" else cgutils.unpack_tuple(builder, value)


def pointer_to_entry(context, builder, type_, array, indices):
    """Return a pointer to an entry of an array; indices are LLVM integers and not negative."""
    parts = (field(context, builder, type_, array, name) for name in ("data", "shape", "strides"))
    return cgutils.get_item_pointer2(context, builder, *parts, type_.layout, indices)


def array_at(context, builder, type_, address, sizes):
    """Emit a C-contiguous array of a Numba type at an address; sizes are LLVM integers."""
    n_bytes = context.get_abi_sizeof(context.get_data_type(type_.dtype))
    item = cgutils.intp_t(n_bytes)
    strides, n_items = [item], sizes[0]
    for size in reversed(sizes[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    for size in sizes[1:]:
        n_items = builder.mul(n_items, size)
    model = context.data_model_manager[type_]
    array = ir.Constant(model.get_value_type(), None)
    values = {
        "data": builder.inttoptr(address, context.get_data_type(type_.dtype).as_pointer()),
        "shape": cgutils.pack_array(builder, sizes, cgutils.intp_t),
        "strides": cgutils.pack_array(builder, strides, cgutils.intp_t),
        "itemsize": item,
        "nitems": n_items,
    }
    for name, value in values.items():
        array = model.set(builder, array, value, name)
    return array


# Sums may be reordered, so that they are vectorised; NaN and infinity are treated as usual.
REORDER = {"reassoc", "contract", "nsz", "arcp"}

# Ways in which a kernel is called and compiled.
MODES = ("python", "inner", "inline", "merged", "by_address")


def kernel(function=None, *, mode="python", fastmath=False, name="", views=False):
    """Compile a kernel without Python objects or lock, with NumPy's division, cached on disk."""
    if function is None:
        options = {"mode": mode, "fastmath": fastmath, "name": name, "views": views}
        return lambda f: kernel(f, **options)
    if mode not in MODES:
        raise ValueError(f"mode must be one of {MODES}, got {mode!r}.")
    return Kernel(function, mode, fastmath, name, views)


class Kernel:
    """A function that is compiled for the types of its arguments, or was built ahead for them.

    Numba is imported, and its dispatcher made, only when something is compiled. Parameters as for
    `kernel`.
    """

    def __init__(self, function, mode, fastmath, name, views):
        update_wrapper(self, function)
        self.py_func, self.mode, self.name = function, mode, name
        self._options = fastmath, views
        self._entries = {}

    def __call__(self, *arguments):
        if library.ACTIVE is not None:
            leaves, kinds = [], []
            library.flatten(arguments, leaves, kinds)
            kinds = tuple(kinds)
            if kinds not in self._entries:
                self._entries[kinds] = library.ACTIVE.entry(self, arguments)
            if self._entries[kinds] is not None:
                return self._entries[kinds](leaves)
        return self.dispatcher(*arguments)

    def __getattr__(self, attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if attribute == "dispatcher":
            # If two threads make a dispatcher, both use the first.
            return self.__dict__.setdefault("dispatcher", self._compile())
        return getattr(self.dispatcher, attribute)

    def _compile(self):
        from fastmf._jit import cache, messages  # noqa: F401  messages are registered

        activate()

        fastmath, views = self._options
        within = self.mode in ("inner", "inline", "merged")
        dispatcher = numba.njit(
            self.py_func,
            nogil=True,
            error_model="numpy",
            fastmath=fastmath,
            no_cpython_wrapper=within or self.mode == "by_address",
            no_cfunc_wrapper=self.mode != "by_address",
            forceinline=self.mode == "inline",
            inline="always" if self.mode == "merged" else "never",
            _nrt=not (within or views),
        )
        cached = self.name is not None and self.mode != "merged" and not is_disabled()
        if cached and cache.folder() is not None:
            dispatcher._cache = cache.Cache(dispatcher, self.name)
        return dispatcher


def _see_kernels():
    from numba.extending import typeof_impl

    @typeof_impl.register(Kernel)
    def typeof(value, context):
        return types.Dispatcher(value.dispatcher)


with_numba(_see_kernels)


def emitted(function):
    """Decorator: let a code generator replace a Python function inside kernels, as an intrinsic.

    An `overload` would be compiled as a separate function, with all functions that it calls, even
    if it is always inlined.
    """

    def decorate(define):
        def register():
            from numba.core.typing.templates import infer_global, make_intrinsic_template

            template = make_intrinsic_template(function, define, function.__name__)
            infer_global(function, types.Function(template))

        with_numba(register)
        return define

    return decorate


def compiled_from(function, **kind):
    """Decorator: choose, by the types of the arguments, what kernels compile for a function.

    Numba's `overload` would compile the function once for each set of options of its callers, in
    each process.
    """

    def register(choose):
        kernels = {}

        def define(typing_context, *arguments):
            given = tuple(map(types.unliteral, arguments))
            if given not in kernels:
                text = choose(*given)
                kernels[given] = text and kernel(text, **(kind or {"mode": "inner"}))
            if kernels[given] is None:
                return None
            callee = types.Dispatcher(kernels[given].dispatcher)
            signature = callee.get_call_type(typing_context, given, {})

            def generate(context, builder, signature, values):
                return context.get_function(callee, signature)(builder, values)

            return signature, generate

        _emitted_with_names(function, define)
        return choose

    return register


def compilable(function=None, **kind):
    """Decorator: let kernels compile the function itself; options as for `compiled_from`."""
    if function is None:
        return lambda f: compilable(f, **kind)
    compiled_from(function, **kind)(lambda *arguments: function)
    return function


def _emitted_with_names(function, define):
    """Register a code generator; Numba reads the names of its arguments from the function."""
    context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    arguments = inspect.signature(function).parameters.values()
    define.__signature__ = inspect.Signature([context, *arguments])
    return emitted(function)(define)


# --- calls by address -----------------------------------------------------------------------------

# Without compilation: Python functions by the numbers that replace their addresses.
_FUNCTIONS: dict[int, Callable] = {}


@cache
def address_of(function, *arguments):
    """Return the address of a kernel(mode="by_address"), compiled for arguments of these types.

    Addresses are cached, as llvmlite looks them up under a lock, for which a fork waits.
    """
    if is_disabled():
        _FUNCTIONS[id(function)] = function
        return id(function)
    built = library.ACTIVE and library.ACTIVE.address(function, arguments)
    if built:
        return built
    arguments = tuple(map(numba_type, arguments))
    function.compile(types.void(*arguments))
    compiled = function.overloads[arguments]
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)


def call(address, arguments):
    """Call the function at an address, which has no result, with a tuple of arguments."""
    _FUNCTIONS[int(address)](*arguments)


def _canonical(given):
    """Return the type as which an argument is passed to a function called by its address."""
    if isinstance(given, types.Array):
        wanted = given.copy(layout="C" if given.ndim == 1 else "A", readonly=False)
        if wanted.layout == "C" != given.layout:
            raise TypeError("a function that is called by its address takes contiguous arrays")
        return wanted
    return types.int64 if isinstance(given, types.Integer) else given


def _emit_call(context, builder, address, given, values):
    """Emit a call by address, with values of the given Numba types."""
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
    """Decorator: in kernels, call the function at the address in the first argument instead."""

    def decorate(function):
        def by_address(typing_context, table, *others):
            given = others if parameters is None else (types.int64, *others)

            def generate(context, builder, signature, values):
                address, *passed = values
                if entry is not None:
                    data = field(context, builder, table, address, "data")
                    places = (entry, parameters)[: 1 + len(given) - len(others)]
                    places = [context.get_constant(types.intp, place) for place in places]
                    address, *more = (builder.load(builder.gep(data, [k])) for k in places)
                    passed = more + passed
                return _emit_call(context, builder, address, given, passed)

            return types.void(table, *map(types.unliteral, others)), generate

        _emitted_with_names(function, by_address)
        return function

    return decorate


# --- unit priors inside kernels -----------------------------------------------------------------


def unit(prior, i):
    """Return one unit of a prior: the NamedTuple with the i-th entry of every array field."""
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
                pointer = pointer_to_entry(context, builder, type_, value, [arguments[1]])
                value = context.unpack_value(builder, type_.dtype, pointer)
            values.append(value)
        return context.make_tuple(builder, signature.return_type, values)

    return result(prior, types.intp), generate


def compile_methods(*names, of="tilt"):
    """Let kernels call these methods of NamedTuples, compiled from their Python source."""

    def hook(name):
        from numba.extending import overload_method

        def of_tilt(self, b, a):
            return inspect.unwrap(getattr(self.instance_class, name, None))

        def of_mean(self, mean):
            return inspect.unwrap(getattr(self.instance_class, name, None))

        def of_number(self, b, a, u):
            return inspect.unwrap(getattr(self.instance_class, name, None))

        hooks = {"tilt": of_tilt, "mean": of_mean, "tilt and number": of_number}
        # Methods are inlined whatever their length, so that loops over units are vectorised.
        # Division is as in NumPy; a wrapper for calls from C would only take time to compile.
        options = {"error_model": "numpy", "no_cfunc_wrapper": True, "forceinline": True}
        overload_method(types.BaseNamedTuple, name, jit_options=options)(hooks[of])

    for name in names:
        with_numba(partial(hook, name))
