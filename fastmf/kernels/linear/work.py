"""Memory shared by threads that call a kernel at the same time: scratch, and a queue of tasks.

Kernels that made their own arrays would take a third of a second longer to compile.
"""

from typing import NamedTuple

import numpy as np


class Work(NamedTuple):
    """Scratch memory and queue of a kernel."""

    # array, or NamedTuple of arrays: the part of each worker, on the first axis. A worker beyond it
    # leaves at once
    scratch: np.ndarray
    queue: np.ndarray  # int64 (2,): next task, next worker


def new_work(scratch):
    """Scratch memory with a new queue."""
    return Work(scratch, np.zeros(2, np.int64))
