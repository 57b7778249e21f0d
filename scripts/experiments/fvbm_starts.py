#!/usr/bin/env python3
"""Where coordinate-wise maximisation of the pseudo-likelihood (BSLM) should start.

Writes starts.csv: for each data set and each start, the difference of the log-pseudo-likelihood to
the maximum (or, where there is none, to the best value found) after 10, 30, 100 and 300 sweeps,
sweeps to the stop, and milliseconds, those for making the start included. Data: the design of
Nguyen & Wood (2016), as in `fvbm_bslm.py`; weak couplings, with variance 1/d; designs with two
equal units; and, with scikit-learn's digits, binary images of 8 x 8 and of 10 x 10 pixels.
"""

import time
from pathlib import Path

import experiment
import numpy as np
from fvbm_bslm import random_machine
from scipy import ndimage

from fastmf.inference.sampling.spins import sample
from fastmf.learning.pseudo_likelihood.binary import solvers
from fastmf.learning.pseudo_likelihood.binary.distinct_rows import distinct_rows
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.binary.starts import starting_point
from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs

STARTS = ("zero", "independent", "minorant", "naive_mean_field", "tap", "auto")
SWEEPS = (10, 30, 100, 300)


def digits(width):
    """Handwritten digits, brighter than half as +1, resized to some width."""
    from sklearn.datasets import load_digits

    images = load_digits().images
    resized = [ndimage.zoom(image, width / 8, order=1).ravel() for image in images]
    return np.where(np.array(resized) > 7, 1.0, -1.0)


def equal_units(rng, n_rows):
    states = sample(random_machine(10, rng), n_rows, rng)
    states[:, 3] = states[:, 1]
    return states


def data_sets(options):
    """Names, numbers of draws, penalties l2 and functions of a generator that make the rows."""
    n = options.rows
    for d in options.units:
        yield (
            f"paper, {d} units", options.draws, 0.0,
            lambda rng, d=d: sample(random_machine(d, rng), n, rng),
        )  # fmt: skip
    yield (
        "weak, 20 units",
        options.draws,
        0.0,
        lambda rng: sample(random_machine(20, rng, 1 / 20), n // 8, rng),
    )
    yield "equal units", options.draws, 0.0, lambda rng: equal_units(rng, n // 8)
    if options.digits:
        yield "digits, 64 units", 1, 0.0, lambda rng: digits(8)
        yield "digits, 64 units, l2 = 0.01", 1, 0.01, lambda rng: digits(8)
        yield "digits, 100 units", 1, 0.0, lambda rng: digits(10)


def one_draw(states, l2, max_iter):
    """Of each start differences to the best value, sweeps, milliseconds, and whether it stopped."""
    objective, fits, milliseconds = PseudoLikelihood(distinct_rows(states), l2), [], []
    for how in STARTS:
        begin = time.perf_counter()
        start = np.zeros(objective.n_parameters)
        if how != "zero":
            start = starting_point(objective, how)
        fits += solvers.bslm(objective, [start], max_iter=max_iter)
        milliseconds.append(1e3 * (time.perf_counter() - begin))
    start = starting_point(objective, "minorant")
    best = lbfgs(objective, start, max_iter=3000).history[-1]
    best = max(best, *(fit.history[-1] for fit in fits))
    return [
        [*(best - fit.history[min(k, len(fit.history)) - 1] for k in SWEEPS),
         len(fit.history), ms, fit.stopped]
        for fit, ms in zip(fits, milliseconds, strict=True)
    ]  # fmt: skip


def main(argv=None):
    parser = experiment.parser(__doc__)
    parser.add_argument("--units", type=int, nargs="+", default=[5, 10, 15, 20])
    parser.add_argument("--draws", type=int, default=12, help="random machines (default 12)")
    parser.add_argument("--rows", type=int, default=16_000, help="default 16000, the paper's")
    parser.add_argument("--max-iter", type=int, default=10_000, help="sweeps (default 10000)")
    parser.add_argument("--digits", action=experiment.argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--quick", action="store_true", help="five units, few rows and sweeps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("results/fvbm-starts"))
    options = parser.parse_args(argv)
    if options.quick:
        options.units, options.draws, options.rows = [5], 2, 2000
        options.max_iter, options.digits = 300, False
    options.output.mkdir(parents=True, exist_ok=True)
    columns = [*(f"short_{k}" for k in SWEEPS), "sweeps", "ms", "stopped"]
    header = ["data", "start", *columns, *(f"worst_{k}" for k in SWEEPS)]
    table = []
    for name, n_draws, l2, make in data_sets(options):
        # A sweep of the digits takes milliseconds.
        max_iter = min(options.max_iter, 600) if name.startswith("digits") else options.max_iter
        found = np.array([
            one_draw(make(np.random.default_rng([options.seed, draw])), l2, max_iter)
            for draw in range(n_draws)
        ], float)  # fmt: skip
        medians, worst = np.median(found, 0), found.max(0)
        medians[:, -1] = found[:, :, -1].mean(0)
        print(f"{name:28}", *(f"{column:>10}" for column in columns), "worst_30")
        for how, row, most in zip(STARTS, medians, worst, strict=True):
            table.append([name, how, *row, *most[: len(SWEEPS)]])
            print(f"  {how:26}", *(f"{value:10.3g}" for value in row), f"{most[1]:.3g}", flush=True)
        experiment.table(options.output / "starts.csv", header, table)


if __name__ == "__main__":
    experiment.run(main)
