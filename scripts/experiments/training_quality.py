"""Likelihoods of RBMs trained by mean field and by sampling, and with kinds of hidden units.

Trains an RBM on MNIST or faces by each method, and evaluates it after several epochs by annealed
importance sampling. Writes quality.csv into a folder, and prints a table. Kinds of hidden units
(binary, Gaussian as in the Hopfield model, rectified, spike and slab) are after section VIII of
Tramel et al., Phys. Rev. X 8 (2018) 041006; their results are in tap_machines.md.
"""

import time

import experiment
import numpy as np

import fastmf as mf

NOISE, CENTRED = {"starts": "noise"}, {"centred": True}
BEST = {"n_sweeps": 10, "momentum": 0.9, "learning_rate": (0.05, 0.005)}
FALLING = {"n_sweeps": 3, "momentum": 0.9, "l2": 1e-4, "learning_rate": (0.05, 0.002)}
KINDS = {
    "binary": "bernoulli",
    "Gaussian": "gaussian",
    "rectified": mf.TruncatedGaussian(0.0, 1.0, 0.0, np.inf),
    "spike-and-slab": "gauss_bernoulli",
}
OF_KINDS = {"learning_rate": 0.02, "weight_scale": 0.01, **CENTRED}
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
    "BP": {"gradient": "bp", "n_sweeps": 20, **CENTRED},
    "naive mean field": {"gradient": "mean_field", "n_sweeps": 3},
    "CD-1": {"gradient": "cd", "n_sweeps": 1},
    "CD-1, centred": {"gradient": "cd", "n_sweeps": 1, **CENTRED},
    "PCD-1": {"gradient": "pcd", "n_sweeps": 1},
    "PCD-1, centred": {"gradient": "pcd", "n_sweeps": 1, **CENTRED},
    **{f"{kind} units": {"hidden": unit, **OF_KINDS} for kind, unit in KINDS.items()},
}
FIELDS = ("method", "epoch", "seconds", "from_below", "error", "from_above")


def main(argv=None):
    options = experiment.Parser(
        __doc__, "seed", "threads", "data", "output", "dataset",
        quick={"rows": 1000, "test_rows": 100, "hidden": 10, "epochs": [1, 2], "chains": 20,
               "steps": 50},
        methods=METHODS, hidden=100, rows=(10_000, "training images"), test_rows=(10_000, "images"),
        epochs=([1, 2, 5, 10, 20], "after which to evaluate; the last ends training"),
        chains=(100, "of annealing"), steps=1000, learning_rate=(float, "of all [their own]"),
    ).parse_args(argv)  # fmt: skip
    folder = experiment.folder(options, "training-quality")
    train, test = (experiment.images(options.dataset, options.data, s).X for s in ("train", "test"))
    rows = np.random.default_rng(options.seed).permutation(len(train))[: options.rows]
    X, test = train[rows], test[: options.test_rows]
    results = []
    for name in options.methods:
        for epoch, seconds, model in trained(METHODS[name], X, options):
            above, below, error = experiment.annealed(
                model, test, n_chains=options.chains, n_steps=options.steps,
                data=X[: options.chains], rng=options.seed, n_threads=options.threads,
            )  # fmt: skip
            results.append((name, epoch, seconds, below, error, above))
            shown = f"{seconds:.1f}", f"{below:.1f}", f"{above:.1f}", f"{error:.2f}"
            print(experiment.line(name, epoch, *shown), flush=True)
    experiment.table(folder / "quality.csv", FIELDS, results)


def trained(settings, X, options):
    """(epoch, seconds, model) after each of the epochs."""
    machines = []

    def look(state):
        if state.epoch in options.epochs:
            machines.append((state.epoch, time.perf_counter() - start, state.model))

    common = {"learning_rate": 0.05, "centred": False, "l2": 0.001, "batch_size": 100}
    common |= {"n_threads": options.threads, "random_state": options.seed}
    common |= {"visible": experiment.VISIBLE[options.dataset]}
    given = {"learning_rate": options.learning_rate} if options.learning_rate else {}
    learner = mf.GeneralizedRBM(options.hidden, **common | settings | given, n_epochs=1)
    learner.fit(X[:200])  # compiles
    start = time.perf_counter()
    learner.set_params(n_epochs=max(options.epochs), callbacks=[look]).fit(X)
    return machines


if __name__ == "__main__":
    experiment.run(main)
