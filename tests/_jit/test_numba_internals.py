"""The parts of Numba that are not documented and that this package leans on, each by its name.

A version of Numba that lacks one of them, or gives it another meaning, fails here first.
"""

import ctypes
import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.core import cgutils, event, types
from numba.core.compiler import CompileResult, DefaultPassBuilder, Flags
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.typing.templates import infer_global, make_intrinsic_template

from fastmf._jit.kernel import kernel
from fastmf._jit.passes import NOT_NEEDED

PRIVATE_OPTIONS = ("no_cpython_wrapper", "no_cfunc_wrapper", "forceinline", "_nrt")


def compiled(**options):
    """A dispatcher of a small function, and what Numba keeps of its compiled version."""

    def double(x):
        return 2.0 * x

    dispatcher = numba.njit(double, **options)
    dispatcher.compile(types.float64(types.float64))
    return dispatcher, dispatcher.overloads[(types.float64,)]


@pytest.mark.parametrize("option", PRIVATE_OPTIONS)
def test_jit_takes_the_option(option):
    _, result = compiled(**{option: option != "_nrt"})
    assert result.signature == types.float64(types.float64)


def test_passes_that_are_left_out_have_these_names():
    state = SimpleNamespace(func_ir=None, flags=Flags())
    passes = DefaultPassBuilder.define_nopython_pipeline(state).passes
    assert {pass_.name() for pass_, _ in passes} > NOT_NEEDED


def test_a_library_knows_the_address_of_the_wrapper_for_c():
    _, result = compiled()
    address = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address)(21.0) == 42.0


def test_a_compile_result_survives_pickling():
    _, result = compiled()
    payload = pickle.loads(dumps(result._reduce()))
    context = cpu_target.target_context
    rebuilt = CompileResult._rebuild(context, *payload)
    assert rebuilt.signature == result.signature
    assert result.codegen.magic_tuple() == context.codegen().magic_tuple()


def test_memory_management_is_started_apart_from_compilation():
    rtsys.initialize(cpu_target.target_context)
    assert rtsys.library is not None


def test_a_dispatcher_asks_its_cache():
    asked = []

    class Cache:
        cache_path = ""

        def load_overload(self, signature, target_context):
            asked.append(("load", signature))

        def save_overload(self, signature, result):
            asked.append(("save", type(result)))

    dispatcher = numba.njit(lambda x: x + 1)
    dispatcher._cache = Cache()
    assert dispatcher(1) == 2
    assert [what for what, _ in asked] == ["load", "save"]
    assert asked[1][1] is CompileResult


@pytest.mark.parametrize("kind", ["numba:compile", "numba:compiler_lock"])
def test_listeners_hear_of(kind):
    heard = []

    class Listener(event.Listener):
        def on_start(self, event):
            heard.append(event)

        def on_end(self, event):
            heard.append(event)

    with event.install_listener(kind, Listener()):
        dispatcher, _ = compiled()
    assert len(heard) >= 2
    if kind == "numba:compile":
        assert heard[0].data["dispatcher"] is dispatcher


def test_a_function_can_be_replaced_by_generated_code():
    def triple(x):
        return 3 * x

    def define(typing_context, x):
        def generate(context, builder, signature, values):
            return builder.fmul(values[0], context.get_constant(types.float64, 3.0))

        return types.float64(types.float64), generate

    infer_global(triple, types.Function(make_intrinsic_template(triple, define, "triple")))
    assert numba.njit(lambda x: triple(x))(2.0) == 6.0


def test_merged_functions_are_not_compiled_apart():
    part = kernel(mode="merged")(_twice)
    whole = numba.njit(lambda x: part(x))
    assert whole(2.0) == 4.0
    assert not part.signatures


def _twice(x):
    return 2.0 * x


@pytest.mark.parametrize(
    "function, names",
    [
        (cgutils.raw_memcpy, ("builder", "dst", "src", "count", "itemsize")),
        (cgutils.unpack_tuple, ("builder", "tup")),
        (cgutils.for_range, ("builder", "count")),
    ],
)
def test_helpers_take_these_arguments(function, names):
    parameters = inspect.signature(inspect.unwrap(function)).parameters
    assert list(parameters)[: len(names)] == list(names)


def test_the_type_of_a_named_tuple_tells_its_class():
    class Pair(NamedTuple):
        x: float
        y: float

    type_ = numba.typeof(Pair(1.0, 2.0))
    assert isinstance(type_, types.BaseNamedTuple)
    assert type_.instance_class is Pair and len(type_.types) == 2


def test_subclasses_of_arrays_are_arrays():
    class Table(np.ndarray):
        pass

    assert numba.typeof(np.zeros(2).view(Table)) == numba.typeof(np.zeros(2))


def test_it_is_known_whether_numba_has_started_its_threads():
    code = "import numba; from numba.np.ufunc import parallel as p; print(p._is_initialized); "
    code += "numba.set_num_threads(1); print(p._is_initialized)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.split() == ["False", "True"], found.stderr


@pytest.mark.slow
def test_the_package_compiles_with_the_passes_of_numba_alone():
    """The tests of this folder pass without `fastmf._jit.passes`."""
    command = [sys.executable, "-m", "pytest", "-q", str(Path(__file__).parent)]
    environment = {**os.environ, "FASTMF_PLAIN_NUMBA": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
