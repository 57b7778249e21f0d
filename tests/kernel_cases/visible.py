"""Cases of `anneal_visible`."""

from functools import partial

import numpy as np

import fastmf as mf
from fastmf.inference.sampling.gibbs import units_of_columns
from fastmf.kernels.sampling.annealing import TiltedBetas, visible_work
from fastmf.priors._groups import column_sizes
from kernel_cases.case import Case, chosen

BETAS = 0.0, 0.25, 0.5, 1.0, 1.0


def arguments(size, dtype, rows=None, *, kind="spins"):
    """Arguments for units of a kind."""
    rng, n = np.random.default_rng(4), size.n_visible
    prior = mf.Ising(rng.normal(size=n).astype(dtype))
    if kind == "mixed":
        groups = [rng.normal(size=q).astype(dtype) for q in (2, 3, 4, *[2] * (n // 4), 5)]
        prior = mf.Concatenated(mf.Categorical(groups), mf.Bernoulli(prior.field[: n // 4]))
    sizes = column_sizes(prior)
    column = np.repeat(np.arange(len(sizes)), sizes)
    n = len(column)
    stays, scale = column[:, None] != column, np.sqrt(3 / n)
    couplings = np.triu(np.where(stays, scale * rng.normal(size=(n, n)), 0), 1)
    couplings = (couplings + couplings.T).astype(dtype)
    x = prior.sample(np.zeros((size.n_rows, n)), 0.0, np.random.default_rng(5)).astype(dtype)
    x = x[chosen(rows, size.n_rows)]
    return (
        *(couplings, units_of_columns(prior)),
        *(TiltedBetas(rng.normal(size=n), np.array(BETAS)), np.arange(7, 11, dtype=np.uint64)),
        *(x, np.zeros(len(x)), visible_work(n)),
    )


def _results(arguments):
    return {"x": arguments[4], "log_weights": arguments[5]}


CASES = [
    Case("sampling.annealing.anneal_visible", kind, partial(arguments, kind=kind), _results,
         {"float64": 1e-11, "float32": 1e-11}, large=kind == "spins", any_rows=False)
    for kind in ("spins", "mixed")
]  # fmt: skip
