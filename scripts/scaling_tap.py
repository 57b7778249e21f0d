"""Time of TAP solves against units, rows and threads: compiled kernel and NumPy reference.

Writes scaling_tap.csv and scaling_tap.png. The ceiling is the time of the matrix products of all
sweeps of the kernel. The machines are synthetic (random weights with planted patterns, strong
enough that solves take tens of sweeps), unless --model gives one.
"""

import time
from contextlib import contextmanager
from functools import partial

from scaling import Point, Work, over_threads, run, sized
from timing import in_type, with_own_blas

import fastmf as mf
from fastmf.inference.mean_field._layouts import rows_per_worker

from kernel_cases import Size, case  # isort: skip  (found through timing)
from kernel_cases.machines import rbm  # isort: skip
from kernel_cases.tap import tap_arguments  # isort: skip

OPTIONS = (
    ("--model", dict(metavar="FILE", help="a binary RBM saved by fastmf; leaves out the units")),
    ("--tol", dict(type=float, default=1e-8, help="largest change of a mean at the end [1e-8]")),
)
TAP = case("mean_field.tap.tap-blocked")


def points(options):
    """Units, rows and threads, in both precisions."""
    if options.model:
        size = mf.load(options.model).weights.shape
    else:
        size = (60, 30) if options.tiny else (784, 100)
    units = sized(options, (10, 30), (25, 100), (25, 50, 100, 200, 400, 800, 1600))
    n_solved = sized(options, 20, 100, 100)
    rows = sized(options, (4, 20), (30, 100), (1, 3, 10, 30, 100, 300, 1000, 3000))
    for dtype in ("float32",) if options.quick else ("float64", "float32"):
        TAP.compiled(*TAP.build(Size(20, 10, 2), dtype))  # compiles
        for n in units if options.model is None else ():
            yield Point("hidden units", n, "solve", dtype, (size[0], n), n_solved, options.threads)
        for n in rows:
            yield Point("rows", n, "solve", dtype, size, n, options.threads)
        yield from over_threads("solve", dtype, size, rows[-2], options)


@contextmanager
def problem(point, options):
    """Kernel and reference, from the same starts."""
    size = Size(*point.size, point.n_rows)
    machine, sweeps = rbm, {}
    if options.model:
        model = in_type(mf.load(options.model), point.dtype)
        machine = lambda size, dtype: model  # noqa: E731

    def solve(which):
        def timed():
            fresh = tap_arguments(
                size, point.dtype, machine=machine, tol=options.tol,
                rows_per_worker=rows_per_worker(size.n_rows, point.threads),
            )  # fmt: skip
            start = time.perf_counter()
            TAP.run(which, fresh, min(point.threads, size.n_rows))
            seconds = time.perf_counter() - start
            sweeps[which] = fresh[-1].n_iter.sum()
            return seconds

        return timed

    # Means and variances, from layer to layer and back.
    per_sweep = 4 * 2 * size.n_visible * size.n_hidden
    yield (
        {"fastmf": solve("compiled"), "NumPy": solve("twin")},
        lambda: Work(operations=float(per_sweep * sweeps["compiled"])),
    )


main = partial(run, "scaling_tap", __doc__, points, problem, OPTIONS)


if __name__ == "__main__":
    with_own_blas(main)
