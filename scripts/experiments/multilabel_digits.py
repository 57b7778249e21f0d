#!/usr/bin/env python3
"""Multi-label prediction of dependent labels: lower halves of digits from their upper halves.

The 1797 digits of 8 x 8 pixels that come with scikit-learn. Features: the grey levels of the
upper four rows. Labels: whether each pixel of the lower four rows is above half of the grey range,
for the pixels that are so in 1 to 99 percent of the images. Prints, for each method, the Hamming
error (percent of wrong labels) and the percentage of images whose labels are all correct, over the
same folds, and the seconds of learning and predicting; writes them into a folder, with a figure.

  independent    a logistic regression for each label
  chain          scikit-learn's ClassifierChain of logistic regressions, in random order
  chains         the same, ten of them in other orders, their probabilities averaged
  CRBM           modes of the marginals of a ConditionalRBM, trained with sum-product
  CRBM, MAP      most probable labels of the same model (mixed-product, polished, ten restarts)

The penalty of the regressions and the learning rate of the CRBM are those with the smallest Hamming
error in one split of the training part of the first fold (--choose prints it). The CRBM stops early
by the error of a tenth of its training data.
"""

import time
from pathlib import Path

import experiment
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, train_test_split
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier

import fastmf as mf
from fastmf import plotting
from fastmf.datasets import load_digits

# Inverse penalties of the logistic regressions to choose from.
PENALTIES = 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0


def data(n_images=None):
    """Features, labels, the mask of their pixels in the lower half, and height and width."""
    grey, shape, _ = load_digits(dtype=np.float64)
    grey, half = grey[:n_images], grey.shape[1] // 2
    dark = grey[:, half:] > 0.5
    kept = (dark.mean(0) > 0.01) & (dark.mean(0) < 0.99)
    return grey[:, :half], dark[:, kept].astype(int), kept, shape


def crbm(options):
    return mf.ConditionalRBM(
        options.hidden, n_epochs=options.epochs, learning_rate=options.learning_rate, momentum=0.9,
        weight_scale=0.1, standardize=False, early_stopping=True, patience=10,
        random_state=options.seed,
    )  # fmt: skip


def restore(train, features, options):
    """Labels predicted by each method, and the seconds of learning and predicting."""
    regression = LogisticRegression(C=options.penalty, max_iter=5000)
    chains = [
        ClassifierChain(regression, order="random", random_state=options.seed + k)
        for k in range(options.chains)
    ]
    found = {}

    def timed(name, work):
        start = time.perf_counter()
        labels = work()
        found[name] = labels, time.perf_counter() - start

    timed("independent", lambda: MultiOutputClassifier(regression).fit(*train).predict(features))
    timed("chain", lambda: chains[0].fit(*train).predict(features))
    timed(
        "chains", lambda: np.mean([c.fit(*train).predict_proba(features) for c in chains], 0) > 0.5
    )
    machine = crbm(options)
    timed("CRBM", lambda: machine.fit(*train).predict(features))
    timed("CRBM, MAP", lambda: machine.predict(features, "marginal_map", n_starts=11))
    return found


def scores(labels, truth):
    """Percent of wrong labels, and of rows whose labels are all correct."""
    correct = labels == truth
    return 100 * (1 - correct.mean()), 100 * correct.all(1).mean()


def choose(train, options):
    """Errors on a held-out part of the training data, by option."""
    X, X_held, Y, Y_held = train_test_split(*train, test_size=0.2, random_state=options.seed)
    for penalty in PENALTIES:
        chain = ClassifierChain(LogisticRegression(C=penalty, max_iter=5000), order="random",
                                random_state=options.seed)  # fmt: skip
        print("chain C", penalty, scores(chain.fit(X, Y).predict(X_held), Y_held), flush=True)
    for options.learning_rate in (0.02, 0.05, 0.1):
        machine = crbm(options).fit(X, Y)
        print("CRBM learning rate", options.learning_rate, machine.n_iter_,
              scores(machine.predict(X_held), Y_held), flush=True)  # fmt: skip


def picture(images, truth, found, kept, shape, path, n=12):
    """Upper halves above the lower halves that each method predicts."""

    def whole(labels):
        lower = np.zeros((n, len(kept)))
        lower[:, kept] = labels[:n]
        return np.hstack([images[:n] > 0.5, lower])

    rows = {name: whole(labels) for name, (labels, _) in found.items()}
    experiment.picture(plotting.image_rows({**rows, "truth": whole(truth)}, shape), path)


def main(argv=None):
    parser = experiment.parser(__doc__)
    add = parser.add_argument
    add("--folds", type=int, default=5, metavar="N", help="of cross-validation [5]")
    add("--hidden", type=int, default=100, metavar="N", help="hidden units [100]")
    add("--epochs", type=int, default=100, metavar="N", help="at most so many [100]")
    add("--learning-rate", type=float, default=0.05, help="[0.05]")
    add("--penalty", type=float, default=30.0, help="C of the logistic regressions [30]")
    add("--chains", type=int, default=10, metavar="N", help="chains to average [10]")
    add("--images", type=int, metavar="N", help="use only so many [all]")
    add("--seed", type=int, default=0, metavar="N", help="[0]")
    add("--choose", action="store_true", help="print errors by option on training data, and stop")
    add("--output", type=Path, default=Path("results/multilabel-digits"), metavar="FOLDER")
    add("--quick", action="store_true", help="300 images, two folds, small models: does it run?")
    options = parser.parse_args(argv)
    if options.quick:
        options.images, options.folds, options.chains = 300, 2, 1
        options.hidden, options.epochs, options.penalty = 4, 3, 1.0
    X, Y, kept, shape = data(options.images)
    folds = list(KFold(options.folds, shuffle=True, random_state=options.seed).split(X))
    if options.choose:
        return choose((X[folds[0][0]], Y[folds[0][0]]), options)
    options.output.mkdir(parents=True, exist_ok=True)
    table = {}
    for k, (inside, outside) in enumerate(folds):
        found = restore((X[inside], Y[inside]), X[outside], options)
        for name, (labels, seconds) in found.items():
            table.setdefault(name, []).append((*scores(labels, Y[outside]), seconds))
        if k == 0:
            path = options.output / "pictures.png"
            picture(X[outside], Y[outside], found, kept, shape, path)
        report(table, options.output / "table.csv")


def report(results, path):
    """Means over the folds so far; prints them with standard errors."""
    print(f"after {max(map(len, results.values()))} folds:")
    written = []
    for name, rows in results.items():
        means = [f"{x:.2f}" for x in np.mean(rows, axis=0)]
        written.append((name, *means))
        spread = np.std(rows, axis=0) / np.sqrt(len(rows))
        print(
            f"{name:12} wrong labels {means[0]:>6} % (+- {spread[0]:.2f})   "
            f"all correct {means[1]:>6} % (+- {spread[1]:.2f})   {means[2]:>6} s",
            flush=True,
        )
    experiment.table(path, ("method", "hamming error %", "all correct %", "seconds"), written)


if __name__ == "__main__":
    experiment.run(main)
