"""Log-likelihood of test images by machines trained in some minutes on two cores, seed by seed.

Trains an RBM, or a deep machine whose layers are added to an RBM, by persistent chains, and
evaluates it by annealed importance sampling from both ends; of a deep machine its variational lower
bound. Each seed is a line of record.csv in the folder --output.
"""

import pickle
from argparse import Namespace
from functools import partial

import experiment
import numpy as np

import fastmf as mf
from fastmf.evaluation import Checkpoint, IterateAverage, log_likelihood
from fastmf.evaluation.log_partition import annealed_quietly


def drawn(folder, split, n_draws=1):
    """MNIST with pixels that are 1 with the probability of their grey level, drawn `n_draws` times.

    Test images are drawn once, and the same whatever `n_draws`.
    """
    X = experiment.images("real", folder, split).X
    rng = np.random.default_rng(["train", "test"].index(split))
    draws = [rng.random(X.shape, X.dtype) < X for _ in range(n_draws if split == "train" else 1)]
    return np.concatenate(draws).astype(X.dtype)


# In "mnist", grey levels above 1/2 are 1. An epoch of "mnist-redrawn" is as long as ten others.
DATA = {
    "mnist": lambda folder, split: experiment.images("binary", folder, split).X,
    "mnist-drawn": drawn,
    "mnist-redrawn": partial(drawn, n_draws=10),
    "silhouettes": experiment.silhouettes,
}
RECIPE = {
    "gradient": "pcd", "n_sweeps": 1, "batch_size": 100,
    "momentum": 0.0, "l2": 0.0, "weight_scale": 0.01,
}  # fmt: skip
# What is added to it: the faster the model moves, the more chains it takes to follow. At first
# rates the noise of steps costs many nats.
PRECONDITIONED = {"preconditioning": 0.1, "n_starts": 500, "learning_rate": (8.0, 0.0)}
ORDINARY = {"n_starts": 300, "learning_rate": (0.1, 0.0)}
# `l1` along preconditioned gradients, without which training images get ahead of test images.
DECAY = 1e-4
# Of layers added to an RBM that is trained already.
ADDED = PRECONDITIONED | {"n_starts": 300, "learning_rate": (0.5, 0.0)}
# Fraction of the epochs, the last ones, that is averaged: 0 for the last one alone.
AVERAGED = {"ordinary": 0.25, "preconditioned": 0}
# Largest gap between both ends, and standard error of each, in nats, at which they are closed.
MAX_ERROR = 0.05


def main(argv=None):
    options = parser().parse_args(argv)
    folder = experiment.folder(options, "record")
    if options.l1 is None:
        options.l1 = 0.0 if options.ordinary else DECAY
    train, test = (DATA[options.data_set](options.data, split) for split in ("train", "test"))
    train = train[: options.rows]
    rows, results = [], experiment.Results(folder / "record.jsonl")
    for seed in range(options.seed, options.seed + options.seeds):
        run = run_of(options, len(train), seed)
        name = "-".join(map(str, run.values()))
        rows.append(results.get(name, trained, train, test, run, folder, options))
        experiment.table_of(folder / "record.csv", list(results.values.values()))
        print(*(f"{name} {value}" for name, value in rows[-1].items()), sep="  ", flush=True)
    print(summary(rows))


def parser():
    made = experiment.Parser(
        __doc__, "seed", "threads", "data", "output",
        quick={"rows": 1000, "epochs": 4, "hidden": [10], "chains": 20, "steps": 50,
               "max_steps": 50},
        hidden=([500], "units of each layer"), epochs=40, rows=(int, "training images"),
        ordinary=(False, "ordinary gradients, without preconditioning"),
        l1=(float, "[0.0001, with --ordinary 0]"), seeds=3, chains=(300, "of annealing"), steps=500,
        max_steps=(64000, "of annealing, doubled up to these until both ends close"),
    )  # fmt: skip
    made.add_argument("--data-set", choices=DATA, default="mnist", help="[mnist]")
    return made


def run_of(options, n_rows, seed):
    """What tells a seed from others, by column."""
    sizes = "-".join(map(str, options.hidden))
    epochs = f"{options.epochs}+1" if stacked(options) else options.epochs
    gradient = "ordinary" if options.ordinary else "preconditioned"
    return {
        "data_set": options.data_set, "hidden": sizes, "epochs": epochs, "rows": n_rows,
        "seed": seed, "gradient": gradient, "l1": options.l1,
    }  # fmt: skip


def stacked(options):
    """Whether an RBM is trained first, and layers are added to it."""
    return len(options.hidden) > 1 and not options.ordinary


def trained(train, test, run, folder, options):
    """Train a machine, save it, or its average, and give its figures."""
    last, average, seconds = learned(train, run, folder, options)
    figures = quality(average, train, test, run["seed"], options)
    of_last = figures if last is average else quality(last, train, test, run["seed"], options)
    figures["last_iterate"] = round((of_last["from_above"] + of_last["from_below"]) / 2, 2)
    times = zip(("seconds", "cpu_seconds"), seconds, strict=True)
    figures |= {name: round(float(value), 1) for name, value in times}
    return run | figures


def learned(train, run, folder, options):
    """The last model of a run, the one that counts, and the seconds that it took."""
    name, seed = "-".join(map(str, run.values())), run["seed"]
    init, before, n_epochs = None, (0.0, 0.0), options.epochs
    if stacked(options):
        below = Namespace(**vars(options) | {"hidden": options.hidden[:1]})
        _, init, before = learned(train, run_of(below, len(train), seed), folder, below)
        n_epochs = 1  # of all layers, after those of the lowest
    averaged = AVERAGED[run["gradient"]]
    first = n_epochs - max(1, round(averaged * n_epochs)) + 1
    file = folder / f"{name}.average.pickle"  # with which an interrupted run resumes
    average = pickle.loads(file.read_bytes()) if file.exists() else IterateAverage(first)
    learner(1, seed, options, init).fit(train[:200])  # compiles
    clock = experiment.Epochs(folder / f"{name}.seconds.json")
    callbacks = [average, clock, Checkpoint(folder / f"{name}.checkpoint.npz")]
    callbacks.append(lambda state: file.write_bytes(pickle.dumps(average)) == 0)
    last = learner(n_epochs, seed, options, init, callbacks=callbacks).fit(train).model_
    average.model.save(folder / f"{name}.npz")
    seconds = np.add(before, clock.rows[-1][1:3])
    return last, average.model if averaged else last, seconds


def learner(n_epochs, seed, options, init=None, **others):
    rates = ORDINARY if options.ordinary else PRECONDITIONED
    rates = rates if init is None else ADDED
    if len(options.hidden) > 1:
        sizes = tuple(options.hidden)
        estimator = partial(mf.DeepBoltzmannMachine, sizes, pretraining_epochs=0, init=init)
    else:
        estimator = partial(mf.GeneralizedRBM, *options.hidden, l1=options.l1)
    return estimator(
        n_epochs=n_epochs, n_threads=options.threads, random_state=seed,
        **(RECIPE | rates | others),
    )  # fmt: skip


def quality(model, train, test, seed, options):
    """Log-likelihoods of a model, from above and below, and how its annealing ended."""
    annealed = annealed_quietly(
        model, options.chains, options.steps, data=train[: options.chains],
        max_steps=max(options.steps, options.max_steps), tolerance=MAX_ERROR,
        n_threads=options.threads, rng=seed,
    )  # fmt: skip
    bound = {"order": 1, "max_iter": 500, "tol": 1e-6} if model.deep else {}
    of_test, of_train = (
        np.concatenate(
            [log_likelihood(model, some, 0.0, **bound) for some in np.array_split(X, 10)]
        )
        for X in (test, train)
    )
    figures = {
        "from_above": of_test.mean() - annealed.log_partition,
        "from_below": of_test.mean() - annealed.reverse,
        "error": np.hypot(annealed.error, annealed.reverse_error),
        "gap": annealed.gap,
        "train": of_train.mean() - (annealed.log_partition + annealed.reverse) / 2,
    }
    rounded = {name: round(float(value), 2) for name, value in figures.items()}
    return rounded | {"n_steps": annealed.n_steps, "converged": annealed.converged}


def summary(rows):
    """Mean and spread over the seeds."""
    parts = []
    for name in ("from_above", "from_below", "train", "last_iterate", "seconds", "cpu_seconds"):
        values = np.array([row[name] for row in rows])
        parts.append(f"{name} {values.mean():.2f} ({values.min():.2f} to {values.max():.2f})")
    closed = sum(row["converged"] for row in rows)
    return f"{len(rows)} seeds, {closed} with both ends closed: mean (range) " + ", ".join(parts)


if __name__ == "__main__":
    experiment.run(main)
