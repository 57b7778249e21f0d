"""The first table of SPEED.md: log-likelihood of test digits after given CPU seconds of training.

    python scripts/time_to_quality.py --write     # half an hour on two idle cores
    python scripts/time_to_quality.py --quick     # small machines, a test of the script

Images are binary (MNIST if it is in FASTMF_DATA); each run has one thread, and each core one run. A
run is evaluated after the first epoch that ends after each number of seconds. Log-likelihoods, in
nats per image, use the mean of the forward and reverse estimates of annealing. They are used only
if these agree, and are not below the lower bound of the log-partition. For BernoulliRBM the best of
several settings at each time is shown, with `fit` on float32 data.
"""

import contextlib
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
from timing import images, parser, write  # noqa: E402

import fastmf as mf  # noqa: E402
from fastmf.evaluation import log_likelihood  # noqa: E402
from fastmf.evaluation.log_partition import annealed_quietly  # noqa: E402

SECONDS, N_TRAIN, N_TEST = (1, 3, 10), 5000, 2000
PEER = "scikit-learn, `BernoulliRBM.fit`"
# (batch size, rate): the best ones after few, and after many seconds.
SETTINGS = (20, 0.01), (20, 0.02), (20, 0.05), (100, 0.05), (100, 0.1), (100, 0.2)
METHODS = {
    "default options": {},
    "default, half as many starts": {"n_starts": 10},
    '`gradient="tap"`, 100 rows a step': {"gradient": "tap", "batch_size": 100},
    '`gradient="pcd"`': {"gradient": "pcd"},
    **{f"{PEER}: {rows} rows a step, rate {rate:g}": (rows, rate) for rows, rate in SETTINGS},
}


def by_fastmf(options, n_hidden, X, seed, seconds):
    """Return the machines after given numbers of CPU seconds."""
    models, marks = [], list(seconds)

    def look(state):
        if time.process_time() - start >= marks[0]:
            models.append(state.model)
            marks.pop(0)
        return not marks

    options = {"n_threads": 1, "random_state": seed, **options}
    mf.GeneralizedRBM(n_hidden, n_epochs=1, **options).fit(X[:200])  # compiles
    start = time.process_time()
    mf.GeneralizedRBM(n_hidden, n_epochs=10**6, callbacks=[look], **options).fit(X)
    return models


class Stop(Exception):
    """Raised to stop a fit."""


def by_scikit_learn(setting, n_hidden, X, seed, seconds):
    """Return machines trained by scikit-learn's `fit` (PCD), recorded after epochs."""
    from sklearn.neural_network import BernoulliRBM

    batch, rate = setting
    learner = BernoulliRBM(
        n_hidden, learning_rate=rate, batch_size=batch, n_iter=10**6, random_state=seed
    )
    step, models, seen = learner._fit, [], [0]

    def step_and_look(rows, rng):
        step(rows, rng)
        seen[0] += len(rows)
        if seen[0] % len(X) or time.process_time() - start < seconds[len(models)]:
            return
        fields = learner.intercept_visible_.copy(), learner.intercept_hidden_.copy()
        models.append(mf.RBM(learner.components_.T.copy(), *map(mf.Bernoulli, fields)))
        if len(models) == len(seconds):
            raise Stop

    learner._fit, start = step_and_look, time.process_time()
    with contextlib.suppress(Stop):
        learner.fit(X)
    return models


def quality(model, test, data, n_steps):
    """Return the mean log-likelihood of test images, NaN if annealing has not converged."""
    layers = (mf.Bernoulli(layer.field.astype(float)) for layer in model.layers)
    model = mf.RBM(model.weights.astype(float), *layers)
    options = {"max_steps": 2 * n_steps, "data": data[:100], "rng": 0, "n_threads": 1}
    annealed = annealed_quietly(model, 100, n_steps, **options)
    middle = (annealed.reverse + annealed.log_partition) / 2
    return log_likelihood(model, test, middle).mean() if annealed.converged else np.nan


def of_independent_pixels(train, test):
    """Return the mean log-likelihood for independent pixels, with Laplace's rule for means."""
    mean = (train.sum(0) + 1) / (len(train) + 2)
    return float((test @ np.log(mean) + (1 - test) @ np.log(1 - mean)).mean())


def data_of(quick):
    """Return training and test images."""
    n, n_test = (500, 100) if quick else (N_TRAIN, N_TEST)
    return np.split(np.asarray(images(N_TRAIN + N_TEST), np.float32)[: n + n_test], [n])


def run(name, n_hidden, seed, quick):
    """Return the log-likelihoods of a method after each number of seconds."""
    train, test = data_of(quick)
    seconds = [s / 20 for s in SECONDS] if quick else SECONDS
    learn = by_scikit_learn if name.startswith(PEER) else by_fastmf
    machines = learn(METHODS[name], n_hidden, train, seed, seconds)
    return [quality(model, test, train, 50 if quick else 500) for model in machines]


def cell(values, setting=""):
    """Format the mean and half the range over seeds with known log-likelihoods."""
    values = np.asarray(values)[~np.isnan(values)]
    if not len(values):
        return "not known"
    spread = f" ± {np.ptp(values) / 2:.1f}" if len(values) > 1 else ""
    return f"{values.mean():.1f}{spread}" + (f" ({setting})" if setting else "")


def rows_of(n_hidden, by_method):
    """Return the lines of the table for a size, given log-likelihoods by method, seed and time."""
    by_method = {name: np.array(values) for name, values in by_method.items()}
    peers = {name: values for name, values in by_method.items() if name.startswith(PEER)}
    lines = [(name, map(cell, by_method[name].T)) for name in METHODS if name not in peers]
    cells = []
    for k in range(len(SECONDS)):

        def mean(name, k=k):
            values = peers[name][:, k]
            return -np.inf if np.isnan(values).all() else np.nanmean(values)

        best = max(peers, key=mean)
        cells.append(cell(peers[best][:, k], best.removeprefix(f"{PEER}: ")))
    lines.append((f"{PEER}, best of {len(SETTINGS)} settings", cells))
    return [f"| 784 x {n_hidden} | {name} | {' | '.join(cells)} |" for name, cells in lines]


def table(rows, n_seeds, floor, counts):
    """Return the table as Markdown, with the settings and counts of runs."""
    head = " | ".join(f"{s} s" for s in SECONDS)
    n_all, n_unknown, n_diverged = counts
    return "\n".join(
        [
            f"Log-likelihood in nats per image of {N_TEST:,} test images, by CPU seconds on one "
            f"thread; {N_TRAIN:,} training images, mean of {n_seeds} "
            f"seed{'s' * (n_seeds > 1)} ± half the range. Independent pixels have {floor:.1f}.",
            "",
            f"| machine | training | {head} |",
            "|---|---|" + "---|" * len(SECONDS),
            *rows,
            "",
            "scikit-learn uses `fit` with float32 data, which takes half of the "
            "time of `partial_fit`; for each time, the table has its best setting. Of "
            f"{n_all} estimates for its machines, {n_unknown} have not converged and are left "
            f"out; {n_diverged} of {n_all // len(SECONDS)} runs have diverged, that is, were "
            f"worse than independent pixels after {SECONDS[-1]} s.",
        ]
    )


def main(argv=None):
    """Train, evaluate and print the table; with --write, write it to the page."""
    command_line = parser(__doc__)
    add = command_line.add_argument
    add("--quick", action="store_true", help="500 images, a twentieth of the time, one seed")
    add("--write", action="store_true", help="put the table into scripts/SPEED.md")
    chosen = command_line.parse_args(argv)
    n_seeds = 1 if chosen.quick else 3
    rows, counts, floor = [], 0, of_independent_pixels(*data_of(chosen.quick))
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for n_hidden in (100, 500):
            seeds = range(n_seeds)
            jobs = {
                name: [pool.submit(run, name, n_hidden, seed, chosen.quick) for seed in seeds]
                for name in METHODS
            }
            by_method = {}
            for name, futures in jobs.items():
                by_method[name] = [future.result() for future in futures]
                print(n_hidden, name, np.round(np.mean(by_method[name], axis=0), 1), flush=True)
            rows += rows_of(n_hidden, by_method)
            # Counts for scikit-learn: estimates, unconverged estimates, and diverged runs.
            values = np.array([of for name, of in by_method.items() if name.startswith(PEER)])
            low = (values[:, :, -1] <= floor).sum()
            counts = counts + np.array([values.size, np.isnan(values).sum(), low])
    text = table(rows, n_seeds, floor, counts)
    print(text)
    if chosen.write:
        write("quality", text)


if __name__ == "__main__":
    main()
