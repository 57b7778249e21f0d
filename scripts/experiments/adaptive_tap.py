#!/usr/bin/env python3
"""TAP and adaptive TAP in training: Fig. 10 of Tramel et al., Phys. Rev. X 8 (2018) 041006.

Writes, as PNG and CSV, into a folder:

  cost      CPU time per iteration and batch, by the number of starts in the batch
  training  pseudo-likelihood of test images by epoch of machines trained by either method with
            several numbers of iterations a step; printed beside it, the log-likelihood at the end
            by annealed importance sampling

A run that was stopped resumes if it is started again with the same options and the same folder, at
the last epoch that was finished; --hours 0 draws the results so far.
"""

import json
import time

import experiment
import numpy as np

import fastmf as mf
from fastmf import plotting
from fastmf.evaluation import log_likelihood
from fastmf.inference.ep.adaptive_tap import parallel_sweeps_alone

METHODS = {"tap": "TAP", "adaptive_tap": "adaptive TAP"}
# Test images on which machines are measured after each epoch.
TEST_ROWS = 200
# Iterations that are timed, from the second on, and how often: each time a number of runs together.
FEW, MANY, REPEATS, RUNS = 2, 12, 3, {"tap": 20, "adaptive_tap": 1}


def main(argv=None):
    options = parser().parse_args(argv)
    if options.quick:
        options.rows, options.hidden, options.epochs = 500, 30, 3
        options.iterations, options.batch_sizes = [3, 10], [1, 10, 50]
    folder = experiment.folder(options, "adaptive-tap")
    if options.paper:
        options.hidden, options.learning_rate, options.rows = 500, 0.001, 5000
    X, test = (part.X for part in experiment.train_and_test("binary", options, TEST_ROWS))
    dtype = np.float32 if options.single else float
    X, test = X.astype(dtype), test.astype(dtype)
    if not (folder / "cost.csv").exists():
        first = cost(X, options, folder)
        print(f"at {options.batch_sizes[-1]} starts adaptive TAP takes {first:.1f} times as long")
    training(X, test, options, folder)


def parser():
    made = experiment.parser(
        __doc__, "seed", "data", "output", quick="30 hidden units, 3 epochs, 500 images"
    )
    add = made.add_argument
    add("--hidden", type=int, default=100, metavar="N", help="hidden units [100]")
    add("--epochs", type=int, default=10, metavar="N", help="[10]")
    add("--rows", type=int, default=5000, metavar="N", help="training images [5000]")
    add("--learning-rate", type=float, default=0.05, metavar="RATE", help="[0.05]")
    several = {"type": int, "nargs": "+", "metavar": "N"}
    add("--iterations", default=[3, 10, 100], help="of a step of learning [3 10 100]", **several)
    add("--batch-sizes", default=[1, 3, 10, 30, 100], help="timed [1 3 10 30 100]", **several)
    add("--begin", type=int, default=0, metavar="N",
        help="epochs of TAP that all machines begin with [0]")  # fmt: skip
    add("--solutions", type=int, metavar="N", help="a step [one an image, 100]")
    add("--single", action="store_true", help="single precision")
    add("--hours", type=float, default=float("inf"), metavar="HOURS",
        help="of each machine, after which it is left as it is [no limit]")  # fmt: skip
    add("--paper", action="store_true",
        help="784 x 500, 5000 images, rate 0.001, damping 0.5, no centring")  # fmt: skip
    return made


def learner(method, iterations, options, **others):
    settings = experiment.TABLE_1["binary"] | {"learning_rate": options.learning_rate}
    return mf.GeneralizedRBM(
        options.hidden,
        gradient=method,
        n_sweeps=iterations,
        n_starts=options.solutions,
        damping=0.5 if options.paper and method == "adaptive_tap" else None,
        centred=not options.paper,
        random_state=options.seed,
        **settings,
        **others,
    )


def cost(X, options, folder):
    """Time of an iteration by batch size, in a machine of one epoch; adaptive TAP over TAP."""
    model = learner("tap", 3, options, n_epochs=1).fit(X).model_
    solvers = {
        "tap": lambda starts, n: mf.tap(model, starts, max_iter=n, tol=0, log_partition=False),
        "adaptive_tap": lambda starts, n: parallel_sweeps_alone(model, starts, max_iter=n, tol=0),
    }
    curves = {name: [] for name in METHODS.values()}
    for size in options.batch_sizes:
        starts = X[np.arange(size) % len(X)]
        for method, name in METHODS.items():
            # The difference excludes the cost of the first iteration.
            runs = (cost_of(solvers[method], starts, n, RUNS[method]) for n in (FEW, MANY))
            (few, n_few), (many, n_many) = runs
            curves[name].append(1e3 * (many - few) / (n_many - n_few))
    ax = plotting.curves_by_epoch(options.batch_sizes, curves)
    label = "milliseconds of CPU time per iteration"
    ax.set(xlabel="starts", ylabel=label, xscale="log", yscale="log")
    rows = zip(options.batch_sizes, *curves.values(), strict=True)
    report(folder, "cost", ax, ("starts", *curves), rows)
    tap, adaptive = (curve[-1] for curve in curves.values())
    return adaptive / max(tap, 1e-9)


def cost_of(solve, starts, max_iter, n_runs):
    """Seconds of CPU time of a run, the least of some, and its iterations, averaged over starts.

    Of CPU time, as others may use the machine; TAP may end before `max_iter`.
    """
    n_iter = solve(starts, max_iter).n_iter.mean()
    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        for _ in range(n_runs):
            solve(starts, max_iter)
        times.append((time.process_time() - begin) / n_runs)
    return min(times), n_iter


def training(X, test, options, folder):
    """Machines by epoch."""
    rows = []
    for method, name in METHODS.items():
        for n in options.iterations:
            run = trained(method, n, X, test, options, folder)
            rows += [(name, n, *row) for row in zip(run["epoch"], run["pseudo"], strict=True)]
            last = f"{run['pseudo'][-1]:8.2f}" if run["epoch"] else "none"
            print(
                f"{name + f', {n} iterations':28} epoch {run['epoch'][-1:]}: pseudo-likelihood "
                f"{last}, log-likelihood (AIS) {run['annealed']:8.2f}, "
                f"{run['seconds']:.0f} s of CPU time",
                flush=True,
            )
    if rows:
        header = "method", "iterations", "epoch", "pseudo_likelihood"
        report(folder, "training", draw(rows), header, rows)


def draw(rows):
    """Axes with the pseudo-likelihoods of rows of (method, iterations, epoch, value)."""
    ax, curves = None, {}
    for name, n, *point in rows:
        curves.setdefault(f"{name}, {n:.0f} iterations", []).append(point)
    for label, points in curves.items():
        epoch, values = zip(*points, strict=True)
        axis = "pseudo-likelihood (nats an image)"
        ax = plotting.curves_by_epoch(epoch, {label: values}, label=axis, ax=ax)
    return ax


class Record:
    """A callback that measures each epoch, keeps it in a file, and ends after some seconds."""

    def __init__(self, path, test, seconds, begin):
        self.path, self.test, self.limit = path, test, time.perf_counter() + seconds
        self.first = begin
        self.measures = {"epoch": [], "pseudo": [], "seconds": 0.0}
        if path.exists():
            self.measures = json.loads(path.read_text())
        self.begin = time.process_time() - self.measures["seconds"]

    def __call__(self, state):
        """Whether to end."""
        measures, epoch = self.measures, state.epoch + self.first
        if epoch not in measures["epoch"]:
            pseudo = mf.evaluation.pseudo_log_likelihood(state.model, self.test).mean()
            measures["epoch"].append(epoch)
            measures["pseudo"].append(float(pseudo))
            measures["seconds"] = time.process_time() - self.begin
            self.path.write_text(json.dumps(measures))
        return time.perf_counter() > self.limit


def trained(method, iterations, X, test, options, folder):
    """Measures of one machine by epoch, and the seconds of training."""
    path = folder / f"training-{method}-{iterations}.json"
    record = Record(path, test, 3600 * options.hours, options.begin)
    measures = record.measures
    if options.hours == 0 or "annealed" in measures:
        return {"annealed": np.nan} | measures
    run = {"callbacks": [record, mf.evaluation.Checkpoint(path.with_suffix(".npz"))]}
    run |= {"n_epochs": options.epochs - options.begin}
    if options.begin:
        checkpoint = mf.evaluation.Checkpoint(folder / f"begin-{iterations}.npz")
        first = {"n_epochs": options.begin, "callbacks": [checkpoint]}
        run["init"] = learner("tap", iterations, options, **first).fit(X).model_
    model = learner(method, iterations, options, **run).fit(X).model_
    annealed = mf.evaluation.annealed_importance_sampling(
        model, n_steps=300, data=X[:100], rng=options.seed
    )
    measures["annealed"] = float(log_likelihood(model, test, annealed.log_partition).mean())
    if measures["epoch"][-1] == options.epochs:
        path.write_text(json.dumps(measures))
    return measures


def report(folder, name, ax, header, rows):
    """The picture and the numbers in it."""
    experiment.picture(ax, folder / f"{name}.png")
    experiment.table(folder / f"{name}.csv", header, rows)


if __name__ == "__main__":
    experiment.run(main)
