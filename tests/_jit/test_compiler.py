"""Numba's compiler as kernels use it: what is left out makes no difference."""

from itertools import product

import numba
from llvmlite import ir
from numba.core import types
from numba.core.base import BaseContext
from numba.core.compiler import Flags
from numba.core.registry import cpu_target
from numba.extending import intrinsic, overload

from fastmf._jit.compiler import Compiler, CompilerOfEntries, CompilerOfShort, _Flags
from fastmf._jit.kernel import kernel


def test_options_are_equal_where_numbas_are():
    plain, same, other, default = Flags(), Flags(), Flags(), Flags()
    plain.nrt = same.nrt = other.nrt = True
    other.error_model = "numpy"
    default.nrt, default.boundscheck = True, Flags.options["boundscheck"].default
    for one, two in product((plain, same, other, default, Flags()), repeat=2):
        for quick in ((_Flags(one), two), (_Flags(one), _Flags(two)), (one, _Flags(two))):
            assert (quick[0] == quick[1]) == (one == two)
            assert hash(quick[0]) == hash(one)
    assert _Flags() != "flags"


def test_what_is_defined_between_two_compilations_is_found():
    refresh = BaseContext.refresh

    @kernel(name=None)
    def doubled(x):
        return 2 * x

    assert doubled(1.5) == 3.0

    @intrinsic
    def seven(typing_context):
        return types.int64(), lambda *_: ir.Constant(ir.IntType(64), 7)

    def stand_in(x):
        raise NotImplementedError

    @overload(stand_in)
    def _(x):
        return lambda x: x + seven()

    @kernel(name=None)
    def through_both(x):
        return stand_in(x) * seven()

    assert through_both(1.0) == 56.0
    assert BaseContext.refresh is refresh


def test_what_a_kernel_cannot_be_compiled_for_leaves_numba_as_it_was():
    refresh = BaseContext.refresh

    @kernel(name=None)
    def wrong(x):
        return x.nothing

    for _ in range(2):
        try:
            wrong(1.0)
        except numba.TypingError as error:
            assert "nothing" in str(error)
        assert BaseContext.refresh is refresh


def test_sizes_are_those_of_the_context():
    context = cpu_target.target_context
    arrays = [types.Array(types.float32, n, "C") for n in (1, 2)]
    of_arrays = types.Tuple([*arrays, types.boolean])
    for compiler in (Compiler, CompilerOfEntries, CompilerOfShort):
        found = {}

        class Recording(compiler):
            def define_pipelines(self, found=found):
                size_of = self.state.targetctx.get_abi_sizeof
                for type_ in (types.float64, types.boolean, *arrays, of_arrays):
                    found[type_] = size_of(context.get_value_type(type_))
                return super().define_pipelines()

        numba.njit(lambda x: x, pipeline_class=Recording)(1)
        assert len(found) == 5
        for type_, size in found.items():
            assert size == context.get_abi_sizeof(context.get_value_type(type_))
