#!/usr/bin/env python3
"""Likelihoods of RBMs trained by mean field and by sampling.

Trains an RBM on binary MNIST by each method, and evaluates it after some of the epochs by annealed
importance sampling: the log-likelihood of test images in nats, from below and above. Writes into a
folder quality.csv, quality.png (log-likelihood by seconds of training), and prints a table.
"""

import time

import experiment
import numpy as np
from matplotlib.figure import Figure

import fastmf as mf
from fastmf.evaluation import log_likelihood

BATCH = 100
PCD = "PCD-1 (scikit-learn)"
NOISE = {"starts": "noise"}
CENTRED = {"centred": True}
BEST = {"n_sweeps": 10, "momentum": 0.9, "learning_rate": (0.05, 0.005)}
FALLING = {"n_sweeps": 3, "momentum": 0.9, "l2": 1e-4, "learning_rate": (0.05, 0.002)}
# Uncentred unless said, to see what each part gives.
METHODS = {
    "TAP, centred": {"n_sweeps": 3, **CENTRED},
    "TAP, centred, 10 sweeps": {"n_sweeps": 10, **CENTRED},
    "TAP, centred, best found": {**BEST, **CENTRED},
    "TAP": {"n_sweeps": 3},
    "TAP, 10 sweeps": {"n_sweeps": 10},
    "TAP, flipped starts": {"n_sweeps": 3, **NOISE},
    "TAP, flipped starts, 10 sweeps": {"n_sweeps": 10, **NOISE},
    "TAP, persistent": {"n_sweeps": 3, "starts": "persistent"},
    "TAP, falling rate": {"n_sweeps": 3, "learning_rate": (0.1, 0.005)},
    "TAP, momentum 0.9": {"n_sweeps": 3, "momentum": 0.9, "learning_rate": 0.01},
    "TAP, best found": BEST,
    "TAP, no decay": {"n_sweeps": 3, "l2": 0.0},
    **{f"TAP, momentum, {n} starts": {**FALLING, **CENTRED, "n_starts": n} for n in (100, 50, 25)},
    "naive mean field": {"gradient": "mean_field", "n_sweeps": 3},
    "CD-1": {"gradient": "cd", "n_sweeps": 1},
    "CD-1, centred": {"gradient": "cd", "n_sweeps": 1, **CENTRED},
    "PCD-1": {"gradient": "pcd", "n_sweeps": 1},
    "PCD-1, centred": {"gradient": "pcd", "n_sweeps": 1, **CENTRED},
    PCD: {},
}
FIELDS = ("method", "epoch", "seconds", "from_below", "error", "from_above")


def main(argv=None):
    options = parser().parse_args(argv)
    if options.quick:
        options.rows, options.test_rows, options.hidden = 1000, 100, 10
        options.epochs, options.chains, options.steps = [1, 2], 20, 50
    folder = experiment.folder(options, "training-quality")
    train, test = (experiment.images("binary", options.data, s).X for s in ("train", "test"))
    rows = np.random.default_rng(options.seed).permutation(len(train))[: options.rows]
    X, test = train[rows], test[: options.test_rows]
    results = []
    for name in options.methods:
        follow = by_scikit_learn if name == PCD else by_fastmf
        try:
            machines = follow(METHODS[name], X, options)
        except ImportError:
            print(f"{name}: left out, scikit-learn is not installed")
            continue
        for epoch, seconds, model in machines:
            results.append((name, epoch, seconds, *quality(model, test, X, options)))
            print(line(results[-1]), flush=True)
    experiment.table(folder / "quality.csv", FIELDS, results)
    draw(results, folder / "quality.png")


def parser():
    made = experiment.parser(
        __doc__, "seed", "threads", "data", "output", quick="10 hidden units, 1000 images, 2 epochs"
    )
    add = made.add_argument
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME",
        help="of " + ", ".join(f'"{name}"' for name in METHODS) + " [all]")  # fmt: skip
    add("--hidden", type=int, default=100, metavar="N", help="hidden units [100]")
    add("--rows", type=int, default=10_000, metavar="N", help="training images [10000]")
    add("--test-rows", type=int, default=10_000, metavar="N", help="test images [10000]")
    add("--epochs", type=int, nargs="+", default=[1, 2, 5, 10, 20], metavar="N",
        help="epochs after which to evaluate; the last ends training [1 2 5 10 20]")  # fmt: skip
    add("--learning-rate", type=float, default=0.05, metavar="RATE", help="[0.05]")
    add("--chains", type=int, default=100, metavar="N", help="of the evaluation [100]")
    add("--steps", type=int, default=1000, metavar="N", help="of the evaluation [1000]")
    return made


def by_fastmf(settings, X, options):
    """(epoch, seconds, model) after each of the epochs, by this package."""
    machines = []

    def look(state):
        if state.epoch in options.epochs:
            machines.append((state.epoch, time.perf_counter() - start, state.model))

    def learner(n_epochs, callbacks):
        common = {"learning_rate": options.learning_rate, "centred": False, "l2": 0.001}
        return mf.GeneralizedRBM(
            options.hidden,
            **common | settings,
            batch_size=BATCH,
            n_epochs=n_epochs,
            callbacks=callbacks,
            n_threads=options.threads,
            random_state=options.seed,
        )

    learner(1, []).fit(X[:200])  # compiles
    start = time.perf_counter()
    learner(max(options.epochs), [look]).fit(X)
    return machines


def by_scikit_learn(settings, X, options):
    """The same by scikit-learn's BernoulliRBM."""
    from sklearn.neural_network import BernoulliRBM

    rng = np.random.default_rng(options.seed)
    learner = BernoulliRBM(  # its number of chains is batch_size, also where it is given batches
        options.hidden, batch_size=BATCH, random_state=options.seed,
        **{"learning_rate": options.learning_rate, **settings},
    )  # fmt: skip
    machines, start = [], time.perf_counter()
    for epoch in range(1, max(options.epochs) + 1):
        order = rng.permutation(len(X))
        for first in range(0, len(X), BATCH):
            learner.partial_fit(X[order[first : first + BATCH]])
        if epoch in options.epochs:
            visible, hidden = learner.intercept_visible_, learner.intercept_hidden_
            parts = learner.components_.T, mf.Bernoulli(visible), mf.Bernoulli(hidden)
            machines.append((epoch, time.perf_counter() - start, mf.RBM(*parts)))
    return machines


def quality(model, test, X, options):
    """Log-likelihood of the test images by annealing from both ends, and its error."""
    annealed = mf.evaluation.annealed_importance_sampling(
        model, options.chains, options.steps, data=X[: options.chains], rng=options.seed,
        n_threads=options.threads,
    )  # fmt: skip
    numerator = log_likelihood(model, test, 0.0).mean()
    error = np.hypot(annealed.error, annealed.reverse_error)
    return numerator - annealed.reverse, error, numerator - annealed.log_partition


def line(result):
    """One result as a row of the table."""
    name, epoch, seconds, below, error, above = result
    return f"| {name} | {epoch} | {seconds:.1f} | {below:.1f} | {above:.1f} | {error:.2f} |"


def draw(results, path):
    """Log-likelihood by seconds of training."""
    ax = Figure(figsize=(8, 5), layout="constrained").subplots()
    for name in dict.fromkeys(result[0] for result in results):
        points = [(r[2], (r[3] + r[5]) / 2) for r in results if r[0] == name]
        ax.plot(*zip(*points, strict=True), marker="o", label=name)
    ax.set(xscale="log", xlabel="seconds of training", ylabel="log-likelihood of test images, nats")
    ax.legend(fontsize=8)
    experiment.picture(ax, path)


if __name__ == "__main__":
    experiment.run(main)
