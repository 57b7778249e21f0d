#!/usr/bin/env python3
"""Calibration of spike-and-slab regression: what its probabilities and intervals are worth.

Regressions on p = 500 features, of which each matters with probability 0.01, and n = 100 rows, with
all parameters learned: independent features, and those of an autoregressive process (correlation
0.9 of neighbours), at several ratios of signal to noise. Printed for each cell:

cover   fraction of 2,000 new rows within their predictive intervals of 50, 90, 95 and 99%
noise   median of the learned noise variance over the true one
sum     of the inclusion probabilities (mean of the true number)
error   of calibration: |mean probability - fraction of features that matter| in bins, weighted by
        the number of features
dense   fits in which more than a tenth of the features have a probability above 0.5

Results: spike_slab_calibration.md.
"""

import sys
import time
import warnings

import experiment
import numpy as np
from scipy.special import ndtri

import fastmf as mf

EPILOG = """\
examples:
  python scripts/experiments/spike_slab_calibration.py --quick
  python scripts/experiments/spike_slab_calibration.py --fits 30 --seed 0
"""
LEVELS = np.array([0.5, 0.9, 0.95, 0.99])
METHODS = {
    "average": {"average_parameters": True},
    "MAP": {},
    "ML": {"parameter_prior": None},
}
DESIGNS = {"independent": 0.0, "AR 0.9": 0.9}
RATIOS = (0.5, 2.0, 10.0)


def main(argv=None):
    """Run the experiment."""
    parser = experiment.parser(__doc__, EPILOG)
    parser.add_argument("--fits", type=int, default=30, help="fits of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--features", type=int, default=500)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--quick", action="store_true", help="two fits of 100 features")
    options = parser.parse_args(argv)
    if options.quick:
        options.fits, options.features = 2, 100
    print(f"{options.fits} fits of {options.rows} x {options.features} a cell, seed {options.seed}")
    print(f"{'design':12} {'SNR':>5} {'fit':8} {'cover':>20} {'noise':>6} {'sum (true)':>13} "
          f"{'error':>7} {'CPU s':>6} {'dense':>5}  probability -> truth (features)")  # fmt: skip
    for design, correlation in DESIGNS.items():
        for ratio in RATIOS:
            for method in options.methods:
                print(cell(design, correlation, ratio, method, options), flush=True)


def draw(rng, options, correlation, ratio):
    """Training and test rows, the features that matter, and the variance of the noise."""
    n, p = options.rows + 2000, options.features
    X = rng.normal(size=(n, p))
    for j in range(1, p if correlation else 0):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    matter = rng.random(p) < 5 / p
    matter[rng.integers(p)] |= not matter.any()
    w = np.where(matter, rng.normal(size=p), 0)
    signal = X @ w
    noise = signal.var() / ratio
    return X, signal + np.sqrt(noise) * rng.normal(size=n), matter, noise


def cell(design, correlation, ratio, method, options):
    """A line of the table."""
    inside, noises, said, true, dense, start = [], [], [], [], 0, time.process_time()
    for k in range(options.fits):
        rng = np.random.default_rng([options.seed, k, int(10 * ratio), int(10 * correlation)])
        X, y, matter, noise = draw(rng, options, correlation, ratio)
        n = options.rows
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = mf.SpikeSlabRegressor(**METHODS[method]).fit(X[:n], y[:n])
        mean, deviation = fitted.predict(X[n:], return_std=True)
        error = abs(y[n:] - mean)[:, None] / deviation[:, None]
        inside.append((error <= ndtri(0.5 + LEVELS / 2)).mean(0))
        noises.append(fitted.noise_variance_ / noise)
        said.append(fitted.inclusion_probability_)
        true.append(matter)
        dense += (said[-1] > 0.5).mean() > 0.1
    seconds = (time.process_time() - start) / options.fits
    said, true = np.array(said), np.array(true)
    cover = " ".join(f"{c:.3f}" for c in np.mean(inside, 0))
    total, expected = said.sum(1).mean(), true.sum(1).mean()
    bins, error = reliability(said.ravel(), true.ravel())
    line = f"{design:12} {ratio:5} {method:8} {cover:>20} {np.median(noises):6.2f} {total:6.1f} "
    return line + f"({expected:.1f}) {error:7.4f} {seconds:6.2f} {dense:5}  {bins}"


def reliability(said, true):
    """Probability said and fraction true in each bin, and the weighted mean of the differences."""
    edges = np.array([0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0001])
    which, lines, error = np.digitize(said, edges) - 1, [], 0.0
    for k in range(len(edges) - 1):
        chosen = which == k
        if chosen.any():
            mean, truth = said[chosen].mean(), true[chosen].mean()
            error += chosen.mean() * abs(mean - truth)
            lines.append(f"{mean:.3f}->{truth:.3f} ({chosen.sum()})")
    return "  ".join(lines), error


if __name__ == "__main__":
    sys.exit(experiment.run(main))
