"""TAP and adaptive TAP in training: Fig. 10 of Tramel et al., Phys. Rev. X 8 (2018) 041006.

Prints CPU time per iteration and batch, and writes training.png and training.csv (pseudo-likelihood
of test images by epoch) into a folder. Results: tap_machines.md.
"""

import time

import experiment
import numpy as np

import fastmf as mf

METHODS = {"tap": "TAP", "adaptive_tap": "adaptive TAP"}
# Test images on which machines are measured after each epoch.
TEST_ROWS = 200
# Iterations that are timed, from the second on, and how often: each time a number of runs together.
SIZES = 1, 10, 100
FEW, MANY, REPEATS, RUNS = 2, 12, 3, {"tap": 20, "adaptive_tap": 1}


def main(argv=None):
    options = parser().parse_args(argv)
    folder = experiment.folder(options, "adaptive-tap")
    if options.paper:
        options.hidden, options.learning_rate, options.rows = 500, 0.001, 5000
    X, test = (part.X for part in experiment.train_and_test("binary", options, TEST_ROWS))
    dtype = np.float32 if options.single else float
    X, test = X.astype(dtype), test.astype(dtype)
    cost(X, options)
    training(X, test, options, folder)


def parser():
    return experiment.Parser(
        __doc__, "seed", "data", "output",
        quick={"rows": 500, "hidden": 30, "epochs": 3, "iterations": [3, 10]},
        hidden=100, epochs=10, rows=(5000, "training images"), learning_rate=0.05,
        iterations=([3, 10, 100], "of a step of learning"),
        begin=(0, "epochs of TAP that all machines begin with"),
        solutions=(int, "a step [one an image, 100]"), single=(False, "single precision"),
        paper=(False, "784 x 500, 5000 images, rate 0.001, damping 0.5, no centring"),
    )  # fmt: skip


def learner(method, iterations, options, **settings):
    return experiment.machine(
        options, options.hidden, gradient=method, n_sweeps=iterations, n_starts=options.solutions,
        damping=0.5 if options.paper else None, centred=not options.paper,
        learning_rate=options.learning_rate, **settings,
    )  # fmt: skip


def cost(X, options):
    """Print the time of an iteration by number of starts, in a machine of one epoch."""
    model = learner("tap", 3, options, n_epochs=1).fit(X).model_
    options = {"schedule": "parallel", "tol": 0}
    solvers = {
        "tap": lambda starts, n: mf.tap(model, starts, max_iter=n, tol=0, log_partition=False),
        "adaptive_tap": lambda starts, n: mf.adaptive_tap(model, starts, max_iter=n, **options),
    }
    for size in SIZES:
        starts, times = X[np.arange(size) % len(X)], []
        for method, solve in solvers.items():
            # The difference excludes the cost of the first iteration; TAP may end before.
            seconds, n_iter = zip(*(cost_of(solve, starts, n, RUNS[method]) for n in (FEW, MANY)),
                                  strict=True)  # fmt: skip
            times.append(1e3 * np.diff(seconds)[0] / np.diff(n_iter)[0])
        shown = ", ".join(f"{t:.3g} ms by {n}" for t, n in zip(times, METHODS, strict=True))
        print(f"an iteration from {size} starts, CPU time: {shown}")


def cost_of(solve, starts, max_iter, n_runs):
    """Seconds of CPU time of a run, the least of some, and its iterations, averaged over starts."""
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
    rows, curves, results = [], {}, experiment.Results(folder / "training.jsonl")
    for method, name in METHODS.items():
        for n in options.iterations:
            run = results.get(f"{method}-{n}", trained, method, n, X, test, options, folder)
            rows += [(name, n, *point) for point in run["pseudo"]]
            curves[f"{name}, {n} iterations"] = run["pseudo"]
            print(
                f"{name + f', {n} iterations':28} pseudo-likelihood {run['pseudo'][-1][1]:8.2f}, "
                f"log-likelihood (AIS) {run['annealed']:8.2f}, {run['seconds']:.0f} s of CPU time",
                flush=True,
            )
    header = "method", "iterations", "epoch", "pseudo_likelihood"
    experiment.table(folder / "training.csv", header, rows)
    experiment.curves(curves, folder / "training.png", "pseudo-likelihood (nats an image)")


def trained(method, iterations, X, test, options, folder):
    """Pseudo-likelihoods of a machine by epoch, its log-likelihood, and the seconds of training."""

    def pseudo(model):
        return float(mf.evaluation.pseudo_log_likelihood(model, test).mean())

    path = folder / f"training-{method}-{iterations}.json"
    epochs = experiment.Epochs(path, pseudo)
    run = {"callbacks": [epochs, mf.evaluation.Checkpoint(path.with_suffix(".npz"))]}
    run |= {"n_epochs": options.epochs - options.begin}
    if options.begin:
        checkpoint = mf.evaluation.Checkpoint(folder / f"begin-{iterations}.npz")
        first = {"n_epochs": options.begin, "callbacks": [checkpoint]}
        run["init"] = learner("tap", iterations, options, **first).fit(X).model_
    model = learner(method, iterations, options, **run).fit(X).model_
    annealed = experiment.annealed(model, test, n_steps=300, data=X[:100], rng=options.seed)
    return {
        "pseudo": [(epoch + options.begin, value) for epoch, *_, value in epochs.rows],
        "annealed": float(annealed[0]), "seconds": epochs.rows[-1][2],
    }  # fmt: skip


if __name__ == "__main__":
    experiment.run(main)
