"""Calibration of the probabilities and intervals of spike-and-slab regression.

All parameters are learned on four kinds of features, at several ratios of signal to noise; "true"
is given them. With --prior they are drawn from the priors of the fit, as in simulation-based
calibration; data sets whose variance of y is not near 1, its unit, are drawn anew.
"""

import time
import warnings
from functools import partial

import experiment
import numpy as np
from scipy.special import ndtri

import fastmf as mf
from fastmf.learning.evidence.parameter_priors import (
    NOISE_CENTER,
    NOISE_WIDTH,
    SLAB_CENTER,
    SLAB_DEVIATION,
    STRENGTH,
)

LEVELS = np.array([0.5, 0.9, 0.95, 0.99])
METHODS = {
    "average": {"average_parameters": True},
    "MAP": {},
    "ML": {"parameter_prior": None},
    "true": {},
}
EDGES = np.array([0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0001])


def in_blocks(rng, n, p, correlation=0.95, size=10):
    """Standard normal features, those of a block correlated."""
    common = np.repeat(rng.normal(size=(n, -(-p // size))), size, axis=1)[:, :p]
    return np.sqrt(correlation) * common + np.sqrt(1 - correlation) * rng.normal(size=(n, p))


def genotypes(rng, n, p, correlation=0.95):
    """Counts of alleles on two chromosomes, neighbours linked."""
    limit = -ndtri(rng.uniform(0.1, 0.5, p))
    return sum(1.0 * (experiment.autoregressive(rng, n, p, correlation) > limit) for _ in range(2))


DESIGNS = {
    "independent": partial(experiment.autoregressive, correlation=0.0),
    "AR 0.9": partial(experiment.autoregressive, correlation=0.9),
    "blocks 0.95": in_blocks,
    "genotypes": genotypes,
}
ROWS = 100
# Largest difference of the variance of y from 1 of data drawn from the priors.
SCALE_TOLERANCE = 0.1


def main(argv=None):
    """Run the experiment."""
    parser = experiment.Parser(
        __doc__, "seed", "records", quick={"fits": 2, "features": 100, "ratios": [2.0]},
        fits=(30, "of each cell"), features=500, designs=DESIGNS, ratios=[0.5, 2.0, 10.0],
        methods=METHODS, prior=(False, "parameters from the priors"),
    )  # fmt: skip
    parser.set_defaults(methods=["average", "MAP", "ML"])
    options = parser.parse_args(argv)
    if options.prior:
        options.ratios = ["prior"]
    cells = [(d, r, m) for d in options.designs for r in options.ratios for m in options.methods]
    results = experiment.Results(options.records)
    for k in range(options.fits):
        for cell in cells:
            results.get(f"{label(*cell, options)}.{k}", fit, *cell, k, options)
    print(f"{options.fits} fits of {ROWS} x {options.features} a cell, seed {options.seed}")
    print(f"{'design':12} {'SNR':>5} {'fit':8} {'cover':>20} {'(error)':7} {'noise':>6} "
          f"{'sum (true)':>13} {'error':>13} {'CPU s':>6} {'dense':>5}  "
          "probability -> truth (features)")  # fmt: skip
    for design, ratio, method in cells:
        name = label(design, ratio, method, options)
        fits = [results.values[f"{name}.{k}"] for k in range(options.fits)]
        print(f"{design:12} {ratio:>5} {method:8} {figures_of(fits)}")


def label(design, ratio, method, options):
    """Name of a cell, and of its fits in files."""
    ratio = ratio if isinstance(ratio, str) else f"{ratio:g}"
    return f"{design}/{ratio}/{method}/{ROWS}x{options.features}/{options.seed}"


def draw(design, rng, options, ratio):
    """Training and test rows, the features that matter, and the parameters."""
    n, p = ROWS + 2000, options.features
    X = DESIGNS[design](rng, n, p)
    if ratio == "prior":
        return X, *draw_from_priors(X, rng)
    matter = rng.random(p) < 5 / p
    matter[rng.integers(p)] |= not matter.any()
    signal = X @ np.where(matter, rng.normal(size=p), 0)
    noise = signal.var() / ratio
    return X, signal + np.sqrt(noise) * rng.normal(size=n), matter, noise


def draw_from_priors(X, rng):
    """The same, with parameters from the priors of the fit."""
    (n, p), deviation = X.shape, X[:ROWS].std(0)
    while True:
        noise = NOISE_CENTER * np.exp(NOISE_WIDTH * rng.standard_cauchy())
        slab = SLAB_CENTER * np.exp(SLAB_DEVIATION * rng.normal())
        inclusion = rng.beta(STRENGTH, STRENGTH * p)
        if not (1e-12 < noise < 2 and inclusion > 0.1 / p):  # the bounds of the search
            continue
        matter = rng.random(p) < inclusion
        w = np.where(matter & (deviation > 0), rng.normal(size=p), 0) * np.sqrt(slab)
        y = X @ (w / np.where(deviation > 0, deviation, 1)) + np.sqrt(noise) * rng.normal(size=n)
        if abs(y[:ROWS].var() - 1) < SCALE_TOLERANCE:
            return y, matter, noise


def fit(design, ratio, method, k, options):
    """One fit: cover, learned over true noise, probabilities, what matters, and seconds."""
    place = 10**6 if ratio == "prior" else int(10 * ratio)
    rng = np.random.default_rng([options.seed, k, place, list(DESIGNS).index(design)])
    X, y, matter, noise = draw(design, rng, options, ratio)
    n, given = ROWS, dict(METHODS[method])
    if method == "true":
        given |= {"noise_variance": noise, "slab_variance": 1.0, "standardize": False}
        given["inclusion_probability"] = 5 / X.shape[1]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = mf.SpikeSlabRegressor(**given).fit(X[:n], y[:n])
    seconds = time.process_time() - start
    mean, deviation = fitted.predict(X[n:], return_std=True)
    inside = abs(y[n:] - mean)[:, None] <= ndtri(0.5 + LEVELS / 2) * deviation[:, None]
    said = fitted.inclusion_probability_
    return {
        "cover": inside.mean(0).tolist(),
        "noise": float(fitted.noise_variance_ / noise),
        "said": said.tolist(),
        "matter": matter.astype(int).tolist(),
        "seconds": seconds,
    }


def figures_of(fits):
    """The rest of a line of the table."""
    covers = np.array([fit["cover"] for fit in fits])
    cover = " ".join(f"{c:.3f}" for c in covers.mean(0))
    error = covers[:, 2].std(ddof=1) / np.sqrt(len(fits)) if len(fits) > 1 else np.nan
    noise = np.median([fit["noise"] for fit in fits])
    seconds = np.mean([fit["seconds"] for fit in fits])
    said, matter = (np.array([fit[name] for fit in fits]) for name in ("said", "matter"))
    dense = int(((said > 0.5).mean(1) > 0.1).sum())
    rows, mean = experiment.calibration(said.ravel(), matter.ravel(), EDGES)
    largest = abs(rows[:, 0] - rows[:, 1])[rows[:, 2] > 100].max(initial=0)
    total, expected = said.sum() / len(fits), matter.sum() / len(fits)
    return (
        f"{cover:>20} ({error:.4f}) {noise:6.2f} {total:6.1f} ({expected:.1f}) {mean:6.4f} "
        f"{largest:6.3f} {seconds:6.2f} {dense:5}  {experiment.bins_of(rows)}"
    )


if __name__ == "__main__":
    experiment.run(main)
