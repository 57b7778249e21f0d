#!/usr/bin/env python3
"""Likelihoods of RBMs with Gaussian visible units on four tables that come with scikit-learn.

Each table, standardised, is learned by each gradient with default options. Prints log-likelihoods
in nats a row, exact by enumeration of the hidden units, and how far they are from independent
columns (0 %) to maximum likelihood (100 %), which SciPy's L-BFGS finds from several starts.
"""

import time
import warnings

import experiment
import numpy as np
from scipy.optimize import minimize
from sklearn import datasets

import fastmf as mf
from fastmf.learning.layered.quasi_newton_steps import Objective, variables_of

TABLES = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
GRADIENTS = ("auto", "tap", "mean_field", "cd", "pcd")


def table(name, raw):
    """Columns that vary, standardised unless they are to be raw."""
    X = TABLES[name]().data
    X = X[:, X.std(0) > 0]
    return X if raw else (X - X.mean(0)) / X.std(0)


def independent(X):
    """Log-likelihood of independent Gaussian columns."""
    return -np.sum(1 + np.log(2 * np.pi * X.var(0))) / 2


def maximum(X, n_hidden, n_steps, seeds):
    """The largest log-likelihood that L-BFGS finds, in standardised columns and back."""
    Z = (X - X.mean(0)) / X.std(0)
    objective, best = Objective(Z, None, 0.0), -np.inf
    for seed in seeds:
        weights = 0.1 * np.random.default_rng(seed).normal(size=(X.shape[1], n_hidden))
        model = mf.RBM(weights, mf.Gaussian.from_data(Z), mf.Bernoulli(np.zeros(n_hidden)))

        def negative(variables, model=model):
            point = objective.near(model, variables)
            return (np.inf, 0 * variables) if point is None else (-point.value, -point.gradient)

        options = {"maxiter": n_steps, "maxcor": 20}
        solution = minimize(
            negative, variables_of(model), jac=True, method="L-BFGS-B", options=options
        )
        best = max(best, -solution.fun)
    return best - np.log(X.std(0)).sum()


def learned(X, gradient, n_hidden, n_epochs, seed):
    """Log-likelihood, seconds of training and the number of warnings of one machine."""
    machine = mf.GeneralizedRBM(
        n_hidden, visible="gaussian", gradient=gradient, n_epochs=n_epochs, random_state=seed
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        machine.fit(X)
        seconds = time.perf_counter() - start
    log_partition = mf.exact(machine.model_, averages=False).log_partition
    log_likelihood = mf.evaluation.log_likelihood(machine.model_, X, log_partition).mean()
    return log_likelihood, seconds, len(caught)


def main(argv=None):
    parser = experiment.parser(__doc__, "seed", quick="iris alone, ten epochs")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--gradients", nargs="+", default=GRADIENTS)
    parser.add_argument("--hidden", type=int, default=8, help="hidden units (default: 8)")
    parser.add_argument("--epochs", type=int, default=200, help="default: 200")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="[2]")
    parser.add_argument("--raw", action="store_true", help="columns as they are")
    options = parser.parse_args(argv)
    if options.quick:
        options.tables, options.epochs, options.seeds = ["iris"], 10, 1
    seeds = range(options.seed, options.seed + options.seeds)
    for name in options.tables:
        X = table(name, options.raw)
        low = independent(X)
        high = maximum(X, options.hidden, 10 * options.epochs, seeds)
        print(f"{name}, {X.shape[0]} x {X.shape[1]}: {low:.2f} independent, {high:.2f} maximum")
        for gradient in options.gradients:
            runs = [learned(X, gradient, options.hidden, options.epochs, seed) for seed in seeds]
            log_likelihood, seconds, n_warnings = np.mean(runs, axis=0)
            share = (log_likelihood - low) / (high - low)
            times = f"{seconds:6.1f} s, {n_warnings:g} warnings"
            print(f"  {gradient:12} {log_likelihood:8.2f} {share:6.0%} {times}")


if __name__ == "__main__":
    experiment.run(main)
