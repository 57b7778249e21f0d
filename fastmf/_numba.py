"""The interface to Numba: compilation and its cache, unit priors inside kernels, intrinsics.

`kernel` compiles a function and caches it in a folder named after a fingerprint of the package's
sources: later processes load the compiled code, and an edit of a source invalidates it. `unit` and
`compile_methods` let kernels call the methods of a NamedTuple of per-unit arrays (a unit prior):
`unit(prior, i)` is the same NamedTuple with the i-th entry of every field, and its methods, written
once for NumPy arrays, compile for the scalars. The intrinsics at the end are a fused multiply-add
and conversions between a float and its bits, for the polynomials of `fastmf.special`.
"""

import hashlib
import inspect
import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numba
import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  Numba would import it in the middle of the first call
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.typing.templates import infer_global, make_intrinsic_template
from numba.extending import intrinsic, overload_method

# Sums may be reordered, which lets them vectorise; NaN and infinity keep their meaning.
REORDER = {"reassoc", "contract", "nsz", "arcp"}
# Options of functions that only kernels call: division as in NumPy, and no wrapper for calls from
# C, which would take time to compile.
INNER = {"error_model": "numpy", "no_cfunc_wrapper": True}


# --- compilation and its cache ------------------------------------------------------------------


def _fingerprint():
    """Hash of every source file that compiled code can depend on."""
    package = Path(__file__).parent
    # Numba empties an index written by another version: two environments with one home folder
    # would delete each other's entries at every start.
    digest = hashlib.sha256(numba.__version__.encode())
    files = [*package.glob("*.py"), *package.glob("priors/*.py"), *package.glob("kernels/*.py")]
    for file in sorted(files):
        digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _user_cache():
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fastmf"


def _temporary_cache():
    if not hasattr(os, "getuid"):  # Windows, where every user has a temporary folder of their own
        return Path(tempfile.gettempdir()) / "fastmf"
    folder = Path(tempfile.gettempdir()) / f"fastmf-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # Compiled code is loaded from the folder, so that its owner could run any code as this user.
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder


def _cache_folder():
    """Folder of code compiled from the present sources; those unused for a month are removed."""
    name = _fingerprint()
    for parent in (_user_cache, _temporary_cache):
        try:
            folder = parent() / name
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
        except (OSError, RuntimeError):  # not writable, or a user without a home
            continue
        _remove_unused(folder.parent)
        return str(folder)
    return None


def _remove_unused(parent):
    try:
        for old in parent.iterdir():
            if time.time() - old.stat().st_mtime > 30 * 86400:
                shutil.rmtree(old, ignore_errors=True)
    except OSError:  # another process has removed it
        pass


_CACHE_FOLDER = _cache_folder()
_STARTED = time.time()


def _classes(type_):
    """The NamedTuple classes inside a Numba type."""
    if isinstance(type_, types.BaseNamedTuple):
        yield type_.instance_class
    for inner in getattr(type_, "types", ()):
        yield from _classes(inner)


def _outside_classes(signature):
    """The NamedTuple classes, and their bases, of a signature that are not this package's own."""
    found = {c for argument in signature for type_ in _classes(argument) for c in type_.__mro__}
    found -= {object, tuple}
    return {c for c in found if c.__module__.partition(".")[0] != __name__.partition(".")[0]}


def _cacheable(class_):
    """Whether other processes can import the class, from the same source as this process."""
    if class_.__module__ == "__main__" or "<locals>" in class_.__qualname__:
        return False
    try:
        return Path(inspect.getfile(class_)).stat().st_mtime < _STARTED
    except (OSError, TypeError):
        return False


def _source_of_module(class_):
    return Path(inspect.getfile(class_)).read_bytes()


class _SourceAwareCache(FunctionCache):
    """Numba's cache, with separate files for users' priors, named after the priors' sources.

    Numba identifies a NamedTuple by its name only, so that an edit of its methods would not
    invalidate an entry. A class that another process cannot import (defined in a script or in a
    function) is not cached: no process would find the entry again. Neither is a class whose file
    has changed since this process started, as in a notebook: the entry would hold the old methods
    under the name of the new source. Modules that a prior's module imports are not part of the
    name.
    """

    @contextmanager
    def _own_file(self, sig):
        """Context in which entries with a class from outside the package have a separate file.

        In the common file they would make it unreadable for every process that cannot import the
        class. Numba holds a lock around all uses of the cache.
        """
        outside = sorted(_outside_classes(sig), key=lambda c: (c.__module__, c.__qualname__))
        if not outside:
            yield
            return
        digest = hashlib.sha256(b"\0".join(map(_source_of_module, outside)))
        digest.update(repr([(c.__module__, c.__qualname__) for c in outside]).encode())
        common = self._cache_file
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}-{digest.hexdigest()[:16]}",
            source_stamp=self._impl.locator.get_source_stamp(),
        )
        try:
            yield
        finally:
            self._cache_file = common

    def load_overload(self, sig, target_context):
        if all(map(_cacheable, _outside_classes(sig))):
            with self._own_file(sig):
                return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig, data):
        if all(map(_cacheable, _outside_classes(sig))):
            with self._own_file(sig):
                super().save_overload(sig, data)


def kernel(function=None, *, fastmath=False, inner=False, inline=False):
    """Compile a kernel: no Python objects or lock, division as in NumPy, cached on disk.

    Parameters
    ----------
    fastmath : False or set of str
        `REORDER`, for functions whose result may differ in the last bits between builds.
    inner : bool
        Whether only other kernels call it. There is no wrapper for calls from Python, and
        references to arrays are not counted, which would take an eighth of the time that a
        mean-field sweep spends outside its products: an inner kernel makes views of arrays, but no
        arrays.
    inline : bool
        Whether it is also inlined into its callers, which pays for short loops: a call pushes seven
        words for each array.
    """
    if function is None:
        return lambda f: kernel(f, fastmath=fastmath, inner=inner, inline=inline)
    inner = inner or inline
    dispatcher = numba.njit(
        function,
        nogil=True,
        error_model="numpy",
        fastmath=fastmath,
        no_cpython_wrapper=inner,
        no_cfunc_wrapper=True,
        _nrt=not inner,
        forceinline=inline,
    )
    if _CACHE_FOLDER is not None and not numba.config.DISABLE_JIT:
        configured = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = _CACHE_FOLDER
        try:
            dispatcher._cache = _SourceAwareCache(function)
        finally:
            numba.config.CACHE_DIR = configured
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
        return builder.atomic_rmw("add", array.data, one, "monotonic")

    return types.int64(counter), generate


def call_on(function, items, which, arguments):
    """Return `function(items[which], *arguments)`, where the items may be of different types."""
    return function(items[which], *arguments)


@emitted(call_on)
def _call_on(typing_context, function, items, which, arguments):
    calls = [function.get_call_type(typing_context, (i, *arguments), {}) for i in items]

    def generate(context, builder, signature, values):
        _, items_, which_, arguments_ = values
        given = cgutils.unpack_tuple(builder, arguments_)
        blocks = [builder.append_basic_block("item") for _ in calls]
        end = builder.append_basic_block("end")
        switch = builder.switch(which_, blocks[-1])
        results = []
        for k, (call, block) in enumerate(zip(calls, blocks, strict=True)):
            switch.add_case(ir.Constant(which_.type, k), block)
            builder.position_at_end(block)
            item = builder.extract_value(items_, k)
            value = context.get_function(function, call)(builder, [item, *given])
            results.append((value, builder.block))
            builder.branch(end)
        builder.position_at_end(end)
        result = builder.phi(results[0][0].type)
        for value, block in results:
            result.add_incoming(value, block)
        return result

    return calls[0].return_type(function, items, types.intp, arguments), generate


def not_inlined():
    """Compile the calling kernel once, as a function that all its callers call."""


@emitted(not_inlined)
def _not_inlined(typing_context):
    def generate(context, builder, signature, arguments):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


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
