#!/usr/bin/env python3
"""The second table of SPEED.md: time to solution beside other packages.

All that is compared runs in one process and alternates; a time is the median over the rounds, a
ratio the median of the ratios within a round. Where a peer solves another problem the last column
says so. The training of RBMs beside scikit-learn's is in speed_table.py (one epoch) and
time_to_quality.py (likelihoods).
"""

import warnings
from functools import partial

import numpy as np
from scaling import by_odds, by_the_paper, chain, machine
from scipy.optimize import minimize
from speed_page import line, run
from timing import interleaved, with_own_blas

import fastmf as mf

MARKERS = "<!-- peers table: begin -->", "<!-- peers table: end -->"


def belief_propagation(repeats):
    """Ten sweeps of sum-product."""
    for dtype in ("float32", "float64"):
        model = machine(1000, 500, dtype)
        options = {"max_iter": 10, "tol": 0, "damping": 0.0, "n_threads": 1}
        solvers = {
            "ours": partial(mf.belief_propagation, model, **options),
            "NumPy in odds": partial(by_odds, model, 10),
            "NumPy as the paper writes it": partial(by_the_paper, model, 10),
        }
        hidden = solvers["ours"]().mean[1]
        for name, solve in solvers.items():
            if name != "ours":  # which also compiles those that compile at the first call
                np.testing.assert_allclose(solve()[1], hidden, atol=1e-4, err_msg=name)
        times = interleaved(solvers, repeats)
        task = f"ten sweeps of sum-product, 1000 x 500, {dtype}, one thread"
        for name in times:
            if name != "ours":
                yield line(task, times["ours"], times[name], name)


def design(n, d, correlation, seed=0):
    """Features whose correlations fall off from one to the next, and ten coefficients far apart."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, d)), np.zeros(d)
    for j in range(1, d):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    w[d // 20 :: d // 10] = rng.normal(size=10)
    return X, w


def regression(repeats):
    """Sparse linear regressions with more features than rows: errors beside times."""
    from sklearn.linear_model import ARDRegression, ElasticNetCV, LassoCV

    for n, d, correlation in ((100, 1000, 0.0), (300, 1000, 0.9)):
        X, w = design(n + 1000, d, correlation)
        y = X @ w + 0.1 * np.random.default_rng(1).normal(size=len(X))
        given = {"noise_variance": 0.01, "slab_variance": 1.0, "inclusion_probability": 10 / d}
        ours = {
            "parameters known": mf.SpikeSlabRegressor(**given, fit_intercept=False),
            "parameters learned": mf.SpikeSlabRegressor(),
        }
        peers = {
            "LassoCV": LassoCV(n_jobs=1),
            "ElasticNetCV": ElasticNetCV(l1_ratio=[0.5, 0.9, 1.0], n_jobs=1),
            "ARDRegression": ARDRegression(),
        }
        named = ", correlations of 0.9" if correlation else ""
        task = f"sparse regression, {n} x {d}{named}, ten coefficients"
        yield from compared(task, ours, peers, (X[:n], y[:n], X[n:], y[n:]), w, repeats)


def classification(repeats):
    """Sparse classification by a probit model, beside logistic regression with an L1 penalty."""
    from sklearn.linear_model import LogisticRegressionCV

    for correlation in (0.0, 0.9):
        X, w = design(1400, 300, correlation)
        y = (3 * X @ w + np.random.default_rng(1).normal(size=len(X)) > 0).astype(float)
        peers = {
            "LogisticRegressionCV, L1": LogisticRegressionCV(
                l1_ratios=[1.0], solver="liblinear", use_legacy_attributes=False, random_state=0
            )
        }
        named = ", correlations of 0.9" if correlation else ""
        task = f"sparse classification, 400 x 300{named}, ten coefficients"
        rows = X[:400], y[:400], X[400:], y[400:]
        ours = {"parameters learned": mf.SpikeSlabClassifier()}
        yield from compared(task, ours, peers, rows, w, repeats)


def compared(task, ours, peers, rows, w, repeats):
    """Rows of all estimators of the package beside all peers, with the errors of both."""
    X, y, X_new, y_new = rows
    fits = {name: partial(one.fit, X, y) for name, one in (ours | peers).items()}
    for name in ours:
        fits[name]()  # compiles
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what has not converged is seen by its errors
        times = interleaved(fits, repeats)
    errors = {name: errors_of(one, w, X_new, y_new) for name, one in (ours | peers).items()}
    for how in ours:
        for name in peers:
            both = zip(errors[how].items(), errors[name].values(), strict=True)
            note = "; ".join(f"{what} {own} : {other}" for (what, own), other in both)
            yield line(f"{task}, {how}", times[how], times[name], f"scikit-learn, {name}", note)


def errors_of(one, w, X_new, y_new):
    """Features found and false ones, and errors of coefficients and of predictions on new rows."""
    probability = getattr(one, "inclusion_probability_", None)
    chosen = np.ravel(one.coef_) != 0 if probability is None else np.ravel(probability) > 0.5
    errors = {"features found": chosen[w != 0].sum(), "false": chosen[w == 0].sum()}
    wrong = one.predict(X_new) - y_new
    if set(np.unique(y_new)) <= {0.0, 1.0}:
        return errors | {"wrong classes": f"{(wrong != 0).mean():.1%}"}
    error = np.sqrt(((one.coef_ - w) ** 2).sum() / np.count_nonzero(w))
    return errors | {"error of a coefficient": f"{error:.2g}", "predictions": f"{wrong.std():.3g}"}


def pseudo_likelihood(repeats):
    """Maximum pseudo-likelihood from raw rows, where the maximum exists."""
    for d in (10, 20):
        X = chain(d, 16_000)
        ours = mf.FullyVisibleBoltzmannMachine(solver="auto")
        gap = abs(ours.fit(X).couplings_ - scipy_maximum(X)).max()
        solvers = {"ours": partial(ours.fit, X), "SciPy": partial(scipy_maximum, X)}
        times = interleaved(solvers, repeats)
        note = f"ours decides on existence, too; couplings differ by {gap:.1g} at most"
        yield line(f"maximum pseudo-likelihood, {d} units, 16,000 rows", times["ours"],
                   times["SciPy"], "SciPy, L-BFGS-B on distinct rows", note)  # fmt: skip


def scipy_maximum(X):
    """Couplings that maximise the pseudo-likelihood, with NumPy and SciPy alone."""
    rows, counts = np.unique(X, axis=0, return_counts=True)
    weights, d = counts / len(X), X.shape[1]
    upper = np.triu_indices(d, 1)

    def loss(parameters):
        couplings = np.zeros((d, d))
        couplings[upper] = parameters[d:]
        couplings += couplings.T
        fields = rows @ couplings + parameters[:d]
        value = weights @ np.logaddexp(0, -2 * rows * fields).sum(1)
        residual = weights[:, None] * (np.tanh(fields) - rows)
        cross = residual.T @ rows
        return value, np.concatenate([residual.sum(0), (cross + cross.T)[upper]])

    start = np.zeros(d + len(upper[0]))
    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-14, "gtol": 1e-7}
    solution = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    couplings = np.zeros((d, d))
    couplings[upper] = solution.x[d:]
    return couplings + couplings.T


SECTIONS = {
    "belief_propagation": belief_propagation,
    "regression": regression,
    "classification": classification,
    "pseudo_likelihood": pseudo_likelihood,
}


def main():
    """Measure, print the table, and write it to the page if asked to."""
    run(__doc__, SECTIONS, MARKERS, ("numba", "numpy", "scipy", "scikit-learn"))


if __name__ == "__main__":
    with_own_blas(main)
