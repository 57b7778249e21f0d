"""Time of TAP solves against rows, units and threads: compiled kernel and NumPy reference.

Writes scaling_tap.csv and scaling_tap.png. Every point is the median of repeats that take turns:
kernel, reference, kernel, ... What makes such figures lie: thread pools that fight (both sides get
the same number of threads, and rest between runs), the first call of a kernel (done before the
clock starts), and a busy machine (compare ratios, not milliseconds).
"""

import argparse
import csv
import os
from pathlib import Path

from timing import blas_threads, in_type, interleaved, median

import fastmf as mf
from fastmf.inference._layout import rows_in_flight

from kernel_cases import Size, case  # isort: skip  (found through timing)
from kernel_cases.machines import rbm  # isort: skip
from kernel_cases.tap import tap_arguments  # isort: skip

FIELDS = ("which", "axis", "n_visible", "n_hidden", "n_rows", "threads", "blas_threads", "dtype",
          "seconds", "mean_sweeps")  # fmt: skip


def settings(arguments):
    """The points to measure: (axis that varies, size, threads)."""
    cores = os.cpu_count() or 1
    rows = (1, 10, 100, 1000) if arguments.quick else (1, 3, 10, 30, 100, 300, 1000, 3000)
    units = (50, 200, 800) if arguments.quick else (25, 50, 100, 200, 400, 800, 1600)
    threads = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= cores]
    if arguments.model is None:
        for n in units:
            yield "hidden units", Size(784, n, 100), cores
        size = Size(784, 100, 100)
    else:
        size = Size(*mf.load(arguments.model).weights.shape, 100)
    for n in rows:
        yield "rows", size._replace(n_rows=n), cores
    for n in threads:
        yield "threads", size, n


def measure(axis, size, threads, dtype, arguments):
    """One row of the table for the kernel and one for the reference."""
    if arguments.model is None:
        machine = rbm
    else:
        model = in_type(mf.load(arguments.model), dtype)
        machine = lambda size, dtype: model  # noqa: E731
    tap = case("tap.tap-blocked")
    sweeps = {}

    def solve(which):
        """Function that solves and times itself: building the arguments is not on the clock."""
        import time

        def run():
            fresh = tap_arguments(
                size, dtype, machine=machine, tol=arguments.tol,
                rows_in_flight=rows_in_flight(size.n_rows, threads),
            )  # fmt: skip
            start = time.perf_counter()
            tap.run(which, fresh, min(threads, size.n_rows))
            seconds = time.perf_counter() - start
            sweeps[which] = fresh[-1].n_iter.mean()
            return seconds

        return run

    contestants = {"kernel": solve("compiled"), "NumPy": solve("twin")}
    with blas_threads(threads):
        times = interleaved(contestants, arguments.repeats)
    for which, twin in (("kernel", "compiled"), ("NumPy", "twin")):
        yield dict(zip(FIELDS, (which, axis, *size, threads, threads, dtype, median(times[which]),
                                round(float(sweeps[twin]), 2)), strict=True))  # fmt: skip


def plot(table, path):
    """One panel per axis, time against it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    column = {"hidden units": "n_hidden", "rows": "n_rows", "threads": "threads"}
    axes_shown = [axis for axis in column if any(row["axis"] == axis for row in table)]
    figure, panels = plt.subplots(
        1, len(axes_shown), figsize=(4.2 * len(axes_shown), 3.6), squeeze=False, sharey=True,
        layout="constrained",
    )  # fmt: skip
    for axis, panel in zip(axes_shown, panels[0], strict=True):
        for which, style in (("kernel", "-o"), ("NumPy", "--s")):
            for dtype, colour in (("float64", "C0"), ("float32", "C1")):
                points = sorted(
                    (row[column[axis]], row["seconds"] * 1e3)
                    for row in table
                    if (row["axis"], row["which"], row["dtype"]) == (axis, which, dtype)
                )
                panel.loglog(*zip(*points, strict=True), style, color=colour, markersize=4,
                             label=f"{which}, {dtype}")  # fmt: skip
        panel.set_xlabel(axis)
        panel.grid(alpha=0.3, which="both")
    panels[0][0].set_ylabel("time to the fixed points / ms")
    panels[0][-1].legend(fontsize=8)
    figure.savefig(path, dpi=150)


def main():
    """Measure, write the table, draw it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="few sizes and repeats: a minute or so"
    )
    parser.add_argument(
        "--model",
        metavar="FILE",
        help="a binary RBM saved by fastmf, in place of synthetic ones (random weights with "
        "planted patterns, strong enough that solves take tens of sweeps); leaves out the units",
    )
    parser.add_argument(
        "--tol", type=float, default=1e-8, help="largest change of a mean at the end (default 1e-8)"
    )
    parser.add_argument(
        "--repeats", type=int, help="rounds of interleaved runs (default 7; 3 with --quick)"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("."), metavar="FOLDER", help="default: here"
    )
    arguments = parser.parse_args()
    arguments.repeats = arguments.repeats or (3 if arguments.quick else 7)
    arguments.output.mkdir(parents=True, exist_ok=True)

    tap, table = case("tap.tap-blocked"), []
    with open(arguments.output / "scaling_tap.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for dtype in ("float64", "float32"):
            tap.compiled(*tap.build(Size(20, 10, 2), dtype))  # compile
            for axis, size, threads in settings(arguments):
                for row in measure(axis, size, threads, dtype, arguments):
                    writer.writerow(row)
                    file.flush()
                    table.append(row)
                    print(" ".join(f"{row[name]!s:>12.12}" for name in FIELDS), flush=True)
    plot(table, arguments.output / "scaling_tap.png")


if __name__ == "__main__":
    main()
