"""Arrays that are aligned to cache lines, and checks of the available memory."""

import math
import os

import numpy as np

LINE_BYTES = 64


def memory_of_the_machine():
    """Return the bytes of physical memory; infinity if it is unknown, as on Windows.

    Windows itself refuses excessive memory at allocation, not when it is first used.
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return np.inf


def check_available(n_bytes, what, advice):
    """Raise a MemoryError if `n_bytes` exceed the memory of the machine."""
    available = memory_of_the_machine()
    if n_bytes > available:
        raise MemoryError(
            f"{what} needs {n_bytes / 2**30:.3g} GiB, and the machine has "
            f"{available / 2**30:.3g}: {advice}."
        )


def aligned(shape, dtype, allocate=np.empty):
    """Allocate an array that begins at a cache line, empty or as `allocate` makes it.

    A vector that crosses two lines takes twice as long to load or store.
    """
    n_bytes = math.prod(map(int, shape)) * np.dtype(dtype).itemsize
    memory = allocate(n_bytes + LINE_BYTES, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % LINE_BYTES)
