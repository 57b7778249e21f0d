#!/usr/bin/env python3
"""The first table of SPEED.md: log-likelihood of test digits after some CPU seconds of learning.

    python scripts/time_to_quality.py --write     # six minutes on two idle cores
    python scripts/time_to_quality.py --quick     # small machines, does it run?

Binary images (MNIST if FASTMF_DATA has it), one thread each, as many runs at a time as there are
cores. A run is looked at after the first pass over its 5,000 images that ends beyond each number
of seconds. Log-likelihoods are the middle of the two ends of annealing, in nats an image; a gap
between them above half a nat is shown. Of scikit-learn's rates the best at that time counts.
"""

import argparse
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
from speed_page import PAGE, write  # noqa: E402
from timing import images  # noqa: E402

import fastmf as mf  # noqa: E402
from fastmf.evaluation import log_likelihood  # noqa: E402

MARKERS = "<!-- quality table: begin -->", "<!-- quality table: end -->"
SECONDS, N_TRAIN, N_TEST = (1, 3, 10), 5000, 2000
PEER = "scikit-learn, BernoulliRBM, best of four rates"
# Rates with which it is best after few seconds, or after many.
RATES = (0.02, 0.05, 0.1, 0.2)
METHODS = {
    "default options": {},
    "default, half as many starts": {"n_starts": 10},
    '`gradient="tap"`, 100 rows a step': {"gradient": "tap", "batch_size": 100},
    '`gradient="pcd"`': {"gradient": "pcd"},
    **{f"{PEER}: {rate:g}": rate for rate in RATES},
}


def by_fastmf(options, n_hidden, X, seed, seconds):
    """The machine after so many CPU seconds each."""
    found, marks = [], list(seconds)

    def look(state):
        if time.process_time() - start >= marks[0]:
            found.append(state.model)
            marks.pop(0)
        return not marks

    options = {"monitor_rows": 1, "n_threads": 1, "random_state": seed, **options}
    mf.GeneralizedRBM(n_hidden, n_epochs=1, **options).fit(X[:200])  # compiles
    start = time.process_time()
    mf.GeneralizedRBM(n_hidden, n_epochs=10**6, callbacks=[look], **options).fit(X)
    return found


def by_scikit_learn(rate, n_hidden, X, seed, seconds, batch=100):
    """The same, by persistent contrastive divergence."""
    from sklearn.neural_network import BernoulliRBM

    learner = BernoulliRBM(n_hidden, learning_rate=rate, batch_size=batch, random_state=seed)
    rng, found, start = np.random.default_rng(seed), [], time.process_time()
    while len(found) < len(seconds):
        order = rng.permutation(len(X))
        for first in range(0, len(X), batch):
            learner.partial_fit(X[order[first : first + batch]])
        if time.process_time() - start >= seconds[len(found)]:
            fields = learner.intercept_visible_.copy(), learner.intercept_hidden_.copy()
            found.append(mf.RBM(learner.components_.T.copy(), *map(mf.Bernoulli, fields)))
    return found


def quality(model, test, data, n_steps):
    """Mean log-likelihood of test images from below and above."""
    layers = (mf.Bernoulli(layer.field.astype(float)) for layer in model.layers)
    model = mf.RBM(model.weights.astype(float), *layers)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "annealed importance sampling: not converged")
        found = mf.annealed_importance_sampling(
            model, 100, n_steps, data=data[:100], rng=0, n_threads=1
        )
    numerator = log_likelihood(model, test, 0.0).mean()
    return numerator - found.reverse, numerator - found.log_partition


def run(name, n_hidden, seed, quick):
    """Log-likelihoods of a method, both ends, after each number of seconds."""
    X = np.asarray(images(N_TRAIN + N_TEST), np.float32)
    train, test = (X[:500], X[500:600]) if quick else (X[:N_TRAIN], X[N_TRAIN:])
    seconds = [s / 20 for s in SECONDS] if quick else SECONDS
    learn = by_scikit_learn if name.startswith(PEER) else by_fastmf
    machines = learn(METHODS[name], n_hidden, train, seed, seconds)
    return [quality(model, test, train, 50 if quick else 500) for model in machines]


def cell(values):
    """Mean over seeds of log-likelihoods, with the largest gap of their ends if it is large."""
    ends = np.array(values)
    gap = abs(ends[:, 0] - ends[:, 1]).max()
    return f"{ends.mean():.1f}" + (f" (± {gap / 2:.1f})" if gap > 0.5 else "")


def rows_of(n_hidden, found):
    """Lines of the table for a size, from the log-likelihoods by method and seed."""
    ours = [name for name in METHODS if not name.startswith(PEER)]
    lines = []
    for name in ours:
        cells = [cell([of_seed[k] for of_seed in found[name]]) for k in range(len(SECONDS))]
        lines.append((name, cells))
    cells = []
    for k in range(len(SECONDS)):
        of_rates = [[of_seed[k] for of_seed in found[f"{PEER}: {rate:g}"]] for rate in RATES]
        cells.append(cell(max(of_rates, key=np.mean)))
    lines.append((PEER, cells))
    return [f"| 784 x {n_hidden} | {name} | {' | '.join(cells)} |" for name, cells in lines]


def table(rows, seeds):
    """The lines below their head, and what they are of."""
    head = " | ".join(f"{s} s" for s in SECONDS)
    return "\n".join(
        [
            f"Nats an image of {N_TEST:,} test images after so many CPU seconds of one thread; "
            f"{N_TRAIN:,} training images, mean of {seeds}.",
            "",
            f"| machine | learned by | {head} |",
            "|---|---|" + "---|" * len(SECONDS),
            *rows,
        ]
    )


def main(argv=None):
    """Learn, evaluate, print the table, and write it to the page if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--hidden", type=int, nargs="+", default=[100, 500], metavar="N", help="[100 500]")
    add("--seeds", type=int, default=3, metavar="N", help="of 100 hidden units or fewer [3]")
    add("--processes", type=int, default=os.cpu_count(), metavar="N", help="[cores]")
    add("--quick", action="store_true", help="500 images, a twentieth of the time, one seed")
    add("--write", nargs="?", type=Path, const=PAGE, metavar="FILE",
        help="put the table between its markers in FILE (scripts/SPEED.md)")  # fmt: skip
    chosen = parser.parse_args(argv)
    rows = []
    with ProcessPoolExecutor(chosen.processes, get_context("spawn")) as pool:
        for n_hidden in chosen.hidden:
            seeds = range(1 if chosen.quick or n_hidden > 100 else chosen.seeds)
            jobs = {
                name: [pool.submit(run, name, n_hidden, seed, chosen.quick) for seed in seeds]
                for name in METHODS
            }
            found = {}
            for name, futures in jobs.items():
                found[name] = [future.result() for future in futures]
                print(n_hidden, name, np.round(np.mean(found[name], axis=(0, 2)), 1), flush=True)
            rows += rows_of(n_hidden, found)
    n_seeds = 1 if chosen.quick else chosen.seeds
    text = table(rows, f"{n_seeds} seed{'s' * (n_seeds > 1)}, one above 100 hidden units")
    print(text)
    if chosen.write:
        write(chosen.write, text, MARKERS)


if __name__ == "__main__":
    main()
