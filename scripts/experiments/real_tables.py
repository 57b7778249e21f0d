"""Likelihoods of RBMs with Gaussian visible units on four tables that come with scikit-learn.

Each table, standardised, is learned by each gradient with default options. Prints log-likelihoods
in nats a row, exact by enumeration of the hidden units, and how far they are from independent
columns (0 %) to maximum likelihood (100 %), which SciPy's L-BFGS finds from several starts.
"""

import time

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


def table(name):
    """Columns that vary, standardised."""
    X = TABLES[name]().data
    X = X[:, X.std(0) > 0]
    return (X - X.mean(0)) / X.std(0)


def independent(X):
    """Log-likelihood of independent Gaussian columns."""
    return -np.sum(1 + np.log(2 * np.pi * X.var(0))) / 2


def maximum(X, n_hidden, n_steps, seeds):
    """The largest log-likelihood that L-BFGS finds."""
    objective, best = Objective(X, None, 0.0), -np.inf
    for seed in seeds:
        weights = 0.1 * np.random.default_rng(seed).normal(size=(X.shape[1], n_hidden))
        model = mf.RBM(weights, mf.Gaussian.from_data(X), mf.Bernoulli(np.zeros(n_hidden)))

        def negative(variables, model=model):
            point = objective.near(model, variables)
            return (np.inf, 0 * variables) if point is None else (-point.value, -point.gradient)

        options = {"maxiter": n_steps, "maxcor": 20}
        solution = minimize(
            negative, variables_of(model), jac=True, method="L-BFGS-B", options=options
        )
        best = max(best, -solution.fun)
    return best


def learned(X, gradient, n_hidden, n_epochs, seed):
    """Log-likelihood and seconds of training of one machine."""
    machine = mf.GeneralizedRBM(
        n_hidden, visible="gaussian", gradient=gradient, n_epochs=n_epochs, random_state=seed
    )
    start = time.perf_counter()
    machine.fit(X)
    seconds = time.perf_counter() - start
    log_partition = mf.exact(machine.model_, averages=False).log_partition
    log_likelihood = mf.evaluation.log_likelihood(machine.model_, X, log_partition).mean()
    return log_likelihood, seconds


def main(argv=None):
    options = experiment.Parser(
        __doc__, "seed", quick={"tables": ["iris"], "epochs": 10, "seeds": 1}, tables=TABLES,
        hidden=8, epochs=200, seeds=2,
    ).parse_args(argv)  # fmt: skip
    seeds = range(options.seed, options.seed + options.seeds)
    for name in options.tables:
        X = table(name)
        low = independent(X)
        high = maximum(X, options.hidden, 10 * options.epochs, seeds)
        print(f"{name}, {X.shape[0]} x {X.shape[1]}: {low:.2f} independent, {high:.2f} maximum")
        for gradient in GRADIENTS:
            runs = [learned(X, gradient, options.hidden, options.epochs, seed) for seed in seeds]
            log_likelihood, seconds = np.mean(runs, axis=0)
            share = (log_likelihood - low) / (high - low)
            print(f"  {gradient:12} {log_likelihood:8.2f} {share:6.0%} {seconds:6.1f} s")


if __name__ == "__main__":
    experiment.run(main)
