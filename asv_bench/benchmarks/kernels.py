"""Every kernel of the table that the tests use, at real sizes, beside its NumPy twin."""

import inspect
import time

from kernel_cases import CASES, Size, case
from threadpoolctl import ThreadpoolController

from . import THREADS

SIZES = {"784x100": Size(784, 100, 100), "784x500": Size(784, 500, 100),
         "784x2000": Size(784, 2000, 100)}  # fmt: skip
TINY = Size(20, 10, 4)
POOLS = ThreadpoolController()


def _grid(*sizes, cases=tuple(str(c) for c in CASES if c.large), threads=("one", "all")):
    types, sides = ["float64", "float32"], ["compiled", "twin"]
    return list(cases), list(sizes), types, sides, list(threads)


def _clock():
    """Time of the processor, where one thread does all: other processes are not in it."""
    return time.process_time() if Kernels.threads == 1 else time.perf_counter()


class Kernels:
    """Time of one call."""

    params = _grid("784x500")
    param_names = ("case", "size", "dtype", "which", "threads")
    # Arguments are used up by a call: `setup` builds fresh ones for each. Six runs of either commit
    # are the fewest from which asv concludes that one is slower.
    number, repeat, rounds, warmup_time = 1, (6, 20, 10.0), 1, 0
    timer, threads = staticmethod(_clock), 1

    def setup(self, name, size, dtype, which, threads):
        self.case = case(name)
        shared = "queue" in inspect.signature(self.case.twin).parameters
        if dtype not in self.case.dtypes or not (shared or threads == "one"):
            raise NotImplementedError("not for this type, or not shared by threads")  # "n/a"
        Kernels.threads = 1 if threads == "one" else THREADS
        POOLS.limit(limits=Kernels.threads, user_api="blas")
        self.case.run(which, self.case.build(TINY, dtype))  # compiles, or loads what was compiled
        self.arguments = self.case.build(SIZES[size], dtype)

    def time_call(self, name, size, dtype, which, threads):
        self.case.run(which, self.arguments, Kernels.threads)


class OtherSizes(Kernels):
    """Time of one call, where the short form does not go."""

    params = _grid("784x100", "784x2000")


class KernelMemory(Kernels):
    """Peak memory of the whole process, the machine itself and Numba included."""

    params = _grid(*SIZES, cases=["tap.tap-ten_sweeps"], threads=["one"])

    def peakmem_call(self, name, size, dtype, which, threads):
        self.case.run(which, self.arguments)

    time_call = None
