"""Types of the arguments of kernels, read off the NamedTuples that hold them.

A field of such a class is annotated with what it holds:

    class Rows(NamedTuple):
        state: Real[3]       array with three axes, of the floating type that the kernel is for
        status: Int64[1]     array with one axis, of a type of its own
        tol: float           number
        span: tuple[int, int]
        tilt: Tilt           another such class
        memory: Workers[Row] that class, its arrays with an axis more, for all workers

`argument_types` makes Numba types of these, for which a kernel that others call by its address is
compiled before there are arguments; `placeholder` makes an instance of no size.
"""

from typing import Any, get_args

import numba
import numpy as np
from numba.core import types

_SCALAR_TYPES = {int: types.int64, float: types.float64, bool: types.boolean}


class _Arrays:
    """Arrays of one type, `Arrays[n_axes]`; of the kernel's floating type if `dtype` is None."""

    def __init__(self, dtype=None, n_axes=0):
        self.dtype, self.n_axes = dtype, n_axes

    def __getitem__(self, n_axes):
        return _Arrays(self.dtype, n_axes)


class _Workers:
    """A NamedTuple of arrays, each with a first axis of workers: `Workers[Class]`."""

    def __init__(self, class_=None):
        self.class_ = class_

    def __getitem__(self, class_):
        return _Workers(class_)


Real: Any = _Arrays()
Float64: Any = _Arrays(np.float64)
Int64: Any = _Arrays(np.int64)
Int32: Any = _Arrays(np.int32)
UInt64: Any = _Arrays(np.uint64)
Int8: Any = _Arrays(np.int8)
Bool: Any = _Arrays(np.bool_)
Workers: Any = _Workers()


def argument_types(dtype, *arguments):
    """Numba types of arguments, for a floating type.

    Parameters
    ----------
    dtype : NumPy dtype
    *arguments : annotations as above, classes of numbers, or tuples of these

    Returns
    -------
    tuple of Numba types
        Arrays are C-contiguous.
    """
    return tuple(_type(argument, np.dtype(dtype)) for argument in arguments)


def _type(argument, dtype, n_more=0):
    if isinstance(argument, _Arrays):
        item = numba.from_dtype(np.dtype(argument.dtype or dtype))
        return types.Array(item, argument.n_axes + n_more, "C")
    if isinstance(argument, _Workers):
        return _type(argument.class_, dtype, 1)
    members = argument if isinstance(argument, tuple) else get_args(argument)
    if members:
        return types.BaseTuple.from_types([_type(item, dtype, n_more) for item in members])
    if argument in _SCALAR_TYPES:
        return _SCALAR_TYPES[argument]
    members = [_type(item, dtype, n_more) for item in argument.__annotations__.values()]
    return types.BaseTuple.from_types(members, argument)


def placeholder(dtype, argument, n_workers=1, shape=()):
    """An argument of such a type: arrays of no size, numbers 0.

    Parameters
    ----------
    dtype : NumPy dtype
    argument : annotation
    n_workers : int
        Length of the first axis of arrays of `Workers`.
    shape : tuple
        First axes of all arrays.
    """
    if isinstance(argument, _Arrays):
        return np.zeros(shape + (0,) * argument.n_axes, argument.dtype or dtype)
    if isinstance(argument, _Workers):
        return placeholder(dtype, argument.class_, n_workers, (n_workers,))
    if argument in _SCALAR_TYPES:
        return argument(0)
    members = argument if isinstance(argument, tuple) else get_args(argument)
    given = members or argument.__annotations__.values()
    found = (placeholder(dtype, item, n_workers, shape) for item in given)
    return tuple(found) if members else argument(*found)
