"""Time of distributed learning and inference against the number of workers, on one machine.

Writes scaling_distributed.csv and scaling_distributed.png. Strong scaling: the same rows for any
number of workers; weak scaling: so many rows for each. Every worker is a process of one thread.
The first run on each cluster, which loads the compiled code, is not on the clock. The line "plain"
is the same learning without Dask, in one thread: what the tasks cost is the distance to it.
"""

import argparse
import csv
import os
from pathlib import Path

import numpy as np
from timing import blas_threads, images, interleaved, median

import fastmf as mf
from fastmf import distributed as spread
from fastmf.learning.settings import Settings
from fastmf.learning.trainer import train

FIELDS = ("task", "scaling", "workers", "n_rows", "n_hidden", "batch_size", "seconds")


def machine(n_hidden):
    """An RBM before learning."""
    weights = np.random.default_rng(0).normal(scale=0.01, size=(784, n_hidden)).astype(np.float32)
    zeros = (np.zeros(n, np.float32) for n in weights.shape)
    return mf.RBM(weights, *(mf.Bernoulli(field) for field in zeros))


def measure(n_workers, n_rows, arguments):
    """Median seconds of an epoch and of a solve, by name; without workers, of the plain epoch."""
    X, model = images(n_rows).astype(np.float32), machine(arguments.hidden)
    settings = Settings(n_epochs=1, batch_size=arguments.batch, monitor_rows=10)
    if not n_workers:
        with blas_threads(1):
            plain = {"epoch": lambda: train(model, X, settings, seed=0, n_threads=1) and None}
            plain["epoch"]()
            return {name: median(t) for name, t in interleaved(plain, arguments.repeats).items()}
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        rows = da.from_array(X, chunks=(arguments.chunk, -1)).persist()
        wait(rows)

        def epoch():
            spread.train(model, rows, settings, seed=0, chunk_rows=arguments.chunk)

        def solve():
            spread.tap(model, rows, max_iter=20).log_partition.compute()

        contestants = {"epoch": epoch, "tap": solve}
        for run in contestants.values():
            run()
        return {name: median(t) for name, t in interleaved(contestants, arguments.repeats).items()}


def plot(table, path):
    """Speed-up over one worker, rows a second, with the line of ideal scaling."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(4.4, 3.6), layout="constrained")
    for task, colour in (("epoch", "C0"), ("tap", "C1")):
        for scaling, style in (("strong", "-o"), ("weak", "--s")):
            points = [r for r in table if (r["task"], r["scaling"]) == (task, scaling)]
            speed = [(r["workers"], r["n_rows"] / r["seconds"]) for r in points]
            base = speed[0][1]
            panel.plot(*zip(*((n, s / base) for n, s in speed), strict=True), style, color=colour,
                       label=f"{task}, {scaling}")  # fmt: skip
    most = max(row["workers"] for row in table)
    panel.plot([1, most], [1, most], ":", color="grey", label="ideal")
    panel.set(xlabel="workers", ylabel="rows a second, over one worker")
    panel.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def main():
    """Measure, write the table, draw it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=8192, help="of an epoch (default 8192)")
    parser.add_argument("--hidden", type=int, default=500, help="hidden units (default 500)")
    parser.add_argument("--batch", type=int, default=2048, help="rows of a step (default 2048)")
    parser.add_argument("--chunk", type=int, default=256, help="rows of a task (default 256)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--workers", type=int, nargs="+", help="default: 1, 2, 4, ... cores")
    parser.add_argument(
        "--output", type=Path, default=Path("."), metavar="FOLDER", help="default: here"
    )
    arguments = parser.parse_args()
    cores = os.cpu_count() or 1
    workers = arguments.workers or [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= cores]
    arguments.output.mkdir(parents=True, exist_ok=True)
    points = [("plain", 0, arguments.rows)]
    points += [("strong", n, arguments.rows) for n in workers]
    points += [("weak", n, arguments.rows * n // max(workers)) for n in workers]
    table = []
    with open(arguments.output / "scaling_distributed.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for scaling, n_workers, n_rows in points:
            for task, seconds in measure(n_workers, n_rows, arguments).items():
                values = (
                    task,
                    scaling,
                    n_workers,
                    n_rows,
                    arguments.hidden,
                    arguments.batch,
                    seconds,
                )
                table.append(dict(zip(FIELDS, values, strict=True)))
                writer.writerow(table[-1])
                print(" ".join(f"{value!s:>10.10}" for value in values), flush=True)
            file.flush()
    plot(table, arguments.output / "scaling_distributed.png")


if __name__ == "__main__":
    main()
