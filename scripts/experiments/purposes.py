"""Which training for what: likelihood, features, samples and imputation by RBMs of one size.

Each machine learns from 10,000 black and white digits of MNIST. Prints a table, whose columns
docs/guide/purposes.md explains.
"""

import time

import experiment
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import BernoulliRBM

import fastmf as mf

FALLING = (0.05, 0.0, "linear")
CHAINS = dict(gradient="pcd", n_sweeps=1, n_starts=100, momentum=0.0, l2=0.0)
TRAININGS = {
    "default": {},
    "l2=0.01": dict(l2=0.01),
    "batch_size=100, l2=0.001": dict(batch_size=100, l2=0.001),
    "batch_size=100, l2=0.01": dict(batch_size=100, l2=0.01),
    "pcd": dict(batch_size=20, learning_rate=(0.1, 0.0, "linear"), **CHAINS),
    "batch_size=100, l2=0.001, then pcd": dict(batch_size=20, learning_rate=FALLING, **CHAINS),
}
STARTS = ("independent", "data", "annealed")
COLUMNS = ("log-likelihood", "accuracy", *STARTS, "imputation", "seconds")


def trained(name, X, options):
    """The machine of a training, and its seconds."""
    common = dict(n_components=options.hidden, n_epochs=options.epochs, random_state=options.seed)
    start = time.process_time()
    if name == "BernoulliRBM":
        sklearn_rbm = BernoulliRBM(options.hidden, random_state=options.seed).fit(X)
        seconds = time.process_time() - start
        fields = sklearn_rbm.intercept_visible_, sklearn_rbm.intercept_hidden_
        model = mf.RBM(sklearn_rbm.components_.T, *map(mf.Bernoulli, fields))
        return mf.GeneralizedRBM(init=model, n_epochs=0, random_state=0).fit(X), seconds
    if name.endswith(", then pcd"):
        first = TRAININGS["batch_size=100, l2=0.001"]
        common["init"] = mf.GeneralizedRBM(**common, **first).fit(X).model_
    machine = mf.GeneralizedRBM(**common, **TRAININGS[name]).fit(X)
    return machine, time.process_time() - start


def nearest(samples, X):
    """Mean number of pixels in which samples differ from the nearest of the images."""
    products = samples @ X.T
    return (samples.sum(1)[:, None] + X.sum(1) - 2 * products).min(1).mean()


def n_kinds(labels):
    """The exponential of the entropy of labels."""
    shares = np.bincount(labels) / len(labels)
    return np.exp(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())


def measured(name, data, by_pixels, options):
    """All columns of a training, by name."""
    X, y, T, t = data
    machine, seconds = trained(name, X, options)
    model, n_steps = machine.model_, options.sweeps
    annealed = {"n_chains": 100, "n_steps": n_steps, "max_steps": 8 * n_steps}
    classifier = LogisticRegression(max_iter=500).fit(machine.transform(X), y)
    row = {
        "log-likelihood": float(experiment.annealed(model, T, rng=options.seed, **annealed)[0]),
        "accuracy": classifier.score(machine.transform(T), t),
        "seconds": seconds,
    }
    for start in STARTS:
        samples = machine.sample(200, n_sweeps=n_steps, start=start, random_state=options.seed)
        kinds = n_kinds(by_pixels.predict(samples))
        row[start] = f"{nearest(samples, X):.0f} ({kinds:.1f})"
    rows = T[:500].copy()
    rows[:, X.shape[1] // 2 :] = np.nan
    filled = machine.impute(rows, method="tap")
    row["imputation"] = float(np.sqrt(((filled - T[:500])[np.isnan(rows)] ** 2).mean()))
    return row


def baseline(data, by_pixels):
    """The columns for pixels as they are: what test images, and means of columns, have."""
    X, _, T, t = data
    half = X.shape[1] // 2
    error = float(np.sqrt(((X.mean(0) - T[:500])[:, half:] ** 2).mean()))
    text = f"{nearest(T[:200], X):.0f} ({n_kinds(t[:200]):.1f})"
    return {"accuracy": by_pixels.score(T, t), "imputation": error} | dict.fromkeys(STARTS, text)


def cells(row):
    """The columns of a row as text."""
    formats = {"log-likelihood": ".1f", "accuracy": ".3f", "imputation": ".3f", "seconds": ".0f"}
    return [format(row[c], formats.get(c, "")) if c in row else "" for c in COLUMNS]


def main(argv=None):
    options = experiment.Parser(
        __doc__, "seed", "data", "output",
        quick={"hidden": 16, "epochs": 2, "sweeps": 20, "rows": 1000},
        hidden=256, epochs=20, rows=(10_000, "training images"), sweeps=(1000, "of samples"),
    ).parse_args(argv)  # fmt: skip
    train, test = experiment.train_and_test("binary", options, None)
    data = train.X, train.labels[: options.rows], test.X, test.labels
    by_pixels = LogisticRegression(max_iter=500).fit(*data[:2])
    settings = f"{len(data[0])}-{options.hidden}-{options.epochs}-{options.sweeps}-{options.seed}"
    results = experiment.Results(experiment.folder(options, "purposes") / f"{settings}.jsonl")
    print(experiment.head("training", *COLUMNS))
    print(experiment.line("pixels", *cells(baseline(data, by_pixels))))
    for name in (*TRAININGS, "BernoulliRBM"):
        row = results.get(name, measured, name, data, by_pixels, options)
        print(experiment.line(name, *cells(row)), flush=True)


if __name__ == "__main__":
    experiment.run(main)
