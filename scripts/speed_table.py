"""The first table of SPEED.md: mean field beside NumPy, SciPy and scikit-learn, on one machine.

All that is compared runs in one process and alternates; a time is the median over the rounds, a
ratio the median of the ratios within a round. NumPy has in-place buffers and one thread of BLAS
or all, whichever is faster, and leaves out rows that have converged. Cases in which it is faster
are in the table, too.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from speed_page import PAGE, write_page
from timing import (
    blas_threads,
    conditions,
    images,
    in_type,
    interleaved,
    median,
    positive,
    ratio,
    trained_machine,
    with_own_blas,
)

import fastmf as mf
from fastmf._threads.workers import in_parallel
from fastmf.inference.mean_field._layout import rows_per_worker

from kernel_cases import Size, case  # isort: skip  (found through timing)
from kernel_cases.machines import rbm  # isort: skip
from kernel_cases.moments import moments_arguments, moments_of_rows  # isort: skip
from kernel_cases.tap import tap_arguments  # isort: skip

MARKERS = "<!-- speed table: begin -->", "<!-- speed table: end -->"
THREADS = os.cpu_count() or 1
TAP = case("mean_field.tap.tap-blocked")
PLAIN = {"acceleration": False}
FAST = {}


def timed(function, *arguments):
    """Seconds of one call."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def by_numpy(seconds_of, *arguments):
    """The smaller of the seconds with one thread of BLAS and with all: small products lose by many.

    One comes first, as after a call threads of BLAS spin for a while.
    """
    seconds = []
    for n_threads in sorted({1, THREADS}):
        with blas_threads(n_threads):
            seconds.append(seconds_of(*arguments))
    return min(seconds)


def show(seconds):
    """Time in s, ms or µs."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1 or unit == "µs":
            return f"{seconds * scale:.3g} {unit}"


def line(task, ours, theirs, other, note=""):
    """One row of the table, for two lists of seconds; a ratio below 1 is bold."""
    times = f"{show(median(ours))} | {show(median(theirs))} ({other})"
    faster = ratio(theirs, ours)
    return f"{task} | {times} | {f'**{faster:.2g}**' if faster < 1 else f'{faster:.2g}'} | {note}"


# --- one sweep ----------------------------------------------------------------------------------


class NumPySweep:
    """A blocked binary TAP sweep as well as NumPy does it: in place, all rows at once."""

    def __init__(self, model, n_rows):
        W = model.weights
        self.layers = [
            (W, W * W, model.hidden.field), (W.T, (W * W).T, model.visible.field),
        ]  # fmt: skip
        self.mean = [np.full((n_rows, n), 0.5, W.dtype) for n in W.shape]
        self.var = [mean * (1 - mean) for mean in self.mean]
        self.work = [[np.empty_like(mean) for _ in range(2)] for mean in self.mean]
        self.residual = np.zeros(n_rows, W.dtype)

    def __call__(self, n_sweeps):
        """Sweep the hidden layer, then the visible one, `n_sweeps` times."""
        for _ in range(n_sweeps):
            self.residual[:] = 0
            for here, (W, squares, field) in zip((1, 0), self.layers, strict=True):
                mean, var, (t, a) = self.mean[here], self.var[here], self.work[here]
                np.matmul(self.var[1 - here], squares, out=a)
                np.matmul(self.mean[1 - here], W, out=t)
                # field + W m - a m + a / 2, then the sigmoid, with `var` as scratch space.
                t += field
                np.subtract(0.5, mean, out=var)
                a *= var
                t += a
                np.negative(t, out=t)
                np.exp(t, out=t)
                t += 1
                np.divide(1, t, out=t)
                np.subtract(t, mean, out=a)
                np.abs(a, out=a)
                np.maximum(self.residual, a.max(1), out=self.residual)
                mean[:] = t
                np.subtract(1, mean, out=var)
                var *= mean

    def products(self, n_sweeps):
        """The matrix products of the sweep only."""
        for _ in range(n_sweeps):
            for here, (W, squares, _) in zip((1, 0), self.layers, strict=True):
                t, a = self.work[here]
                np.matmul(self.var[1 - here], squares, out=a)
                np.matmul(self.mean[1 - here], W, out=t)


def one_sweep(n_hidden, dtype, repeats, n_sweeps=20):
    """Blocked sweeps of 100 rows against in-place NumPy and against its products alone."""
    size = Size(784, n_hidden, 100)
    plain = NumPySweep(rbm(size, dtype), size.n_rows)

    def ours():
        arguments = tap_arguments(
            size, dtype, tol=0.0, max_iter=n_sweeps, rows_per_worker=rows_per_worker(100, THREADS)
        )
        return timed(TAP.run, "compiled", arguments, THREADS) / n_sweeps

    times = interleaved(
        {
            "ours": ours,
            "NumPy": lambda: by_numpy(timed, plain, n_sweeps) / n_sweeps,
            "products": lambda: by_numpy(timed, plain.products, n_sweeps) / n_sweeps,
        },
        repeats,
    )
    over = ratio(times["ours"], times["products"])
    yield line(f"one sweep of 100 rows, 784 x {n_hidden}, {dtype}", times["ours"], times["NumPy"],
               "NumPy in place", f"{over:.2f} times its matrix products alone")  # fmt: skip


def numpy_unit_by_unit(model, mean, var, order):
    """One sequential TAP sweep in NumPy: unit after unit, each seeing the newest values."""
    W, W_T = model.weights, np.ascontiguousarray(model.weights.T)
    rows = {0: (W, W * W, model.visible.field), 1: (W_T, W_T * W_T, model.hidden.field)}
    for layer, i in order:
        W, squares, field = rows[layer]
        a = var[1 - layer] @ squares[i]
        t = field[i] + mean[1 - layer] @ W[i] + a * (0.5 - mean[layer][:, i])
        m = 1 / (1 + np.exp(-t))
        mean[layer][:, i], var[layer][:, i] = m, m * (1 - m)


def sequential(n_hidden, dtype, repeats):
    """Sequential sweeps, against NumPy unit by unit and against the twin, panel by panel."""
    size = Size(784, n_hidden, 100)
    model, n_sweeps = rbm(size, dtype), 3
    options = {"schedule": "sequential", "tol": 0.0, "max_iter": n_sweeps}
    options["rows_per_worker"] = rows_per_worker(100, THREADS)

    def run(which):
        return timed(TAP.run, which, tap_arguments(size, dtype, **options), THREADS) / n_sweeps

    order = sorted(
        [(layer, i) for layer, n in enumerate(model.weights.shape) for i in range(n)],
        key=lambda unit: unit[1] / model.weights.shape[unit[0]],
    )
    mean = [np.full((100, n), 0.5, dtype) for n in model.weights.shape]
    var = [m * (1 - m) for m in mean]
    times = interleaved(
        {
            "ours": lambda: run("compiled"),
            "twin": lambda: by_numpy(run, "twin"),
            "units": lambda: by_numpy(timed, numpy_unit_by_unit, model, mean, var, order),
        },
        repeats,
    )
    task = f"one sequential sweep of 100 rows, 784 x {n_hidden}, {dtype}"
    yield line(task, times["ours"], times["units"], "NumPy, unit by unit")
    yield line(task, times["ours"], times["twin"], "NumPy, a panel of units at a time")


# --- whole solves -------------------------------------------------------------------------------


def all_starts(n_hidden, repeats):
    """All of 100 data starts to 1e-8 on a trained machine."""
    model = trained_machine(n_hidden)
    starts, size = images(10_000)[:100], Size(784, n_hidden, 100)
    models = {dtype: in_type(model, dtype) for dtype in ("float64", "float32")}
    found = {}

    def twin(dtype):
        arguments = tap_arguments(
            size, dtype, machine=lambda size, dtype: models[dtype], start=starts,
            max_iter=1000,
        )  # fmt: skip
        seconds = timed(TAP.twin, *arguments)
        mean, var = (np.split(part, [784], axis=1) for part in arguments[-1].state[:2])
        found["twin " + dtype] = tuple(mean), tuple(var)
        return seconds

    def ours(name, dtype, options):
        found[name] = mf.tap(models[dtype], starts, n_threads=THREADS, **options)

    def fixed_points(name):
        # A row that passes a saddle slowly can stop there: compared are the points it converges to.
        options = {"tol": 1e-12, "max_iter": 100_000, "acceleration": False}
        return np.hstack(mf.tap(model, found[name], n_threads=THREADS, **options).mean)

    variants = {
        "plain, float64": ("float64", PLAIN),
        "plain, float32": ("float32", PLAIN),
        "accelerated, float64": ("float64", FAST),
        "accelerated, float32": ("float32", FAST),
    }
    solvers = {name: (lambda n=name, v=v: ours(n, *v)) for name, v in variants.items()}
    solvers["twin float64"] = lambda: by_numpy(twin, "float64")
    solvers["twin float32"] = lambda: by_numpy(twin, "float32")
    times = interleaved(solvers, repeats)
    expected = fixed_points("twin float64")
    for name in variants:
        same = abs(fixed_points(name) - expected).max(1) < 1e-6
        yield line(
            f"100 starts to 1e-8, trained 784 x {n_hidden}, {name}", times[name],
            times[f"twin {variants[name][0]}"], f"NumPy of Algorithm 1, {variants[name][0]}",
            f"{same.mean():.0%} the same fixed points, swept on to 1e-12",
        )  # fmt: skip


def data_starts(n_hidden, n_rows, repeats):
    """Thousands of data starts to 1e-5."""
    model, X = in_type(trained_machine(n_hidden), "float32"), images(n_rows)
    found = {}

    def solve(name, n_threads, options):
        found[name] = mf.tap(model, X, tol=1e-5, n_threads=n_threads, **options)

    times = interleaved(
        {
            "plain": lambda: solve("plain", THREADS, {}),
            "fast": lambda: solve("fast", THREADS, FAST),
            "one thread": lambda: solve("one", 1, {}),
        },
        repeats,
    )
    for name in ("plain", "fast"):
        endings = dict(zip(*np.unique(found[name].message, return_counts=True), strict=True))
        endings = ", ".join(f"{n} {m.partition(':')[0]}" for m, n in endings.items())
        yield line(
            f"{n_rows:,} data starts to 1e-5, trained 784 x {n_hidden}, float32"
            + (", accelerated" if name == "fast" else ""),
            times[name], times["one thread"], "one thread, plain", endings,
        )  # fmt: skip


def busy_machine(repeats):
    """Two threads against one, alone and beside another busy process."""
    model, X = in_type(trained_machine(500), "float32"), images(400)
    solvers = {
        f"{n} threads": lambda n=n: mf.tap(model, X, tol=1e-5, n_threads=n) and None
        for n in sorted({1, THREADS})
    }
    alone = interleaved(solvers, repeats)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        beside = interleaved(solvers, repeats)
    finally:
        busy.terminate()
        busy.wait()
    one, all_ = alone["1 threads"], alone[f"{THREADS} threads"]
    if THREADS > 1:
        yield line(f"400 data starts, 784 x 500: {THREADS} threads", all_, one, "one thread, alone")
    yield line(f"the same beside a busy process: {THREADS} threads", beside[f"{THREADS} threads"],
               one, "one thread, alone")  # fmt: skip


# --- learning, moments, starting ----------------------------------------------------------------


def epoch(n_hidden, repeats):
    """Training epochs beside scikit-learn's persistent contrastive divergence."""
    from sklearn.neural_network import BernoulliRBM

    from fastmf.learning.layered.settings import LayeredSettings
    from fastmf.learning.layered.step import Plan
    from fastmf.learning.training.ascent import initial_state

    X = images(10_000)
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 0.01, (784, n_hidden)).astype(np.float32)
    model = mf.RBM(weights, mf.Bernoulli.from_data(X), mf.Bernoulli(np.zeros(n_hidden)))
    # Rows of a step and options by name; the first are the default ones. TAP from half as many
    # starts as a batch has rows takes 8 products for 14.
    gradients = {
        "TAP, 3 sweeps, 20 rows a step": (20, {"gradient": "tap", "n_sweeps": 3}),
        "TAP, 3 sweeps": (100, {"gradient": "tap", "n_sweeps": 3}),
        "TAP, 3 sweeps from 50 starts": (100, {"gradient": "tap", "n_sweeps": 3, "n_starts": 50}),
        "PCD-1": (100, {"gradient": "pcd", "n_sweeps": 1}),
        "CD-1": (100, {"gradient": "cd", "n_sweeps": 1}),
    }

    def ours(batch, options, n_threads):
        rows = np.arange(len(X)).reshape(-1, batch)
        step = Plan(model, LayeredSettings(batch_size=batch, **options), n_threads)

        def take():
            state = initial_state(model)
            for k, of_batch in enumerate(rows):
                step(state, X[of_batch], 5e-3, np.random.default_rng(k))

        return take

    def theirs(batch):
        BernoulliRBM(n_hidden, batch_size=batch, n_iter=1, random_state=0).fit(X)

    runs = {batch: partial(by_numpy, timed, theirs, batch) for batch in (20, 100)}
    for name, (batch, options) in gradients.items():
        runs[name] = ours(batch, options, THREADS)
        runs[f"{name}, one thread"] = ours(batch, options, 1)
    times = interleaved(runs, repeats)
    for name, (batch, _) in gradients.items():
        gain = ratio(times[f"{name}, one thread"], times[name])
        what = f"training epoch of 10,000 rows, 784 x {n_hidden}, {name}, float32"
        peer = "scikit-learn, PCD-1" + ", 20 rows a step" * (batch == 20)
        yield line(what, times[name], times[batch], peer, f"{gain:.2g} times one thread")


def scipy_moments(b, s):
    """Mean and variance of exp(b x - s x^2 / 2) on [0, 1] by the closed forms in erf."""
    from scipy.special import erf, erfi

    root = np.sqrt(abs(s) / 2)
    low, high = -b / (2 * s) * 2 * root, (1 - b / s) * root
    area = np.where(s > 0, erf(high) - erf(low), erfi(high) - erfi(low))
    sign, scale = np.sign(s), 2 / np.sqrt(np.pi)
    at_low, at_high = np.exp(-sign * low * low), np.exp(-sign * high * high)
    shift = scale * sign * (at_low - at_high) / area / (2 * root)
    mean = b / s + shift
    var = 1 / s - scale * (high * at_high - low * at_low) / area / s - shift * shift
    return mean, var


def moments(repeats, n_rows=200, n_units=1000):
    """Truncated-Gaussian moments."""
    unit = np.ones(n_units)
    prior = mf.priors.TruncatedGaussian(0 * unit, unit, 0 * unit, unit)
    b, a = moments_arguments(prior, n_rows)[1:3]

    def ours(n_workers):
        arguments = moments_arguments(prior, n_rows)
        return timed(in_parallel, moments_of_rows, arguments, n_workers) / b.size

    def theirs():
        with np.errstate(all="ignore"):
            return timed(scipy_moments, b, 1 + a) / b.size

    ours(1)
    names = {"one": lambda: ours(1), "all": lambda: ours(THREADS), "SciPy": theirs}
    times = interleaved(names, repeats)
    exact = moments_arguments(prior, n_rows)
    moments_of_rows(*exact)
    with np.errstate(all="ignore"):
        wrong = ~(abs(scipy_moments(b, 1 + a)[1] / exact[4] - 1) < 1e-6)
    for n, name in {THREADS: "all", 1: "one"}.items():
        nanoseconds = [f"{median(t) * 1e9:.3g} ns" for t in (times[name], times["SciPy"])]
        yield (
            f"truncated-Gaussian mean and variance of one unit, {n} thread{'s' * (n > 1)} | "
            f"{nanoseconds[0]} | {nanoseconds[1]} (SciPy, erf and erfi, one thread) | "
            f"{ratio(times['SciPy'], times[name]):.2g} | "
            f"SciPy's variance is off by more than 1e-6 in {wrong.mean():.0%} of the tilts"
        )


FRESH = """
import time
start = time.perf_counter()
import fastmf as mf
imported = time.perf_counter()
import numpy as np
mf.tap(mf.RBM(np.ones((4, 3)), mf.Bernoulli(np.zeros(4)), mf.Bernoulli(np.zeros(3))))
print(imported - start, time.perf_counter() - imported)
"""


def start_up(repeats):
    """Import, and the first solve of a process, once the code has been compiled."""
    runs = []
    for _ in range(repeats + 1):
        done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True)
        runs.append([float(x) for x in done.stdout.split()])
    imported, solved = (statistics.median(column) for column in zip(*runs[1:], strict=True))
    yield f"`import fastmf` | {show(imported)} | | |"
    yield f"first TAP solve of a new process | {show(solved)} | | | compiled by an earlier one"


# --- the table ----------------------------------------------------------------------------------

SECTIONS = {
    "sweep": lambda n: [
        row
        for n_hidden in (100, 500, 2000)
        for dtype in ("float64", "float32")
        for row in one_sweep(n_hidden, dtype, 2 * n + 1)
    ],
    "sequential": lambda n: [
        row for dtype in ("float64", "float32") for row in sequential(500, dtype, n)
    ],
    "starts": lambda n: [row for n_hidden in (100, 500) for row in all_starts(n_hidden, n)],
    "data": lambda n: [*data_starts(100, 10_000, n), *data_starts(500, 2_000, n)],
    "epoch": lambda n: [row for n_hidden in (100, 500) for row in epoch(n_hidden, n)],
    "moments": lambda n: list(moments(n)),
    "threads": lambda n: list(busy_machine(n)),
    "start": lambda n: list(start_up(n)),
}


def table(rows, n_threads):
    """The rows as Markdown, with what they were measured on, and how many fastmf loses."""
    slower = sum("| **" in row for row in rows)
    compared = sum(bool(row.split("|")[2].strip()) for row in rows)  # others have no competitor
    bold = ", whose ratios are bold" if slower else ""
    return "\n".join(
        [
            f"Medians on {n_threads} thread{'s' * (n_threads > 1)} ({conditions()}); the "
            "ratio is theirs to ours.",
            f"fastmf is slower in {slower} of {compared} rows{bold}.",
            "",
            "| task | fastmf | others | ratio | |",
            "|---|---|---|---|---|",
            *(f"| {row} |" for row in rows),
        ]
    )


def main():
    """Measure, print the table, and write it to the page if asked to."""
    global THREADS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=positive, default=5, help="rounds of each comparison")
    parser.add_argument(
        "--threads", type=positive, default=THREADS,
        help="threads of both sides; one thread is all that can be measured on a busy machine",
    )  # fmt: skip
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="parts of the table"
    )
    parser.add_argument(
        "--write", nargs="?", type=Path, const=PAGE, metavar="FILE",
        help="put the table between its markers in FILE (scripts/SPEED.md, and rows of it in "
        "README.md)",
    )  # fmt: skip
    arguments = parser.parse_args()
    if arguments.write and set(arguments.only) != set(SECTIONS):
        parser.error("--write would leave out of the table what --only does not name")
    THREADS = arguments.threads
    for dtype in ("float64", "float32"):
        TAP.compiled(*TAP.build(Size(20, 10, 2), dtype))  # compile
    rows = []
    with blas_threads(THREADS):
        for name in arguments.only:
            for row in SECTIONS[name](arguments.repeats):
                rows.append(row)
                print(row, flush=True)
    if arguments.write:
        write_page(arguments.write, table(rows, THREADS), MARKERS)


if __name__ == "__main__":
    with_own_blas(main)
