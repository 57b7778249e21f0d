#!/usr/bin/env python3
"""Time of expectation propagation against the number of features: ours and plain NumPy.

Writes scaling_ep.csv and scaling_ep.png. Each point is the median of repeats that take turns. The
NumPy side is the same parallel iteration in n_rows-space with matrix products in NumPy, the moments
as array expressions; both sides use as many threads, of BLAS and of kernels, as --threads says.
"""

import argparse
import csv
import time
from functools import partial
from pathlib import Path

import numpy as np
from timing import blas_threads, interleaved, median, ratio

import fastmf as mf

FIELDS = ("task", "n_rows", "n_features", "threads", "seconds", "numpy_seconds", "ratio", "n_iter")
SIZES = ((100, 1000), (200, 5000), (100, 10_000), (200, 50_000))


def model(n, d, dtype=np.float64):
    """A regression with some twenty non-zero coefficients."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(dtype)
    w = np.where(rng.random(d) < 0.1 * n / d, rng.normal(size=d), 0)
    y = X @ w + 0.1 * rng.normal(size=n)
    share = 0.1 * n / d
    return mf.SparseLinearModel(X, y, 0.01, mf.GaussBernoulli(np.zeros(d), 1, np.log(share)))


def numpy_iterations(model, n_iter, damping=0.1):
    """Parallel expectation propagation by NumPy, without checks."""
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


def numpy_sweep(model, site):
    """One sequential sweep by NumPy with rank-one updates.

    The updates of the sites themselves, scalars in Python, are left out: they would only add to it.
    """
    X, y = model.X, model.y
    t1, t2 = site
    inverse = np.linalg.inv(model.noise_variance * np.eye(len(y)) + (X / t2) @ X.T)
    g = inverse @ (y - X @ (t1 / t2))
    for i in range(X.shape[1]):
        x = X[:, i]
        z = inverse @ x
        rate = 1e-9 / (1 + 1e-9 * (x @ z))
        inverse -= rate * np.outer(z, z)
        g -= rate * (x @ g) * z


def measure(n, d, arguments):
    """Rows of the table for one size."""
    problem = model(n, d)
    solve = partial(mf.expectation_propagation, problem, n_threads=arguments.threads)
    result = solve()  # compile, and know how many iterations it takes
    n_iter = min(result.n_iter, 10)

    def timed(schedule, k):
        def run():
            start = time.perf_counter()
            solve(schedule=schedule, max_iter=k, tol=0)
            return (time.perf_counter() - start) / k

        return run

    def numpy_timed():
        start = time.perf_counter()
        numpy_iterations(problem, n_iter)
        return (time.perf_counter() - start) / n_iter

    def fitted(schedule):
        return lambda: solve(schedule=schedule) and None

    pairs = {
        "parallel iteration": (timed("parallel", n_iter), numpy_timed),
        "fit, parallel": (fitted("parallel"), lambda: numpy_iterations(problem, result.n_iter)),
        "fit, convergent": (fitted("convergent"), None),
    }
    if d <= 10_000:
        solve(schedule="sequential", max_iter=1)
        pairs["sequential sweep"] = (
            timed("sequential", 2), lambda: numpy_sweep(problem, np.abs(result.sites) + 1e-3)
        )  # fmt: skip
    for task, (ours, theirs) in pairs.items():
        contestants = {"ours": ours} | ({"NumPy": theirs} if theirs else {})
        times = interleaved(contestants, arguments.repeats)
        other = median(times["NumPy"]) if theirs else ""
        yield dict(zip(FIELDS, (task, n, d, arguments.threads, median(times["ours"]), other,
                                ratio(times["NumPy"], times["ours"]) if theirs else "",
                                result.n_iter), strict=True))  # fmt: skip


def plot(table, path):
    """Time against the number of features."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for k, task in enumerate(dict.fromkeys(row["task"] for row in table)):
        for column, style in (("seconds", "-o"), ("numpy_seconds", "--s")):
            points = [(row["n_features"], row[column]) for row in table
                      if row["task"] == task and row[column] != ""]  # fmt: skip
            if points:
                name = task if column == "seconds" else f"{task}, NumPy"
                axes.loglog(*zip(*sorted(points), strict=True), style, color=f"C{k}", label=name)
    axes.set_xlabel("features")
    axes.set_ylabel("seconds")
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3, which="both")
    figure.savefig(path, dpi=150)


def main():
    """Measure, write the table, draw it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="the two smaller sizes")
    add("--threads", type=int, default=2, metavar="N", help="on both sides (default 2)")
    add("--repeats", type=int, metavar="N", help="default 7; 3 with --quick")
    add("--output", type=Path, default=Path("."), metavar="FOLDER", help="default: here")
    arguments = parser.parse_args()
    arguments.repeats = arguments.repeats or (3 if arguments.quick else 7)
    arguments.output.mkdir(parents=True, exist_ok=True)
    table = []
    with (
        blas_threads(arguments.threads),
        open(arguments.output / "scaling_ep.csv", "w", newline="") as file,
    ):
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for n, d in SIZES[:2] if arguments.quick else SIZES:
            for row in measure(n, d, arguments):
                writer.writerow(row)
                file.flush()
                table.append(row)
                print(" ".join(f"{row[name]!s:>19.19}" for name in FIELDS), flush=True)
    plot(table, arguments.output / "scaling_ep.png")


if __name__ == "__main__":
    main()
