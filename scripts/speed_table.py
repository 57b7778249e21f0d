"""The first table of SPEED.md: mean field beside NumPy, SciPy and scikit-learn, on one machine.

All that is compared runs in one process and alternates; a time is the median over the rounds, a
ratio the median of the ratios within a round. NumPy has in-place buffers and one thread of BLAS
or all, whichever is faster, and leaves out rows that have converged. Cases in which it is faster
are in the table, too.
"""

import os
import time
from functools import partial

import numpy as np
from speed_page import line, run
from timing import (
    blas_threads,
    images,
    in_type,
    interleaved,
    ratio,
    trained_machine,
    with_own_blas,
)

import fastmf as mf
from fastmf.inference.mean_field._layouts import rows_per_worker

from kernel_cases import Size, case  # isort: skip  (found through timing)
from kernel_cases.machines import rbm  # isort: skip
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
    """Sequential sweeps, against NumPy unit by unit."""
    size = Size(784, n_hidden, 100)
    model, n_sweeps = rbm(size, dtype), 3
    options = {"schedule": "sequential", "tol": 0.0, "max_iter": n_sweeps}
    options["rows_per_worker"] = rows_per_worker(100, THREADS)

    def ours():
        arguments = tap_arguments(size, dtype, **options)
        return timed(TAP.run, "compiled", arguments, THREADS) / n_sweeps

    order = sorted(
        [(layer, i) for layer, n in enumerate(model.weights.shape) for i in range(n)],
        key=lambda unit: unit[1] / model.weights.shape[unit[0]],
    )
    mean = [np.full((100, n), 0.5, dtype) for n in model.weights.shape]
    var = [m * (1 - m) for m in mean]
    times = interleaved(
        {
            "ours": ours,
            "units": lambda: by_numpy(timed, numpy_unit_by_unit, model, mean, var, order),
        },
        repeats,
    )
    task = f"one sequential sweep of 100 rows, 784 x {n_hidden}, {dtype}"
    yield line(task, times["ours"], times["units"], "NumPy, unit by unit")


# --- whole solves -------------------------------------------------------------------------------


def all_starts(n_hidden, repeats):
    """All of 100 data starts to 1e-8 on a trained machine."""
    model = trained_machine(n_hidden)
    starts, size = images(10_000)[:100], Size(784, n_hidden, 100)
    models = {dtype: in_type(model, dtype) for dtype in ("float64", "float32")}
    solutions = {}

    def twin(dtype):
        arguments = tap_arguments(
            size, dtype, machine=lambda size, dtype: models[dtype], start=starts,
            max_iter=1000,
        )  # fmt: skip
        seconds = timed(TAP.twin, *arguments)
        mean, var = (np.split(part, [784], axis=1) for part in arguments[-1].state[:2])
        solutions["twin " + dtype] = tuple(mean), tuple(var)
        return seconds

    def ours(name, dtype, options):
        solutions[name] = mf.tap(models[dtype], starts, n_threads=THREADS, **options)

    def fixed_points(name):
        # A row that passes a saddle slowly can stop there: compared are the points it converges to.
        options = {"tol": 1e-12, "max_iter": 100_000, "acceleration": False}
        return np.hstack(mf.tap(model, solutions[name], n_threads=THREADS, **options).mean)

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
        equal = abs(fixed_points(name) - expected).max(1) < 1e-6
        yield line(
            f"100 starts to 1e-8, trained 784 x {n_hidden}, {name}", times[name],
            times[f"twin {variants[name][0]}"], f"NumPy of Algorithm 1, {variants[name][0]}",
            f"{equal.mean():.0%} the same fixed points, swept on to 1e-12",
        )  # fmt: skip


# --- learning ----------------------------------------------------------------------------------


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
    "epoch": lambda n: [row for n_hidden in (100, 500) for row in epoch(n_hidden, n)],
}


def prepare(n_threads):
    """Set the number of threads of both sides, and compile."""
    global THREADS
    THREADS = n_threads
    for dtype in ("float64", "float32"):
        TAP.compiled(*TAP.build(Size(20, 10, 2), dtype))


def main():
    """Measure, print the table, and write it to the page if asked to."""
    run(__doc__, SECTIONS, MARKERS, threads=THREADS, prepare=prepare)


if __name__ == "__main__":
    with_own_blas(main)
