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


def compile_for(seconds, kernel=None, inside=lambda: None):
    """Tell Numba's listeners of a kernel that compiles for a time, then of one that it calls."""
    data = {"dispatcher": kernel or new_kernel(), "args": ()}
    with event.trigger_event("numba:compile", data=data):
        inside()
        time.sleep(seconds)
        with event.trigger_event("numba:compile", data=data):
            pass
