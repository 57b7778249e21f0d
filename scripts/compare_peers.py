#!/usr/bin/env python3
"""The second table of SPEED.md: time to solution beside other packages.

All that is compared runs in one process and alternates; a time is the median over the rounds, a
ratio the median of the ratios within a round. Where a peer solves another problem the last column
says so. A peer that is not installed is left out, with a message. The training of RBMs beside
scikit-learn's is in speed_table.py (one epoch) and experiments/training_quality.md (likelihoods).
"""

import argparse
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
from timing import interleaved, positive

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


def regression(repeats):
    """A sparse linear regression with more features than rows."""
    from sklearn.linear_model import ARDRegression, LassoCV

    rng = np.random.default_rng(0)
    n, d = 100, 1000
    X, w = rng.normal(size=(n, d)), np.zeros(d)
    w[rng.choice(d, 10, replace=False)] = rng.normal(size=10)
    y = X @ w + 0.1 * rng.normal(size=n)
    peers = {
        "given": mf.SpikeSlabRegressor(
            noise_variance=0.01, slab_variance=1.0, inclusion_probability=0.01, fit_intercept=False
        ),
        "learned": mf.SpikeSlabRegressor(),
        "LassoCV": LassoCV(n_jobs=1),
        "ARDRegression": ARDRegression(),
    }
    peers["learned"].fit(X, y)
    times = interleaved({k: partial(p.fit, X, y) for k, p in peers.items()}, repeats)
    error = {k: float(np.sqrt(((p.coef_ - w) ** 2).mean() * d / 10)) for k, p in peers.items()}
    for ours, how in (("given", "parameters known"), ("learned", "parameters learned")):
        for theirs in ("LassoCV", "ARDRegression"):
            note = f"error of a coefficient {error[ours]:.2g} beside {error[theirs]:.2g}"
            task = f"sparse regression, {n} x {d}, ten coefficients, {how}"
            yield line(task, times[ours], times[theirs], f"scikit-learn, {theirs}", note)


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
    main()
