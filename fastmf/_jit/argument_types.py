"""Types of the arguments of kernels, without Numba, and types from annotations of NamedTuples.

A type is the name of a number's type, an `ArrayType` or a `TupleType`. Fields of NamedTuples are
annotated with their types:

    class Rows(NamedTuple):
        state: Real[3]       array with three axes, of the floating type that the kernel is for
        status: Int64[1]     array with one axis, of a fixed type
        tol: float           number
        span: tuple[int, int]
        tilt: Tilt           another such class

`argument_types` converts annotations to types, for which a kernel that is called by its address is
compiled before there are arguments.
"""

from typing import Any, NamedTuple, get_args

import numpy as np

from fastmf._jit.lazily import types

# Names of the Numba types of Python's types of numbers.
_NUMBERS = {int: "int64", float: "float64", bool: "bool"}
# Flags of an array that its type depends on: contiguous (C, Fortran), aligned.
TYPE_FLAGS = 0x1 | 0x2 | 0x100


class ArrayType(NamedTuple):
    """Arrays of native numbers in a layout: "C", "F" or "A"."""

    item: str
    n_axes: int
    layout: str

    def __str__(self):
        return f"{self.item}[{self.n_axes}{self.layout}]"

    def numba(self):
        """The type of Numba."""
        return types.Array(numba_type(self.item), self.n_axes, self.layout)


class TupleType(NamedTuple):
    """Tuples, plain or of a NamedTuple class."""

    members: tuple
    class_: type | None

    def __str__(self):
        name = self.class_ and f"{self.class_.__module__}.{self.class_.__qualname__}"
        return f"{name or ''}({','.join(map(str, self.members))})"

    def numba(self):
        """The type of Numba."""
        members = [numba_type(member) for member in self.members]
        return types.BaseTuple.from_types(members, *filter(None, [self.class_]))


def numba_type(type_):
    """Return the Numba type of a type."""
    if not isinstance(type_, str):
        return type_.numba()
    return types.boolean if type_ == "bool" else getattr(types, type_)


def type_of(value):
    """Return the type of numbers, arrays of numbers or tuples of them; None for other arguments.

    The type does not depend on whether an array is writeable.
    """
    if isinstance(value, np.ndarray):
        flags, item = value.flags, value.dtype
        if item.kind not in "biuf" or not item.isnative or not flags.aligned:
            return None
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return ArrayType(item.name, value.ndim, layout)
    if isinstance(value, tuple):
        members = tuple(map(type_of, value))
        class_ = None if type(value) is tuple else type(value)
        return None if None in members else TupleType(members, class_)
    if isinstance(value, np.generic):
        return value.dtype.name if value.dtype.kind in "biuf" else None
    return _NUMBERS.get(type(value))


# --- annotations ----------------------------------------------------------------------------------


class _Arrays:
    """Annotation `Arrays[n_axes]`, of the kernel's floating type if `dtype` is None."""

    def __init__(self, dtype=None, n_axes=0, layout="C"):
        self.dtype, self.n_axes, self.layout = dtype, n_axes, layout

    def __getitem__(self, n_axes):
        return _Arrays(self.dtype, n_axes, self.layout)


Real: Any = _Arrays()
Strided: Any = _Arrays(layout="A")
Float64: Any = _Arrays(np.float64)
Int64: Any = _Arrays(np.int64)
Int32: Any = _Arrays(np.int32)
Int8: Any = _Arrays(np.int8)
Bool: Any = _Arrays(np.bool_)


def argument_types(dtype, *arguments):
    """Return the types of annotated arguments, for a floating type."""
    return tuple(_type(argument, np.dtype(dtype)) for argument in arguments)


def _type(argument, dtype):
    if isinstance(argument, _Arrays):
        item = np.dtype(argument.dtype or dtype).name
        return ArrayType(item, argument.n_axes, argument.layout)
    members = argument if isinstance(argument, tuple) else get_args(argument)
    if members:
        return TupleType(tuple(_type(item, dtype) for item in members), None)
    if argument in _NUMBERS:
        return _NUMBERS[argument]
    members = argument.__annotations__.values()
    return TupleType(tuple(_type(item, dtype) for item in members), argument)
