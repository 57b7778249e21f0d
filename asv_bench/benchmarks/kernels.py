"""Every large case of the table that the tests use, at real sizes, kernel and NumPy twin."""

import time

from kernel_cases import CASES, Size, case

from . import THREADS

SIZES = {"784x100": Size(784, 100, 100), "784x500": Size(784, 500, 100),
         "784x2000": Size(784, 2000, 100)}  # fmt: skip
TINY = Size(20, 10, 4)


def _grid(*sizes, cases=tuple(str(c) for c in CASES if c.large)):
    return list(cases), list(sizes), ["float64", "float32"], ["compiled", "twin"]


class Kernels:
    """Time of one call."""

    params = _grid("784x500")
    param_names = ("case", "size", "dtype", "which")
    # Arguments are used up by a call: `setup` builds fresh ones for each. Six runs of either commit
    # are the fewest from which asv concludes that one is slower.
    number, repeat, rounds, warmup_time = 1, (6, 20, 10.0), 1, 0
    # Time of the processor, where one thread does all, is not that of other processes.
    timer = time.process_time if THREADS == 1 else time.perf_counter

    def setup(self, name, size, dtype, which):
        self.case = case(name)
        if dtype not in self.case.dtypes:
            raise NotImplementedError(f"{name} is for {self.case.dtypes} only")  # asv says n/a
        self.case.run(which, self.case.build(TINY, dtype))  # compiles, or loads what was compiled
        self.arguments = self.case.build(SIZES[size], dtype)

    def time_call(self, name, size, dtype, which):
        self.case.run(which, self.arguments, THREADS)


class OtherSizes(Kernels):
    """Time of one call, where the short form does not go."""

    params = _grid("784x100", "784x2000")


class KernelMemory(Kernels):
    """Peak memory of the whole process, the machine itself and Numba included."""

    params = _grid(*SIZES, cases=["tap.tap-ten_sweeps"])

    def peakmem_call(self, name, size, dtype, which):
        self.case.run(which, self.arguments, THREADS)

    time_call = None
