#!/usr/bin/env python3
"""The second table of SPEED.md: time to solution beside other packages.

All that is compared runs in one process and alternates; a time is the median over the rounds, a
ratio the median of the ratios within a round. Where a peer solves another problem the last column
says so. A peer that is not installed is left out, with a message. The training of RBMs beside
scikit-learn's is in speed_table.py (one epoch) and experiments/training_quality.md (likelihoods).
"""

import argparse
import warnings
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scaling import pinned
from scaling_bp import by_odds, by_the_paper, machine
from scaling_fvbm import chain
from scipy.optimize import minimize
from speed_page import PAGE, write_page
from speed_table import line, table
from timing import interleaved, positive, with_own_blas

import fastmf as mf

MARKERS = "<!-- peers table: begin -->", "<!-- peers table: end -->"


def belief_propagation(repeats):
    """Ten sweeps of sum-product."""
    peers = {name: (make, package) for name, make, package in PEERS if find_spec(package)}
    for name, _, package in PEERS:
        if name not in peers:
            print(f"{name} is left out: {package} is not installed")
    for dtype in ("float32", "float64"):
        model = machine(1000, 500, dtype)
        options = {"max_iter": 10, "tol": 0, "damping": 0.0, "n_threads": 1}
        solvers = {
            "ours": partial(mf.belief_propagation, model, **options),
            "NumPy in odds": partial(by_odds, model, 10),
            "NumPy as the paper writes it": partial(by_the_paper, model, 10),
        }
        solvers |= {name: make(model, 10) for name, (make, _) in peers.items()}
        hidden = solvers["ours"]().mean[1]
        for name, solve in solvers.items():
            if name != "ours":  # which also compiles those that compile at the first call
                np.testing.assert_allclose(solve()[1], hidden, atol=1e-4, err_msg=name)
        times = interleaved(solvers, repeats)
        task = f"ten sweeps of sum-product, 1000 x 500, {dtype}, one thread"
        for name in times:
            if name != "ours":
                yield line(task, times["ours"], times[name], name)


def jax_in_odds(model, n_sweeps):
    """Sum-product as in `by_odds`, compiled by JAX."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    w, b1, b2 = (jnp.asarray(x) for x in (model.weights, *(p.field for p in model.layers)))

    @jax.jit
    def solve(w):
        e = jnp.exp(w)

        def sweep(_, state):
            s, _, odds = state
            r = (s + e * odds) / (s + odds)
            visible = jnp.exp(b1 + jnp.log(r).sum(1))[:, None]
            s = (r + e * visible) / (r + visible)
            return s, visible[:, 0], jnp.exp(b2 + jnp.log(s).sum(0))

        state = jax.lax.fori_loop(0, n_sweeps, sweep, (jnp.ones_like(e), b1, jnp.exp(b2)))
        return [odds / (1 + odds) for odds in state[1:]]

    return lambda: jax.block_until_ready(solve(w))


def torch_in_odds(model, n_sweeps):
    """Sum-product as in `by_odds`, compiled by PyTorch."""
    import torch

    w, b1, b2 = (torch.tensor(x) for x in (model.weights, *(p.field for p in model.layers)))

    @torch.compile
    def sweep(e, s, odds):
        r = (s + e * odds) / (s + odds)
        visible = torch.exp(b1 + torch.log(r).sum(1))[:, None]
        s = (r + e * visible) / (r + visible)
        return s, visible[:, 0], torch.exp(b2 + torch.log(s).sum(0))

    def solve():
        e, odds = torch.exp(w), torch.exp(b2)
        s = torch.ones_like(e)
        for _ in range(n_sweeps):
            s, visible, odds = sweep(e, s, odds)
        return [odds / (1 + odds) for odds in (visible, odds)]

    return solve


PEERS = ("JAX in odds", jax_in_odds, "jax"), ("PyTorch in odds", torch_in_odds, "torch")


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
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    couplings = np.zeros((d, d))
    couplings[upper] = found.x[d:]
    return couplings + couplings.T


SECTIONS = {
    "belief_propagation": belief_propagation,
    "regression": regression,
    "classification": classification,
    "pseudo_likelihood": pseudo_likelihood,
}


def run(description, sections, markers, packages):
    """Measure what the command line names, print the table, and write it if asked to.

    Parameters
    ----------
    description : str
    sections : dict of name to function
        A function is called with the number of rounds and gives rows.
    markers : pair of str
        Lines of the page between which the table is.
    packages : sequence of str
        Packages whose versions are printed.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--repeats", type=positive, default=5, help="rounds of each comparison [5]")
    add("--threads", type=positive, default=1, help="of BLAS, and cores for all that compile [1]")
    add("--only", nargs="+", choices=sections, default=list(sections), help="parts of the table")
    add("--write", nargs="?", type=Path, const=PAGE, metavar="FILE",
        help="put the table between its markers in FILE (scripts/SPEED.md, and rows of it in "
        "README.md)")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.write and set(arguments.only) != set(sections):
        parser.error("--write would leave out of the table what --only does not name")
    rows = []
    for package in packages:
        try:
            print(package, version(package))
        except PackageNotFoundError:
            print(package, "is not installed")
    with pinned(arguments.threads):  # to cores, which limits the threads of every peer
        for name in arguments.only:
            for row in sections[name](arguments.repeats):
                rows.append(row)
                print(row, flush=True)
    if arguments.write and not rows:
        raise SystemExit("No peer is installed: there is no table to write.")
    if arguments.write:
        write_page(arguments.write, table(rows, arguments.threads), markers)


def main():
    """Measure, print the table, and write it to the page if asked to."""
    run(__doc__, SECTIONS, MARKERS, ("numba", "numpy", "scipy", "scikit-learn", "jax", "torch"))


if __name__ == "__main__":
    with_own_blas(main)
