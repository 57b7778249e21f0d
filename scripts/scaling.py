"""Measure how time grows with size, rows and threads: fastmf compared with NumPy.

    python scripts/scaling.py tap bp ep fvbm

Each name writes scaling_NAME.csv and scaling_NAME.png. The solvers of a point alternate, with
pinned threads. They are compared with a ceiling, as in the roofline model: the time of the matrix
products at the best rate of a single large product, or of the data transfer at the best rate of a
copy of arrays larger than the caches (smaller ones can be faster). Compilation is not timed.
"""

import csv
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import timing
from timing import REST, interleaved, timed

import fastmf as mf
from fastmf.inference.mean_field._layouts import rows_per_worker

from kernel_cases import Size, case  # isort: skip  (found through timing)
from kernel_cases.machines import rbm  # isort: skip
from kernel_cases.tap import tap_arguments  # isort: skip

STRONG, WEAK = "threads", "threads, work in proportion"
TAP = case("mean_field.tap.tap-blocked")


class Point(NamedTuple):
    """One measurement: the quantity that varies (a panel), its value, and the problem."""

    axis: str
    x: int
    task: str
    dtype: str
    size: tuple
    n_rows: int
    threads: int


# Best operations or bytes per second, by kind of work, type and threads.
BEST: dict = {}


def ceiling(point, quick, operations=0.0, moved=0.0):
    """Return a lower bound of the seconds for matrix products and data transfer; 0 without work."""
    seconds = 0.0
    for amount, rate in ((operations, product_rate), (moved, copy_rate)):
        if amount:
            key = rate, point.dtype, point.threads
            BEST[key] = max(rate(point.dtype, point.threads, quick), BEST.get(key, 0))
            seconds += amount / BEST[key]
    return seconds


def product_rate(dtype, threads, quick):
    """Measure operations per second of NumPy's matrix product (2 per multiply-add), best of 5."""
    n = 512 if quick else 1024
    a = np.random.default_rng(0).random((n, n)).astype(dtype)
    out = np.empty_like(a)
    times = interleaved({"product": lambda: np.matmul(a, a, out=out)}, 5, 0 if quick else REST)
    return 2 * n**3 / min(times["product"])


def copy_rate(dtype, threads, quick):
    """Measure bytes per second, read and written, of a copy by several threads, best of five."""
    source = np.ones((threads, (1 << 20 if quick else 1 << 26) // 8))
    target = np.zeros_like(source)
    with ThreadPoolExecutor(threads) as pool:
        copies = {"copy": lambda: list(pool.map(np.copyto, target, source))}
        times = interleaved(copies, 5, 0 if quick else REST)
    return 2 * source.nbytes / min(times["copy"])


def over_threads(task, dtype, size, n_rows, options):
    """Yield points of strong and weak scaling; `n_rows` is for the largest number of threads."""
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= options.threads]
    yield from (Point(STRONG, n, task, dtype, size, n_rows, n) for n in counts)
    for n in counts:
        yield Point(WEAK, n, task, dtype, size, max(1, n_rows * n // counts[-1]), n)


# --- TAP ----------------------------------------------------------------------------------------


def tap_points(options):
    """Yield points by hidden units, rows and threads, for solves with tens of sweeps."""
    n_visible, units, n_hidden, rows, many = {
        True: (60, (10, 30), 30, (4, 20), 20),
        False: (784, (25, 100, 400, 1600), 100, (1, 10, 100, 1000), 1000),
    }[options.quick]  # fmt: skip
    for dtype in options.types:
        for n in units:
            yield Point(
                "hidden units", n, "solve", dtype, (n_visible, n), rows[-1], options.threads
            )
        for n in rows:
            yield Point("rows", n, "solve", dtype, (n_visible, n_hidden), n, options.threads)
        yield from over_threads("solve", dtype, (n_visible, n_hidden), many, options)


def tap(point, options):
    """Compare the kernel with its NumPy twin, from the same starts."""
    size, n_sweeps = Size(*point.size, point.n_rows), {}
    TAP.compiled(*TAP.build(Size(20, 10, 2), point.dtype))  # compiles

    def solve(which):
        workers = rows_per_worker(size.n_rows, point.threads)
        arguments = tap_arguments(size, point.dtype, tol=1e-8, rows_per_worker=workers)
        seconds = timed(TAP.run, which, arguments, min(point.threads, size.n_rows))
        n_sweeps[which] = arguments[-1].n_iter.sum()
        return seconds

    # Products for means and variances in both directions.
    per_sweep = 4 * 2.0 * size.n_visible * size.n_hidden
    solvers = {"fastmf": partial(solve, "compiled"), "NumPy": partial(solve, "twin")}
    return solvers, lambda: {"operations": per_sweep * n_sweeps["compiled"]}


# --- belief propagation -------------------------------------------------------------------------

SWEEPS = 10


def by_odds(model, n_sweeps):
    """Run sum-product with message ratios m(1) / m(0) in NumPy, on one array in place."""
    e = np.exp(model.weights)
    s, a, b = np.ones_like(e), np.empty_like(e), np.empty_like(e)
    b1, b2 = (prior.field for prior in model.layers)
    odds = np.exp(b2)
    for _ in range(n_sweeps):
        np.multiply(e, odds, out=a)
        a += s
        np.add(s, odds, out=b)
        a /= b
        np.log(a, out=b)
        visible = np.exp(b1 + b.sum(1))[:, None]
        np.multiply(e, visible, out=b)
        b += a
        a += visible
        np.divide(b, a, out=s)
        np.log(s, out=a)
        odds = np.exp(b2 + a.sum(0))
    return visible[:, 0] / (1 + visible[:, 0]), odds / (1 + odds)


def bp_points(options):
    """Yield points by couplings (one row on one thread), rows, and threads."""
    sizes, many, n_rows = {
        True: (((50, 20), (200, 100)), (100, 50), 30),
        False: (((100, 50), (300, 150), (1000, 500), (3000, 1000)), (784, 256), 100),
    }[options.quick]
    for dtype in options.types:
        for size in sizes:
            yield Point("couplings", size[0] * size[1], "solve", dtype, size, 1, 1)
        for n in (1, n_rows, 10 * n_rows):
            yield Point("rows", n, "solve", dtype, many, n, options.threads)
        yield from over_threads("solve", dtype, many, n_rows, options)


def bp(point, options):
    """Time ten sweeps; for one row on one thread also in NumPy."""
    # Weights are weak enough that ten sweeps do not saturate the beliefs.
    model = rbm(Size(*point.size, 1), point.dtype, patterns=0.0, noise=2.0)
    field = np.random.default_rng(1).normal(size=(point.n_rows, point.size[0])).astype(point.dtype)
    ours = partial(
        mf.belief_propagation, model, tol=0, damping=0.0, max_iter=SWEEPS, n_threads=point.threads,
        field=field if point.n_rows > 1 else None,
    )  # fmt: skip
    ours()
    solvers = {"fastmf": ours}
    if point.n_rows == point.threads == 1:
        solvers["NumPy"] = partial(by_odds, model, SWEEPS)
    # Twice per sweep, couplings are read, and messages read and written.
    moved = 6.0 * model.weights.nbytes * SWEEPS * point.n_rows
    return solvers, lambda: {"moved": moved}


# --- expectation propagation --------------------------------------------------------------------


def regression(n, d):
    """Return a regression with about twenty non-zero coefficients."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    prior_odds = 0.1 * n / d
    w = np.where(rng.random(d) < prior_odds, rng.normal(size=d), 0)
    y = X @ w + 0.1 * rng.normal(size=n)
    return mf.SparseLinearModel(X, y, 0.01, mf.GaussBernoulli(np.zeros(d), 1, np.log(prior_odds)))


def numpy_iterations(model, n_iter, damping=0.1):
    """Run parallel expectation propagation in NumPy, without checks."""
    X, y, s2, prior = model.X, model.y, model.noise_variance, model.prior
    odds = np.exp(prior.log_odds)
    var = odds / (1 + odds) / prior.precision
    t1, t2 = np.zeros(len(var)), 1 / var
    for _ in range(n_iter):
        t2 = np.maximum(t2, 1e-3)
        scaled = X / np.sqrt(t2)
        B = s2 * np.eye(len(y)) + scaled @ scaled.T
        inverse = np.linalg.inv(B)
        product = inverse @ X
        var = (1 - np.einsum("ij,ij->j", X, product) / t2) / t2
        mean = (t1 + (y - X @ (t1 / t2)) @ product) / t2
        a = 1 / var - t2
        b = mean / var - t1
        s = 1 / (prior.precision + a)
        mu = s * b
        p = 1 / (1 + np.exp(-prior.log_odds - (np.log(prior.precision * s) + mu * b) / 2))
        tilted = p * (s + mu * mu) - (p * mu) ** 2
        precision = np.minimum(1 / tilted, 1e9 * np.maximum(abs(a), 1))
        t1 = damping * t1 + (1 - damping) * (p * mu * precision - b)
        t2 = damping * t2 + (1 - damping) * (precision - a)
    return mean


def ep_points(options):
    """Yield points by features, rows and threads; weak scaling increases the features."""
    n, d, features = {True: (30, 150, (60, 150)), False: (200, 5000, (1000, 5000, 10_000, 50_000))}[
        options.quick
    ]
    for size in features:
        # With 50,000 features, 100 rows hardly determine the ten that matter: fits take minutes.
        for task in ("iteration", "parallel", "convergent")[: 3 if size <= 10_000 else 1]:
            yield Point("features", size, task, "float64", (size,), n // 2, options.threads)
    for rows in (n // 2, n, 2 * n):
        yield Point("rows", rows, "iteration", "float64", (d,), rows, options.threads)
    for point in over_threads("iteration", "float64", (d,), n, options):
        weak = point.axis == WEAK
        yield point._replace(n_rows=n, size=(d * point.threads,)) if weak else point


def ep(point, options):
    """Time an iteration or a fit, also in NumPy except for the convergent double loop."""
    model = regression(point.n_rows, *point.size)
    solve = partial(mf.expectation_propagation, model, n_threads=point.threads)
    n_fit = solve().n_iter
    if point.task != "iteration":
        solvers = {"fastmf": partial(solve, schedule=point.task)}
        solvers["fastmf"]()
        if point.task == "parallel":
            solvers["NumPy"] = partial(numpy_iterations, model, n_fit)
        return solvers, dict
    n = min(n_fit, 10)
    ours, theirs = partial(solve, max_iter=n, tol=0), partial(numpy_iterations, model, n)

    def one_blas_thread():
        with timing.blas_threads(1):
            return timed(theirs) / n

    solvers = {
        "fastmf": lambda: timed(ours) / n,
        "NumPy": lambda: timed(theirs) / n,
        "NumPy, one thread": one_blas_thread,
    }
    # The products of two symmetric or triangular matrices with the features.
    return solvers, lambda: {"operations": 2.0 * point.n_rows**2 * point.size[0]}


# --- fully visible machines ---------------------------------------------------------------------


def chain(n_units, n_rows, agreement=0.75, seed=0):
    """Draw rows of a Markov chain along the units, which is a fully visible machine."""
    rng = np.random.default_rng(seed)
    agrees = rng.random((n_rows, n_units)) < agreement
    agrees[:, 0] = rng.random(n_rows) < 0.6
    return np.cumprod(np.where(agrees, 1.0, -1.0), axis=1)


def fvbm_points(options):
    """Yield points by units and threads."""
    n, units = {True: (640, (5, 10)), False: (16_000, (20, 40, 100, 200, 1000))}[options.quick]
    for d in units:
        for task in ("fit", "errors")[: 2 if d <= 40 else 1]:
            yield Point("units", d, task, "float64", (d,), n, options.threads)
    yield from over_threads("fit", "float64", (units[-1],), n, options)


def fvbm(point, options):
    """Time a fit of raw rows, with the decision on existence, and optionally standard errors."""
    (d,) = point.size
    X = chain(d, point.n_rows)
    learner = mf.FullyVisibleBoltzmannMachine(n_threads=point.threads)
    learner.fit(X)
    solvers = {"fastmf": partial(learner.fit, X)}
    if point.task == "errors":
        solvers = {"fastmf": lambda: learner.fit(X).standard_errors()}
    # Each evaluation of the objective has one product for fields and one for the gradient.
    n_distinct = len(np.unique(X, axis=0))
    return solvers, lambda: {"operations": 4.0 * n_distinct * d * d * len(learner.history_)}


# --- tables and pictures ------------------------------------------------------------------------

TASKS = {
    "tap": (tap_points, tap),
    "bp": (bp_points, bp),
    "ep": (ep_points, ep),
    "fvbm": (fvbm_points, fvbm),
}


def measure(name, options):
    """Measure all points of a task; write the table and the figure."""
    points, problem = TASKS[name]
    table = []
    with open(options.output / f"scaling_{name}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow((*Point._fields, "who", "seconds"))
        for point in points(options):
            with timing.pinned(point.threads):
                solvers, work = problem(point, options)
                times = interleaved(solvers, options.repeats, 0 if options.quick else REST)
                medians = {who: np.median(seconds) for who, seconds in times.items()}
                least = ceiling(point, options.quick, **work())
            for who, seconds in (medians | ({"ceiling": least} if least else {})).items():
                table.append((point, who, seconds))
                size = " x ".join(map(str, point.size))
                row = *point._replace(size=size), who, f"{seconds:.4g}"
                writer.writerow(row)
                print(" ".join(f"{value!s:>11}" for value in row), flush=True)
            file.flush()
    draw(table, options.output / f"scaling_{name}.png")


def draw(table, path):
    """Draw a panel for each axis, with dotted ceilings."""
    from matplotlib.figure import Figure

    curves = {}
    for point, who, seconds in table:
        key = point.axis, who, point.task, point.dtype
        curves.setdefault(key, []).append((point.x, seconds))
    axes, names = (list(dict.fromkeys(key[k] for key in curves)) for k in (0, 1))
    tasks = list(dict.fromkeys(key[2:] for key in curves))
    names.sort(key="ceiling".__eq__)
    styles = dict(zip(names, ("-o", "--s", "--^", "--v"), strict=False)) | {"ceiling": ":"}
    figure = Figure(figsize=(4.2 * len(axes), 5), layout="constrained")
    panels = dict(zip(axes, figure.subplots(1, len(axes), squeeze=False)[0], strict=True))
    for (axis, who, *task), points in curves.items():
        style = {"color": f"C{tasks.index(tuple(task))}", "label": ", ".join((who, *task))}
        panels[axis].loglog(*zip(*sorted(points), strict=True), styles[who], markersize=4, **style)
    for axis, panel in panels.items():
        panel.set(xlabel=axis)
        panel.grid(alpha=0.3, which="both")
        # Place the legend below the panel.
        panel.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    panels[axes[0]].set_ylabel("seconds")
    figure.savefig(path, dpi=150)


def main(argv=None):
    """Measure the tasks named on the command line."""
    command_line = timing.parser(__doc__)
    add = command_line.add_argument
    add("tasks", nargs="+", choices=TASKS)
    add("--quick", action="store_true", help="small problems: does it run?")
    add("--threads", type=int, default=timing.THREADS, metavar="N", help="at most [cores]")
    add("--repeats", type=int, metavar="N", help="rounds that take turns [7; 3 if quick]")
    add("--output", type=Path, default=Path("."), metavar="FOLDER", help="[here]")
    options = command_line.parse_args(argv)
    options.repeats = options.repeats or (3 if options.quick else 7)
    options.types = ("float32",) if options.quick else ("float64", "float32")
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.tasks:
        measure(name, options)


if __name__ == "__main__":
    main()
