"""Arrays that begin with a cache line, and what needs more memory than the machine has."""

import math
import os

import numpy as np

LINE_BYTES = 64


def memory_of_the_machine():
    """Bytes of physical memory; infinity where the system does not tell, as on Windows.

    There more than the machine has is refused when it is asked for, and not when it is used.
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return np.inf


def check_available(n_bytes, what, advice):
    """Raise a MemoryError for what needs more memory than the machine has."""
    available = memory_of_the_machine()
    if n_bytes > available:
        raise MemoryError(
            f"{what} needs {n_bytes / 2**30:.3g} GiB, and the machine has "
            f"{available / 2**30:.3g}: {advice}."
        )


def aligned(shape, dtype, allocate=np.empty):
    """An array that begins with a cache line, empty or as `allocate` makes it.

    A vector that lies across two lines takes twice as long to load or store.
    """
    n_bytes = math.prod(map(int, shape)) * np.dtype(dtype).itemsize
    memory = allocate(n_bytes + LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % LINE_BYTES
    return memory[start : start + n_bytes].view(dtype).reshape(shape)
