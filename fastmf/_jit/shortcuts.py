"""Shorter ways through Numba's analysis of functions, in use while a kernel is compiled.

They give what Numba's own functions give, so that kernels have the same machine code, and a first
call of `tap` takes 0.84 of the CPU time. A Numba without one of these functions goes its own way.
"""

import sys
from contextlib import ExitStack, contextmanager

from numba.core import ssa, transforms
from numba.core.base import BaseContext
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.types.functions import BaseFunction


@contextmanager
def replaced(owner, name, replacement):
    """While in use, an object has `replacement` (of what it had, or None) under a name."""
    own = getattr(owner, name, None)
    function = own and replacement(own)
    if function is None:
        yield
        return
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, own)


# --- functions and types that are known -----------------------------------------------------------


def _n_known(context):
    """Numbers of modules and of functions that Numba can emit."""
    return len(sys.modules), sum(len(registry.functions) for registry in context._registries)


def _refresh_if_new(refresh):
    """Let Numba look for new functions and types only where there may be some.

    They are defined by intrinsics and by modules that are imported meanwhile. Numba looks for them
    at each array that is read, a thousand times in a first call of `tap`: 0.07 of its CPU time.
    """
    known = None

    def refresh_if_new(context):
        nonlocal known
        if known != (known := _n_known(context)):
            refresh(context)

    return refresh_if_new


_SIGNATURES: dict[tuple, object] = {}


def _known_signature(find):
    """Remember the signatures of functions that Numba emits itself, such as the sum of two numbers.

    Numba tries some six definitions of `+` before it has that of two numbers, each time that it
    infers the types of a sum, and again where it emits the sum. Definitions that are compiled may
    depend on the options of the caller, and are not remembered.
    """

    def known_signature(function, context, args, kws):
        call = function, context, tuple(args), tuple(kws.items())
        signature = _SIGNATURES.get(call)
        if signature is None:
            signature = find(function, context, args, kws)
            if signature and function._impl_keys.get(signature.args) == function.typing_key:
                _SIGNATURES[call] = signature
        return signature

    return known_signature


# --- variables ------------------------------------------------------------------------------------


def _lifetimes_on_demand(run):
    """Find where variables are alive only if generators or their deletion need it."""

    def run_on_demand(self, emit_dels=False, extend_lifetimes=False):
        if emit_dels or self.func_ir.is_generator:
            run(self, emit_dels, extend_lifetimes)
            return
        self.func_ir.blocks = transforms.canonicalize_cfg(self.func_ir.blocks)
        self.func_ir.variable_lifetime = VariableLifetime(self.func_ir.blocks)
        self.func_ir.generator_info = None

    return run_on_demand


def _rewrite_where_named(rewrite):
    """Rewrite only blocks that name the variable which is split into several."""
    names = {}

    def names_in(block):
        if id(block) not in names:
            found = {var.name for statement in block.body for var in statement.list_vars()}
            names[id(block)] = block, found  # a block that is kept has its number for itself
        return names[id(block)][1]

    def rewrite_where_named(blocks, states, handler):
        variable = states["varname"]
        named = {label: block for label, block in blocks.items() if variable in names_in(block)}
        return blocks | rewrite(named, states, handler)

    return rewrite_where_named


class _NoMessages:
    """A logger that Numba tells each statement of a function for each of its variables."""

    def debug(self, *message):
        pass


@contextmanager
def quick_splitting():
    """Shorter ways of splitting variables that are assigned several times."""
    with (
        replaced(ssa, "_run_block_rewrite", _rewrite_where_named),
        replaced(ssa, "_logger", lambda logger: _NoMessages()),
    ):
        yield


_active = False  # Numba compiles in one thread, and one kernel for the other


@contextmanager
def shortcuts():
    """Shorter ways for all that is compiled meanwhile."""
    global _active
    with ExitStack() as stack:
        if not _active:
            _active = True
            stack.callback(_deactivate)
            stack.enter_context(replaced(BaseContext, "refresh", _refresh_if_new))
            stack.enter_context(replaced(BaseFunction, "get_call_type", _known_signature))
            stack.enter_context(replaced(PostProcessor, "run", _lifetimes_on_demand))
        yield


def _deactivate():
    global _active
    _active = False
