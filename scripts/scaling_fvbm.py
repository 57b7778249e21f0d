"""Time of maximum pseudo-likelihood against units, rows and threads: sweeps, gradients, whole fits.

Writes scaling_fvbm.csv and scaling_fvbm.png:

  sweep      one BSLM sweep on distinct rows of the paper's design, compiled and NumPy
  gradient   one gradient; its ceiling is the time of two matrix products
  fit        the estimator from raw rows, the decision on existence included
  errors     the fit with standard errors, up to 40 units
"""

import time
from contextlib import contextmanager
from functools import partial

import numpy as np
from scaling import Point, Work, over_threads, run, sized
from timing import with_own_blas

import fastmf as mf
from fastmf.kernels.pseudo_likelihood.binary import bslm_addresses
from fastmf.kernels.pseudo_likelihood.bslm_arguments import BSLMData, BSLMSettings, bslm_workspaces
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.rows import distinct

from kernel_cases import case  # isort: skip  (found through timing)

BSLM = case("pseudo_likelihood.binary.bslm-plain")


def chain(n_units, n_rows, agreement=0.75, seed=0):
    """Rows of a Markov chain along the units: a fully visible machine that is drawn at once."""
    rng = np.random.default_rng(seed)
    agrees = rng.random((n_rows, n_units)) < agreement
    agrees[:, 0] = rng.random(n_rows) < 0.6
    return np.cumprod(np.where(agrees, 1.0, -1.0), axis=1)


def paper_rows(n_units, n_rows):
    """Rows of the paper's own design: strong couplings, so that few rows are distinct."""
    from fastmf.inference.sampling.discrete import sample

    rng = np.random.default_rng(4)
    J = np.triu(np.sqrt(0.5) * rng.normal(size=(n_units, n_units)), 1)
    model = mf.BoltzmannMachine(J + J.T, mf.Ising(np.sqrt(0.5) * rng.normal(size=n_units)))
    return sample(model, n_rows, rng)


def sweep(which, objective, n=10):
    """Seconds of a BSLM sweep from zero, by the kernel or its twin."""
    d = objective.n_units
    states = np.ascontiguousarray(objective.states.T)
    arguments = (
        BSLMData(
            states, states.astype(np.int8), objective.weights, objective.mean, objective.second, 1.0
        ),
        BSLMSettings(0.0, 0.0, -np.inf, n, *bslm_addresses()),
        bslm_workspaces(1, *states.shape), np.zeros(2, np.int64),
        np.zeros((1, d, d)), np.zeros((1, d)), np.zeros((1, n + 1)), np.zeros(1, np.int64),
    )  # fmt: skip
    start = time.perf_counter()
    BSLM.run(which, arguments)
    return (time.perf_counter() - start) / n


def points(options):
    """Units, rows, threads."""
    small, units = ((5, 10), (20, 40)) if options.quick else ((5, 10, 20), (20, 40, 100, 200, 1000))
    n = sized(options, 640, 8000, 16_000)
    for d in small:
        yield Point("units", d, "sweep", "float64", (d,), n, 1)
    for d in units:
        for task in ("gradient", "fit", "errors")[: 3 if d <= 40 else 2]:
            yield Point("units", d, task, "float64", (d,), n, options.threads)
    size = sized(options, (20,), (40,), (100,))
    for rows in (n // 16, n // 4, n, 4 * n):
        yield Point("rows", rows, "gradient", "float64", size, rows, 1)
    yield from over_threads("gradient", "float64", size, 4 * n, options)


@contextmanager
def problem(point, options):
    """What the task takes; beside the sweep its NumPy twin."""
    (d,) = point.size
    X = (paper_rows if point.task == "sweep" else chain)(d, point.n_rows)
    if point.task in ("fit", "errors"):
        learner = mf.FullyVisibleBoltzmannMachine(n_threads=point.threads)
        learner.fit(X)
        if point.task == "errors":
            yield {"fastmf": lambda: learner.fit(X).standard_errors()}, Work
        else:
            yield {"fastmf": partial(learner.fit, X)}, Work
        return
    objective = PseudoLikelihood(
        *distinct(X.astype(np.int8), np.ones(len(X)))[:2], n_threads=point.threads
    )
    if point.task == "sweep":
        sweep("compiled", objective)  # compiles
        both = {"fastmf": "compiled", "NumPy": "twin"}
        yield {who: partial(sweep, which, objective) for who, which in both.items()}, Work
        return
    parameters = np.random.default_rng(0).normal(size=objective.n_parameters) / d

    def gradient():
        parameters[:] *= 1 + 1e-12  # values at the same point are cached
        objective.value_and_gradient(parameters)

    gradient()
    yield {"fastmf": gradient}, lambda: Work(operations=4.0 * len(objective.weights) * d * d)


main = partial(run, "scaling_fvbm", __doc__, points, problem, ())


if __name__ == "__main__":
    with_own_blas(main)
