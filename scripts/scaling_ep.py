#!/usr/bin/env python3
"""Time of expectation propagation against features, rows and threads: ours and plain NumPy.

Writes scaling_ep.csv and scaling_ep.png. The NumPy side is the same parallel iteration in
n_rows-space with matrix products in NumPy, the moments as array expressions, with BLAS's default
number of threads and with one. The ceiling of
an iteration: the products of its two symmetric or triangular matrices with the features.
"""

import time
from contextlib import contextmanager
from functools import partial

import numpy as np
from scaling import STRONG, WEAK, Point, Work, counts, run, sized
from timing import blas_threads, with_own_blas

import fastmf as mf


def model(n, d, dtype=np.float64):
    """A regression with some twenty non-zero coefficients."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(dtype)
    w = np.where(rng.random(d) < 0.1 * n / d, rng.normal(size=d), 0)
    y = X @ w + 0.1 * rng.normal(size=n)
    prior_odds = 0.1 * n / d
    return mf.SparseLinearModel(X, y, 0.01, mf.GaussBernoulli(np.zeros(d), 1, np.log(prior_odds)))


def numpy_iterations(model, n_iter, damping=0.1):
    """Parallel expectation propagation by NumPy, without checks."""
    X, y, s2, prior = model.X, model.y, model.noise_variance, model.prior
    odds = np.exp(prior.log_odds)
    var = odds / (1 + odds) / prior.precision
    t1, t2 = np.zeros(len(var)), 1 / var
    for _ in range(n_iter):
        t2 = np.maximum(t2, 1e-3)
        scaled = X / np.sqrt(t2)
        B = s2 * np.eye(len(y)) + scaled @ scaled.T
        inverse = np.linalg.inv(B)
        product = inverse @ X
        var = (1 - np.einsum("ij,ij->j", X, product) / t2) / t2
        mean = (t1 + (y - X @ (t1 / t2)) @ product) / t2
        a = 1 / var - t2
        b = mean / var - t1
        s = 1 / (prior.precision + a)
        mu = s * b
        p = 1 / (1 + np.exp(-prior.log_odds - (np.log(prior.precision * s) + mu * b) / 2))
        tilted = p * (s + mu * mu) - (p * mu) ** 2
        precision = np.minimum(1 / tilted, 1e9 * np.maximum(abs(a), 1))
        t1 = damping * t1 + (1 - damping) * (p * mu * precision - b)
        t2 = damping * t2 + (1 - damping) * (precision - a)
    return mean


def numpy_sweep(model, site):
    """One sequential sweep by NumPy with rank-one updates.

    The updates of the sites themselves, scalars in Python, are left out: they would only add to it.
    """
    X, y = model.X, model.y
    t1, t2 = site
    inverse = np.linalg.inv(model.noise_variance * np.eye(len(y)) + (X / t2) @ X.T)
    g = inverse @ (y - X @ (t1 / t2))
    for i in range(X.shape[1]):
        x = X[:, i]
        z = inverse @ x
        rate = 1e-9 / (1 + 1e-9 * (x @ z))
        inverse -= rate * np.outer(z, z)
        g -= rate * (x @ g) * z


def points(options):
    """Features, rows, threads (more of them: more features)."""
    n, d = sized(options, (30, 150), (100, 2000), (200, 5000))
    features = sized(options, (60, 150), (500, 2000), (1000, 5000, 10_000, 50_000))
    most = options.threads
    for size in features:
        # With 50,000 features, 100 rows hardly determine the ten that matter: fits take minutes.
        fits = ("fit, parallel", "fit, convergent", "sequential sweep") if size <= 10_000 else ()
        for task in ("iteration", *fits):
            yield Point("features", size, task, "float64", (size,), n // 2, most)
    # The whole estimator, hyper-parameters learned.
    yield Point("features", d, "fit, learned", "float64", (d,), n, most)
    for rows in (n // 4, n // 2, n, 2 * n):
        yield Point("rows", rows, "iteration", "float64", (d,), max(rows, 2), most)
    for k in counts(most):
        yield Point(STRONG, k, "iteration", "float64", (d,), n, k)
        yield Point(WEAK, k, "iteration", "float64", (d * k,), n, k)


@contextmanager
def problem(point, options):
    """The package, and NumPy but for the convergent double loop."""
    regression = model(point.n_rows, *point.size)
    solve = mf.expectation_propagation
    first = solve(regression, n_threads=point.threads)
    n_iter = min(first.n_iter, 10)

    def per_iteration(function, n):
        def timed():
            start = time.perf_counter()
            function()
            return (time.perf_counter() - start) / n

        return timed

    def one_blas_thread(function):
        with blas_threads(1):
            function()

    def ours(schedule, **limits):
        return solve(regression, schedule=schedule, n_threads=point.threads, **limits)

    work = Work()
    if point.task == "iteration":
        solvers = {
            "fastmf": per_iteration(lambda: ours("parallel", max_iter=n_iter, tol=0), n_iter),
            "NumPy": per_iteration(lambda: numpy_iterations(regression, n_iter), n_iter),
            "NumPy, one thread": per_iteration(
                lambda: one_blas_thread(lambda: numpy_iterations(regression, n_iter)), n_iter
            ),
        }
        work = Work(operations=2.0 * point.n_rows**2 * point.size[0])
    elif point.task == "fit, learned":
        learner = mf.SpikeSlabRegressor(n_threads=point.threads)
        solvers = {"fastmf": lambda: learner.fit(regression.X, regression.y)}
        solvers["fastmf"]()
    elif point.task == "sequential sweep":
        site = np.abs(first.sites) + 1e-3
        solvers = {
            "fastmf": per_iteration(lambda: ours("sequential", max_iter=n_iter, tol=0), n_iter),
            "NumPy": lambda: numpy_sweep(regression, site),
        }
        solvers["fastmf"]()  # compiles
    else:
        schedule = point.task.removeprefix("fit, ")
        solvers = {"fastmf": lambda: ours(schedule)}
        solvers["fastmf"]()
        if schedule == "parallel":
            solvers["NumPy"] = lambda: numpy_iterations(regression, first.n_iter)
    yield solvers, lambda: work


main = partial(run, "scaling_ep", __doc__, points, problem, ())


if __name__ == "__main__":
    with_own_blas(main)
