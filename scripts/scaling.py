"""Common parts of the scaling scripts: pinned threads, ceilings of speed, the table, the figure.

A script defines the points to be measured and the solvers to be timed at each. Here the solvers of
a point alternate, beside a ceiling (as in the roofline model): the time of the work's matrix
products at the rate of a single large product, or of reading and writing its arrays at the rate of
a copy of arrays too large for the caches (smaller ones can be faster). Both rates are measured at
all points, with the same number of threads, which are bound to cores; the largest rate counts,
because the machine may have been busy at other points. Compilation is not timed; on a busy machine
compare ratios of alternating runs, not milliseconds.
"""

import argparse
import csv
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from timing import REST, blas_threads, interleaved, median, positive

FIELDS = ("axis", "x", "task", "dtype", "size", "n_rows", "threads", "who", "seconds",
          "efficiency")  # fmt: skip
STRONG, WEAK = "threads", "threads, work in proportion"


class Point(NamedTuple):
    """One thing to measure.

    Parameters
    ----------
    axis : str
        What varies: a panel of the picture.
    x : int
        Its value.
    task : str
    dtype : str
    size : tuple of int
        Units: (visible, hidden), (features,) or the like.
    n_rows : int
    threads : int
    """

    axis: str
    x: int
    task: str
    dtype: str
    size: tuple
    n_rows: int
    threads: int


class Work(NamedTuple):
    """Work that every solver has to do: operations in matrix products, bytes moved otherwise."""

    operations: float = 0.0
    bytes: float = 0.0

    def measure(self, dtype, threads, quick=False):
        """Measure the machine's rates of such work; the largest so far is used."""
        rates = {}
        if self.operations:
            rates["product", dtype, threads] = product_rate(dtype, quick)
        if self.bytes:
            rates["copy", dtype, threads] = copy_rate(threads, quick)
        for key, rate in rates.items():
            BEST[key] = max(rate, BEST.get(key, 0))

    def ceiling(self, dtype, threads):
        """Least seconds for it on this machine; None for no work known."""
        work = {"product": self.operations, "copy": self.bytes}
        seconds = [amount / BEST[kind, dtype, threads] for kind, amount in work.items() if amount]
        return sum(seconds) if seconds else None


# Operations or bytes a second, by kind of work, type and threads.
BEST: dict = {}


def product_rate(dtype, quick=False):
    """Operations a second of NumPy's matrix product (a multiply-add is two), the best of five."""
    n = 512 if quick else 1024
    a = np.random.default_rng(0).random((n, n)).astype(dtype)
    out = np.empty_like(a)
    times = interleaved({"product": lambda: np.matmul(a, a, out=out)}, 5, _rest(quick))
    return 2 * n**3 / min(times["product"])


def copy_rate(threads, quick=False):
    """Bytes a second, read and written, of a copy in several threads, the best of five."""
    source = np.ones((threads, (1 << 20 if quick else 1 << 26) // 8))
    target = np.zeros_like(source)
    with ThreadPoolExecutor(threads) as pool:
        copies = {"copy": lambda: list(pool.map(np.copyto, target, source))}
        times = interleaved(copies, 5, _rest(quick))
    return 2 * source.nbytes / min(times["copy"])


def _rest(quick):
    """Seconds of pause before each run: none where nobody looks at the times."""
    return 0.0 if quick else REST


@contextmanager
def pinned(n_threads):
    """Limit NumPy's BLAS to a number of threads, and the process to a number of cores."""
    if not hasattr(os, "sched_setaffinity"):
        with blas_threads(n_threads):
            yield
        return
    cores = sorted(os.sched_getaffinity(0))
    _bind(cores[:n_threads])
    try:
        with blas_threads(n_threads):
            yield
    finally:
        _bind(cores)


def _bind(cores):
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cores)


def sized(options, tiny, quick, full):
    """Choose by the size of the problems that was asked for."""
    return tiny if options.tiny else quick if options.quick else full


def counts(most):
    """1, 2, 4, ... threads, up to a limit."""
    return [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= most]


def over_threads(task, dtype, size, n_rows, options):
    """Points of strong and weak scaling; `n_rows` is for the largest number of threads."""
    several = counts(options.threads)
    for n in several:
        yield Point(STRONG, n, task, dtype, size, n_rows, n)
    for n in several:
        yield Point(WEAK, n, task, dtype, size, max(1, n_rows * n // several[-1]), n)


def run(name, text, points, problem, options=(), argv=None):
    """Measure all points, and write the table and the picture.

    Parameters
    ----------
    name : str
        Of the files, without ending.
    text : str
        What --help says first.
    points : function of the options
        Yields points.
    problem : context manager of a point and the options
        Gives what is timed, as functions by name (seconds, if they return a number), and the Work
        in one of them.
    options : sequence of (name, dict)
        Further options of the command line.
    """
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small problems, in a minute")
    add("--tiny", action="store_true", help="problems too small to be timed: does it run?")
    add("--threads", type=positive, default=os.cpu_count(), metavar="N",
        help="at most [cores]")  # fmt: skip
    add("--repeats", type=positive, metavar="N",
        help="rounds of runs that take turns [7; 3 if quick]")  # fmt: skip
    add("--output", type=Path, default=Path("."), metavar="FOLDER", help="[here]")
    for option, settings in options:
        add(option, **settings)
    chosen = parser.parse_args(argv)
    chosen.quick |= chosen.tiny
    chosen.repeats = chosen.repeats or (3 if chosen.quick else 7)
    chosen.output.mkdir(parents=True, exist_ok=True)
    table, work = [], {}
    with open(chosen.output / f"{name}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)

        def note(point, who, seconds):
            table.append((point, who, seconds))
            shown = efficiency(table, point, who, seconds)
            row = *point._replace(size=" x ".join(map(str, point.size))), who, f"{seconds:.4g}"
            row = *row, "" if shown is None else f"{shown:.2f}"
            writer.writerow(row)
            print(" ".join(f"{value!s:>11}" for value in row), flush=True)

        for point in points(chosen):
            medians, work[point] = _measure(point, problem, chosen)
            for who, seconds in medians.items():
                note(point, who, seconds)
            file.flush()
        for point, of_point in work.items():
            if (least := of_point.ceiling(point.dtype, point.threads)) is not None:
                note(point, "ceiling", least)
    draw(table, chosen.output / f"{name}.png")


def efficiency(table, point, who, seconds):
    """Speed by thread beside that of one thread: 1 where twice the threads do twice the work.

    None on other axes, and for a ceiling.
    """
    if point.axis not in (STRONG, WEAK) or who == "ceiling":
        return None
    alike = point._replace(threads=1)
    for first, name, alone in table:
        comparable = (first.axis, first.task, first.dtype, first.size) == (
            alike.axis, alike.task, alike.dtype, alike.size,
        )  # fmt: skip
        if comparable and name == who and first.threads == 1:
            return alone / seconds / (point.threads if point.axis == STRONG else 1)
    return None


def _measure(point, problem, options):
    """Median seconds of each contestant, and the work."""
    with pinned(point.threads), problem(point, options) as (solvers, work):
        times = interleaved(solvers, options.repeats, _rest(options.quick))
        medians = {who: median(seconds) for who, seconds in times.items()}
        done = work()
        done.measure(point.dtype, point.threads, options.quick)
    return medians, done


def draw(table, path):
    """A panel for each axis; the ceilings dotted."""
    from matplotlib.figure import Figure

    axes = list(dict.fromkeys(point.axis for point, _, _ in table))
    tasks = list(dict.fromkeys((point.task, point.dtype) for point, _, _ in table))
    names = [who for who in dict.fromkeys(who for _, who, _ in table) if who != "ceiling"]
    styles = dict(zip(names, ("-o", "--s", "--^", "--v"), strict=False)) | {"ceiling": ":"}
    figure = Figure(figsize=(4.2 * len(axes), 5), layout="constrained")
    panels = figure.subplots(1, len(axes), squeeze=False)
    for axis, panel in zip(axes, panels[0], strict=True):
        for k, task in enumerate(tasks):
            for who, style in styles.items():
                points = sorted(
                    (point.x, seconds)
                    for point, name, seconds in table
                    if (point.axis, (point.task, point.dtype), name) == (axis, task, who)
                )
                if points:
                    label = ", ".join((who, *task))
                    panel.loglog(*zip(*points, strict=True), style, color=f"C{k}", markersize=4,
                                 label=label)  # fmt: skip
        if axis in (STRONG, WEAK):
            ticks = sorted({point.x for point, _, _ in table if point.axis == axis})
            panel.set_xticks(ticks, ticks, minor=False)
            panel.set_xticks([], minor=True)
        panel.set(xlabel=axis)
        panel.grid(alpha=0.3, which="both")
        # Below, where no curve is.
        panel.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    panels[0][0].set_ylabel("seconds")
    figure.savefig(path, dpi=150)
