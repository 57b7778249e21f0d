"""Functions that Numba has never compiled, as if they were kernels of this package."""

import time

import numba
from numba.core import event


def new_kernel(module="fastmf.kernels.new", **options):
    """A function that has never been compiled, as if it were of some module."""

    def double(x):
        return 2 * x

    double.__module__ = module
    return numba.njit(double, **options)


def compile_for(seconds):
    """What a thread that compiles for so long tells Numba's listeners."""
    event.start_event("numba:compiler_lock")
    time.sleep(seconds)
    event.end_event("numba:compiler_lock")
